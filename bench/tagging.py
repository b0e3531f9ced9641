"""How good are the taggers? One JSON line a training, then one a mean over its seeds or folds.

    python bench/tagging.py --data DATA --sets ewt,conll2000 --recipes tagger-bilstm --seeds 3

DATA is laid out as <task>/<data set>/… (see docs/benchmarks.md). Words of `ewt+vectors` also have
those of `--vectors FILE`; `conll2000-bioes` is learnt with other marks, and `conll2000-pos` learns
the parts of speech beside the chunks (both read words alone). Test scores of spans are counted
three times: by Weft, as conlleval defines them, and by seqeval where that is installed.
`--variants FILE` tries other settings, on dev; `--corpus FILE` only writes the text of lm/ as
words, for `weft vectors train`.
"""

import argparse
import gzip
import lzma
import re
import statistics
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import trials
from record import Record
from trials import Job, Parts

import weft
from weft.text.annotation import schemes
from weft.text.example import Example, WordAnnotations
from weft.text.read import Columns, read

Tags = Sequence[Sequence[str]]

FOLDS = 10
NAMES = ("data", "recipe", "variant", "seed", "fold")
SPANS, FIELD = "f1", "upos"  # what is measured: spans, or the tag of every word
# Contractions and punctuation stand alone, as in the treebanks; 3.5, U.S. and well-known do not.
TOKEN = re.compile(
    r"\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|re|ve|ll)\b"
    r"|\w+(?:[-.@/]\w+)*(?:(?<=\.[A-Za-z])\.)?|\.{2,}|-{2,}|[^\w\s]",
    re.IGNORECASE,
)


def treebank(name: str, files: str) -> Callable[[Path], Parts]:
    def load(root: Path) -> Parts:
        folder = root / "parsing" / name
        parts = ("train", "dev", "test")
        return {part: list(read(folder / f"{files}-ud-{part}.conllu.gz")) for part in parts}

    return load


def chunks(root: Path) -> Parts:
    """CoNLL-2000 has no dev part: the last tenth of train is a usual choice."""
    folder = root / "sequence_labelling/conll2000"
    train, test = (list(read(folder / f"{part}.txt.gz")) for part in ("train", "test"))
    cut = len(train) * 9 // 10
    return {"train": train[:cut], "dev": train[cut:], "test": test}


def wnut(root: Path) -> Parts:
    folder = root / "sequence_labelling/wnut17"
    return {part: list(read(folder / f"{part}.conll")) for part in ("train", "dev", "test")}


def danish(root: Path) -> Parts:
    folder = root / "sequence_labelling/uner_danish_ddt"
    columns = Columns(text=1, label=2)
    parts = ("train", "dev", "test")
    return {p: list(read(folder / f"da_ddt-ud-{p}.iob2.gz", columns=columns)) for p in parts}


def wikigold(root: Path, fold: int) -> Parts:
    """Whole documents are held out, since a document repeats its names."""
    path = root / "sequence_labelling/wikigold/all.txt"
    lines = path.read_text("utf-8").splitlines()
    starts = [n for n, line in enumerate(lines, 1) if line.startswith("-DOCSTART-")]
    parts: Parts = {"train": [], "dev": [], "test": []}
    for example in read(path):
        document = bisect(starts, example.line)
        held = document % FOLDS == fold
        dev = document // FOLDS % FOLDS == fold  # neighbours, a tenth of the others
        parts["test" if held else "dev" if dev else "train"].append(example)
    return parts


SETS: dict[str, Callable[..., Parts]] = {
    "ewt": treebank("ud_english_ewt", "en_ewt"),
    "sequoia": treebank("ud_french_sequoia", "fr_sequoia"),
    "imst": treebank("ud_turkish_imst", "tr_imst"),
    "conll2000": chunks,
    "wnut17": wnut,
    "wikigold": wikigold,
    "ddt": danish,
}


def marked(parts: Parts, scheme: str) -> Parts:
    """The same spans in the marks of another scheme."""

    def other(example: Example) -> Example:
        layers = example.label
        assert isinstance(layers, WordAnnotations)
        tags = tuple(schemes.convert(layers.columns["tag"], "IOB2", scheme))
        return replace(example, label=WordAnnotations({**layers.columns, "tag": tags}, layers.main))

    return {part: [other(example) for example in found] for part, found in parts.items()}


