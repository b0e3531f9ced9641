"""What does a pre-trained network give? One JSON line a training, then one a mean over its seeds.

    python bench/finetune.py --data DATA --pretrained MODEL --sets trec,cola --seeds 3
    python bench/finetune.py --data DATA --pretrained MODEL --sets trec --examples 100,1000,0
    python bench/finetune.py --data DATA --pretrained MODEL --sets rte --seeds 10 --peer

DATA is laid out as <task>/<data set>/… (see docs/benchmarks.md), MODEL is a checkpoint. Each set is
learned by its recipe with the changes that CHANGES or its plan names (`--variants`, of which
`plans/` has some: MiniLM beside its peer, its rates and pools, pairs by precision, ELMo and
the same without). `--scratch` trains the same architecture from random weights, `--peer` a plain
loop of `transformers` with the same settings, seeds and batches; `--also` trains Weft beside
either. With `--examples` only so many are learned from, drawn by the seed, 0 for all.
`--share 0.01` is a dry run on a hundredth of every part.
"""

import argparse
import json
import random
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import quality
import tagging
import trials
from record import Record
from trials import Job, Parts

import weft
from weft.config import Config, with_pretrained
from weft.predict.evaluate import evaluate
from weft.run.collapse import describe_collapses, loss_never_decreased, not_above_baseline
from weft.run.pretrained import resolve
from weft.run.split import in_holdout
from weft.text.example import Example
from weft.text.read import Columns, read

NAMES = ("data", "variant", "system", "start", "examples", "seed")
DEV = 0.1  # of the training part, where there is no dev part
RTE = ("rte1_dev", "rte1_test", "rte2_dev", "rte2_test", "rte3_dev")


def trec(root: Path) -> Parts:
    return cut(quality.trec(root))


def banking77(root: Path) -> Parts:
    return cut(quality.banking77(root))


def sentences(root: Path) -> Parts:
    """SST-2 without its phrases."""
    parts = quality.sst(True)(root)
    folder, names = root / "classification/sst", {"0": "negative", "1": "negative"}
    names |= {"3": "positive", "4": "positive"}
    whole = [e for e in read(folder / "train.txt") if str(e.label) in names]
    train = [Example(e.text, names[str(e.label)], file=e.file, line=e.line) for e in whole]
    return {**parts, "train": train}


def cola(root: Path) -> Parts:
    """Both dev parts together, as GLUE has them, are what is measured: the test part is secret."""

    def rows(name: str) -> list[Example]:
        path = root / f"classification/cola/{name}.tsv"
        lines = (line.rstrip("\n").split("\t") for line in open(path, encoding="utf-8"))
        return [Example(row[3], row[1], file=str(path), line=i) for i, row in enumerate(lines, 1)]

    test = [*rows("in_domain_dev"), *rows("out_of_domain_dev")]
    return cut({"train": rows("in_domain_train"), "test": test})


def stsb(root: Path) -> Parts:
    columns = Columns(text=0, text_pair=1, label=2, requires_pair=True)
    folder = root / "pairs/stsb"
    parts = ("train", "dev", "test")
    return {part: list(read(folder / f"stsb-en-{part}.csv", columns=columns)) for part in parts}


def sick(root: Path) -> Parts:
    columns = Columns(text="sentence_A", text_pair="sentence_B", label="entailment_judgment")
    files = {"train": "train", "dev": "trial", "test": "test"}
    folder = root / "pairs/sick"
    return {part: list(read(folder / f"{n}.tsv", columns=columns)) for part, n in files.items()}


def lingnli(root: Path) -> Parts:
    """Learned on LingNLI, measured on SNLI, which is another kind of text."""
    columns = Columns(text="premise", text_pair="hypothesis", label="label")
    files = {
        "train": "lingnli/train.jsonl.gz",
        "dev": "lingnli/val.jsonl.gz",
        "test": "snli_devtest/test.tsv.gz",
        "snli_dev": "snli_devtest/dev.tsv.gz",
    }
    return {part: list(read(root / "pairs" / n, columns=columns)) for part, n in files.items()}


def nli(root: Path) -> Parts:
    """LingNLI with all there is of SNLI, to learn from before another task; LingNLI is measured."""
    parts = lingnli(root)
    train = [*parts["train"], *parts["test"], *parts["snli_dev"]]
    return {"train": train, "dev": parts["dev"], "test": parts["dev"]}


def rte(root: Path) -> Parts:
    """The test part of RTE-3; everything else is learned from, as GLUE does."""
    columns = Columns(text="text", text_pair="hypothesis", label="label")
    folder = root / "pairs/rte"
    train = [e for name in RTE for e in read(folder / f"{name}.tsv", columns=columns)]
    return cut({"train": train, "test": list(read(folder / "rte3_test.tsv", columns=columns))})


def squad(root: Path) -> Parts:
    """Questions about 48 articles of Wikipedia, parted by article: the official dev set, cut."""
    files = {"train": "train", "dev": "valid", "test": "test"}
    folder = root / "qa/squad_dev_resplit"
    return {part: list(read(folder / f"{n}.json.gz")) for part, n in files.items()}


def cut(parts: Parts) -> Parts:
    """A dev part cut from train by text."""
    train = parts["train"]
    kept = [e for e in train if not in_holdout(e.text, DEV)]
    return {**parts, "train": kept, "dev": [e for e in train if in_holdout(e.text, DEV)]}


SETS: dict[str, tuple[Callable[[Path], Parts], str, str]] = {  # parts, recipe, figure
    "sst2": (quality.sst(True), "bert", "accuracy"),
    "sst2-sentences": (sentences, "bert", "accuracy"),
    "trec": (trec, "bert", "accuracy"),
    "cola": (cola, "bert", "matthews"),
    "stsb": (stsb, "bert-pair", "spearman"),
    "sick": (sick, "bert-pair", "accuracy"),
    "lingnli": (lingnli, "bert-pair", "accuracy"),
    "nli": (nli, "bert-pair", "accuracy"),
    "banking77": (banking77, "bert", "accuracy"),
    "rte": (rte, "bert-pair", "accuracy"),
    "ewt": (tagging.SETS["ewt"], "tagger-bert", "upos"),
    "squad": (squad, "bert-span", "f1"),
}


# What a set needs beside its recipe: 77 labels, or few examples, are not learned in three epochs.
LONGER = {"train.epochs": 10, "train.learning_rate": 1e-4}
CHANGES = {"banking77": LONGER, "trec": LONGER}


def loaded(job: Job) -> Parts:
    """The parts of a set; of train so many as are asked for, drawn by the seed."""
    parts = SETS[job["data"]][0](Path(job["root"]))
    if job["share"] < 1:
        few = {part: max(40, int(len(found) * job["share"])) for part, found in parts.items()}
        parts = {
            part: random.Random(0).sample(found, min(few[part], len(found)))
            for part, found in parts.items()
        }
        if SETS[job["data"]][2] in ("accuracy", "matthews"):  # labels that so few do not have
            known = {e.label for e in parts["train"]}
            parts = {p: [e for e in found if e.label in known] for p, found in parts.items()}
    if job["examples"]:
        drawn = random.Random(job["seed"])
        count = min(job["examples"], len(parts["train"]))
        some = drawn.sample(parts["train"], count)
        if SETS[job["data"]][2] in ("accuracy", "matthews"):
            some = with_all_labels(some, parts["train"], drawn)
        parts = {**parts, "train": some}
    return parts


def with_all_labels(
    some: list[Example], train: list[Example], draw: random.Random
) -> list[Example]:
    """Examples of which one for each label that none of them has makes way for one that has it."""
    have = Counter(example.label for example in some)
    for label in sorted({str(e.label) for e in train} - {str(known) for known in have}):
        often = have.most_common(1)[0][0]
        at = draw.choice([i for i, e in enumerate(some) if e.label == often])
        some[at] = draw.choice([e for e in train if str(e.label) == label])
        have[often] -= 1
        have[some[at].label] += 1
    return some


def configured(job: Job) -> Config:
    """The recipe of a set from its checkpoint, or without it.

    Without, a BERT has the same sizes and random weights, and words that an ELMo told of are looked
    up in a table; a recipe that needs no checkpoint is what it is.
    """
    _, recipe, metric = SETS[job["data"]]
    own = {"train.seed": job["seed"], "train.threads": job["threads"], "train.metric": metric}
    if metric == "spearman":
        own["task.kind"] = "pair-score"
    base = weft.recipe(job.get("recipe") or recipe)
    config = base.with_values({**own, **job["changes"]}, "bench")
    wants = base["recipe"].get("pretrained")
    if job["start"] == "scratch" and wants == "elmo":
        return config.with_values({"embedder": untold(config["embedder"])}, "--scratch")
    if job["start"] == "pretrained" or wants:
        config = with_pretrained(config, job["pretrained"])
    if job["start"] == "scratch" and wants:
        config = resolve(config).with_values({"embedder.model": ""}, "--scratch")
    return config


def untold(embedder: Any) -> Any:
    """Embedders without the pre-trained one; a table of words where none is left."""
    several = embedder if isinstance(embedder, list) else [embedder]
    kept = [one for one in several if one["kind"] != "pretrained"]
    return kept or {"kind": "lookup", "width": 100, "dropout": several[0]["dropout"]}


def trial(job: Job) -> Job:
    """Train once and measure; the line tells what the recipe was changed by."""
    told = {"changes": job["changes"]} if job["changes"] else {}
    return {**trials.attempt(job, NAMES, trained), **told}