def loaded(job: Job) -> tuple[Parts, Job]:
    """The parts of a data set, and the settings that its name asks for."""
    name, *ways = job["data"].partition("+")[0].split("-")
    fold = () if job["fold"] is None else (job["fold"],)
    parts = SETS[name](Path(job["root"]), *fold)
    if "bioes" in ways:
        parts = marked(parts, "BIOES")
    return parts, {"task.columns": ["tag", "pos"]} if "pos" in ways else {}


def corpus(root: Path, target: Path) -> None:
    """The training text of lm/, a paragraph a line, its words apart."""
    files = (root / "lm/wiki_en/train.txt.xz", root / "lm/english_novels/novels.txt.xz")
    with open(target, "w", encoding="utf-8") as out:
        for path in files:
            with lzma.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    if line.strip() and not line.startswith("==="):  # the name of a novel
                        out.write(" ".join(TOKEN.findall(line)) + "\n")


def given(section: Job, vectors: str, parts: Parts, place: Path) -> Job:
    """Settings that add vectors, frozen, beside the learnt rows; words of the file are all known.

    Learnt rows begin at zero, so that a word met in no training text differs in its vector only.
    """
    from weft import registry
    from weft.vectors.store import Vectors

    known = Vectors.load(vectors)
    often = section["tokenizer"].get("min_count", 1)
    words = (word for example in parts["train"] for word in example.words)
    listed = (word for word in known.words for _ in range(often))
    made = registry.build("tokenizer", section["tokenizer"]).train(_both(words, listed))
    made.save(place)
    own = section["embedder"]
    lookup, *others = own if isinstance(own, list) else [own]
    frozen = {
        "kind": "lookup", "width": known.width, "vectors": vectors, "frozen": True,
        "dropout": lookup.get("dropout", 0.0),
    }  # fmt: skip
    return {"tokenizer.path": str(place), "embedder": [{**lookup, "scale": 0.0}, frozen, *others]}


def _both(*streams: Iterable[str]) -> Iterator[str]:
    for stream in streams:
        yield from stream


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, NAMES, trained)


def trained(job: Job, folder: Path) -> Job:
    parts, more = loaded(job)
    config = trials.configured({**job, "changes": {**more, **job["changes"]}})
    if job["data"].endswith("+vectors"):
        more = given(config.sections, job["vectors"], parts, folder / "tokenizer.json")
        config = config.with_values(more, "bench")
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    figures = {
        f"{part}_{metric}": figure[metric].value
        for part, figure in out.figures.items()
        for metric in (SPANS, FIELD) if metric in figure
    }  # fmt: skip
    if out.predictor.task.scheme:
        said, true = answered(out.predictor, parts["test"])
        figures |= checked(said, true)
        if job["answers"]:
            write_iob(Path(job["answers"]), {key: job[key] for key in NAMES}, said, true)
    return {**figures, "seconds": out.record["seconds"]}


def answered(predictor: Any, examples: list[Example]) -> tuple[list[list[str]], list[list[str]]]:
    """The tags a model gives to the words of a file, and those that are right; conlleval's IOB."""
    task, space = predictor.task, predictor.space
    answers = task.answers(predictor.engine.predict(examples).scores, space)
    said = [list(answer.structure.tags) for answer in answers]
    true = [list(task.gold(example, space).tags) for example in examples]
    if space.scheme in ("BIOES", "BILOU"):
        both = (
            (schemes.convert(t, space.scheme, "IOB2", "repair") for t in x) for x in (said, true)
        )
        said, true = map(list, both)
    return said, true


def checked(said: Tags, true: Tags) -> Job:
    """F1 of the same output by others' definitions."""
    found = {"conlleval_f1": conlleval(said, true)}
    try:
        from seqeval.metrics import f1_score
    except ImportError:
        return found
    return {**found, "seqeval_f1": float(f1_score(true, said))}


def conlleval(said: Tags, true: Tags) -> float:
    """F1 as conlleval.pl counts it: one pass over the words, with its begins and ends of chunks."""
    right, ours, theirs = 0, 0, 0
    for mine, gold in zip(said, true, strict=True):
        before, open_ = (("O", ""), ("O", "")), False
        for pair in (*zip(map(_cut, mine), map(_cut, gold), strict=True), (("O", ""), ("O", ""))):
            ended = [_ends(b, h) for b, h in zip(before, pair, strict=True)]
            begun = [_begins(b, h) for b, h in zip(before, pair, strict=True)]
            if open_ and all(ended):
                right += 1
            if any(ended):
                open_ = False
            if all(begun) and pair[0][1] == pair[1][1]:
                open_ = True
            ours, theirs = ours + begun[0], theirs + begun[1]
            before = pair
    return 2 * right / (ours + theirs) if ours + theirs else 0.0


def _cut(tag: str) -> tuple[str, str]:
    mark, _, label = tag.partition("-")
    return mark, label


def _begins(before: tuple[str, str], here: tuple[str, str]) -> bool:
    return here[0] == "B" or (here[0] == "I" and (before[0] == "O" or before[1] != here[1]))


def _ends(before: tuple[str, str], here: tuple[str, str]) -> bool:
    return before[0] != "O" and (here[0] in "BO" or before[1] != here[1])


def write_iob(folder: Path, keep: Job, said: Tags, true: Tags) -> None:
    """Right and given tag of each word, as conlleval.pl reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "-".join(str(value) for value in keep.values() if value is not None)
    with gzip.open(folder / f"{name}.iob.gz", "wt", encoding="utf-8") as out:
        for mine, gold in zip(said, true, strict=True):
            out.writelines(f"{a} {b}\n" for a, b in zip(gold, mine, strict=True))
            out.write("\n")


def summarise(rows: list[Job]) -> list[Job]:
    """Mean and standard deviation over seeds or folds, and whether the three counts agree."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((row["data"], row["recipe"], row["variant"]), []).append(row)
    out = []
    for (data, recipe, variant), found in groups.items():
        metric = SPANS if f"dev_{SPANS}" in found[0] else FIELD
        row = {"data": data, "recipe": recipe, "variant": variant, "metric": metric}
        for part in ("dev", "test"):
            values = [100 * r[f"{part}_{metric}"] for r in found]
            row[part] = round(statistics.mean(values), 2)
            row[f"{part}_sd"] = round(statistics.stdev(values), 2) if len(values) > 1 else None
        for other in ("conlleval_f1", "seqeval_f1"):
            if other in found[0]:
                row[f"as_{other}"] = all(abs(r[other] - r["test_f1"]) < 1e-9 for r in found)
        row["n"] = len(found)
        row["seconds"] = round(statistics.mean(r["seconds"] for r in found), 1)
        out.append(row)
    return out


def plans(asked: argparse.Namespace) -> list[Job]:
    """Every training: each set with each recipe, each seed or fold."""
    jobs = []
    for plan in trials.plans(asked, asked.sets.split(",")):
        seeds, folds = plan.get("seeds", asked.seeds), plan.get("folds", asked.folds)
        wiki = plan["data"].startswith("wikigold")
        runs = [(1, k) for k in range(folds)] if wiki else [(s + 1, None) for s in range(seeds)]
        own = {**trials.common(asked), "answers": asked.answers, **plan}
        jobs += [{**own, "seed": seed, "fold": fold} for seed, fold in runs]
    return jobs


def main() -> None:
    parser = trials.options(__doc__, "tagger-bilstm,tagger-bilstm-crf")
    parser.add_argument("--sets", default="ewt")
    parser.add_argument("--folds", type=int, default=FOLDS, help="of WikiGold that are run")
    parser.add_argument("--answers", default="", help="folder for the answers in two columns")
    parser.add_argument("--corpus", help="write the words of lm/ to this file, and stop")
    asked = trials.asked(parser)
    if asked.corpus:
        corpus(Path(asked.data), Path(asked.corpus))
        return
    record = Record(asked.record)
    for row in summarise(trials.ran(record, "tagging", trial, plans(asked), asked.workers)):
        record.line("tagging", **row)


if __name__ == "__main__":
    main()