def trained(job: Job, folder: Path) -> Job:
    parts = loaded(job)
    if job["system"] == "transformers":
        import finetune_peer

        return finetune_peer.trained(job, configured(job), parts, SETS[job["data"]][2])
    config, metric = configured(job), SETS[job["data"]][2]
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    found = {part: figures[metric].value for part, figures in out.figures.items()}
    for part in parts.keys() - {"train", "dev", "test"}:
        found[part] = evaluate(out.predictor, parts[part]).compute(resamples=0)[metric].value
    figures = {f"dev_{metric}": found["dev"]}
    figures |= {f"test_{metric}": found["test"]}
    figures |= {f"test_{part}_{metric}": found[part] for part in found.keys() - {"dev", "test"}}
    if "em" in out.figures["test"]:
        figures["test_em"] = out.figures["test"]["em"].value
    return {
        **{key: round(100 * value, 3) for key, value in figures.items()},
        "n": len(parts["train"]),
        "seconds": round(out.record["seconds"], 1),
        "collapsed": fallen(metric, parts["test"], found["test"])
        or loss_never_decreased(out.record),
    }


def fallen(metric: str, test: list[Example], value: float) -> str:
    """Why a training has collapsed by its figure on test; nothing where it has not."""
    pairs = [(example.label, None) for example in test]
    return not_above_baseline(pairs, metric, True, value, "test")


def plans(asked: argparse.Namespace) -> list[Job]:
    """Every training: each set or variant, each system, each number of examples, each seed."""
    jobs = []
    for plan in planned(asked):
        for system, start in systems(asked, plan):
            for examples in plan.get("examples", numbers(asked.examples)):
                own = {**trials.common(asked), "pretrained": asked.pretrained}
                own |= {"share": asked.share, "changes": {}, **plan}
                own |= {"system": system, "start": start, "examples": examples}
                own["device"] = asked.device
                first = plan.get("first", 1)
                seeds = range(first, first + plan.get("seeds", asked.seeds))
                jobs += [{**own, "seed": seed} for seed in seeds]
    # The longest first, so that none of them is left to the end alone.
    return sorted(jobs, key=lambda job: -job.get("weight", 1))


def planned(asked: argparse.Namespace) -> list[Job]:
    if asked.variants:
        return json.loads(Path(asked.variants).read_text("utf-8"))
    changes = json.loads(asked.changes)
    return [
        {"variant": "recipe", "data": name, "changes": {**CHANGES.get(name, {}), **changes}}
        for name in asked.sets.split(",")
    ]


def systems(asked: argparse.Namespace, plan: Job) -> list[tuple[str, str]]:
    """(system, start) of a plan: as it says, or as the options do."""
    if "systems" in plan:
        return [(one["system"], one["start"]) for one in plan["systems"]]
    found = [("transformers", "pretrained")] if asked.peer else []
    found += [("weft", "scratch")] if asked.scratch else []
    return found + ([("weft", "pretrained")] if asked.also or not found else [])


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def means(rows: list[Job]) -> list[Job]:
    """Means over the seeds, with and without those that collapsed."""
    groups: dict[tuple, list[Job]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault(tuple(row[name] for name in NAMES[:-1]), []).append(row)
    out = []
    for values, found in groups.items():
        mean: Job = dict(zip(NAMES, values, strict=False)) | {"seeds": len(found)}
        metric = SETS[mean["data"]][2]
        for key in sorted(key for key in found[0] if key.endswith((f"_{metric}", "_em"))):
            mean[key], mean[f"{key}_sd"] = _spread([row[key] for row in found])
        bad = [row["seed"] for row in found if row["collapsed"]]
        if bad:
            mean["collapsed"] = describe_collapses(sorted(bad), len(found), "restarts")
            kept = [row[f"test_{metric}"] for row in found if not row["collapsed"]]
            if kept:
                mean["kept"], mean["kept_sd"] = _spread(kept)
        mean["metric"] = metric
        mean["seconds"] = round(statistics.mean(row["seconds"] for row in found), 1)
        mean["values"] = [row[f"test_{metric}"] for row in found]
        out.append(mean)
    return out


def _spread(values: list[float]) -> tuple[float, float | None]:
    sd = round(statistics.stdev(values), 2) if len(values) > 1 else None
    return round(statistics.mean(values), 2), sd


def main() -> None:
    parser = trials.options(__doc__, "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--pretrained", required=True, help="folder of a checkpoint")
    parser.add_argument("--sets", default="trec", help=", ".join(SETS))
    parser.add_argument("--examples", default="0", help="to learn from, for learning curves")
    parser.add_argument("--changes", default="{}", help="JSON: settings for all sets")
    parser.add_argument("--share", type=float, default=1.0, help="of every part, for dry runs")
    parser.add_argument("--scratch", action="store_true", help="from random weights")
    parser.add_argument("--peer", action="store_true", help="transformers in place of Weft")
    parser.add_argument("--also", action="store_true", help="Weft beside --peer or --scratch")
    asked = trials.asked(parser)
    record = Record(asked.record)
    rows = trials.ran(record, "fine-tuning", trial, plans(asked), asked.workers)
    for row in means(rows):
        record.line("fine-tuning", **row)


if __name__ == "__main__":
    main()
