"""How good is what models write? One JSON line a training, then one a mean over its seeds.

    python bench/generation.py --data DATA --sets multi30k-de --recipes seq2seq-attention --seeds 3

Sets: multi30k-de and multi30k-fr (English captions, as they are written), the same with -lower
(both sides tokenised and lower-cased, as the papers have them), e2e (records of restaurants, all
references of a record together), e2e-delexicalised, and scitldr (abstracts). DATA is laid out as
seq2seq/<data set>/…. `--share` takes the first part of every file, for a quick look. BLEU is
sacrebleu's; `bleu_lower` is lower-cased with its 13a tokens, which of E2E is the official one.
`--variants FILE` tries other settings.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import trials
from record import Record
from trials import Job, Parts

import weft
from weft.run.data import Data, example_source
from weft.text.example import Example

CAPTIONS = {"task.metrics": ["bleu", "bleu-lower", "chrf"]}
TOKENS = {"task.metrics": ["bleu-tokenised", "chrf"]}
RECORDS = {
    "task.record": True, "task.grouped": True,
    "task.metrics": ["bleu-lower", "nist", "rouge-l", "cider", "restaurants"],
}  # fmt: skip
HIDDEN = {**RECORDS, "task.delexicalise": ["name", "near"]}
ABSTRACTS = {"task.metrics": ["rouge"], "train.metric": "rouge1"}
SCALE = {"rouge": 100, "slot": 100, "missing": 100, "wrong": 100, "added": 100, "faultless": 100}
KEPT = ("bleu", "chrf", "nist", "rouge", "cider", "slot", "missing", "wrong", "added", "faultless")


def captions(root: Path, language: str, lower: bool) -> Parts:
    folder = root / "seq2seq/multi30k"
    names = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
    data = Data(target=language)
    parts = {
        part: list(example_source(data, str(folder / f"{n}.en.gz"))()) for part, n in names.items()
    }
    if not lower:
        return parts
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    cut = Tokenizer13a()

    def plain(example: Example) -> Example:
        text, label = (cut(side).lower() for side in (example.text, str(example.label)))
        return replace(example, text=text, label=label)

    return {part: [plain(example) for example in found] for part, found in parts.items()}


def restaurants(root: Path) -> Parts:
    folder = root / "seq2seq/e2e_nlg"
    names = {"train": "trainset", "dev": "devset", "test": "testset_w_refs"}
    data = Data(text="mr", label="ref")
    return {p: list(example_source(data, str(folder / f"{n}.csv.gz"))()) for p, n in names.items()}


def abstracts(root: Path) -> Parts:
    folder = root / "seq2seq/scitldr_a"
    data = Data(text="source", label="target")
    parts = ("train", "dev", "test")
    return {part: list(example_source(data, str(folder / f"{part}.jsonl.gz"))()) for part in parts}


def loaded(name: str, root: Path) -> tuple[Parts, Job]:
    """The parts of a data set, and the settings that it asks for."""
    if name.startswith("multi30k"):
        lower = name.endswith("-lower")
        return captions(root, name.split("-")[1], lower), TOKENS if lower else CAPTIONS
    if name.startswith("e2e"):
        return restaurants(root), HIDDEN if name.endswith("delexicalised") else RECORDS
    if name == "scitldr":
        return abstracts(root), ABSTRACTS
    raise SystemExit(
        f"No data set '{name}': multi30k-LANGUAGE[-lower], e2e[-delexicalised], scitldr."
    )


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, ("data", "recipe", "variant", "seed"), trained)


def trained(job: Job, folder: Path) -> Job:
    parts, own = loaded(job["data"], Path(job["root"]))
    parts = {part: some(found, job["share"]) for part, found in parts.items()}
    config = trials.configured({**job, "changes": {**own, **job["changes"]}})
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    figures = {
        f"{part}_{name}": round(_scale(name) * figure.value, 3)
        for part, found in out.figures.items()
        for name, figure in found.items()
        if name.startswith(KEPT) and not name.endswith(("_precision", "_recall"))
    }
    seen = trials.epochs(folder / "run")
    speed = decoding(out.predictor, parts["test"])
    made = {"parameters": out.record["parameters"], "seconds": out.record["seconds"]}
    return {**figures, **seen, **made, "sentences_per_second": speed}


def some(examples: list[Example], share: float) -> list[Example]:
    return examples[: max(int(share * len(examples)), 1)]


def _scale(name: str) -> float:
    return next((scale for start, scale in SCALE.items() if name.startswith(start)), 1.0)


def decoding(predictor: Any, examples: list[Example]) -> float:
    """Sentences a second, of each source once, after one batch that is not counted."""
    sources = list({example.text: example for example in examples}.values())
    predictor(sources[:8])
    begin = time.perf_counter()
    predictor(sources)
    return round(len(sources) / (time.perf_counter() - begin), 1)


def main() -> None:
    parser = trials.options(__doc__, "seq2seq-attention")
    parser.add_argument("--sets", default="multi30k-de")
    parser.add_argument("--share", type=float, default=1.0, help="of every file that is read")
    asked = trials.asked(parser)
    record = Record(asked.record)
    planned = trials.plans(asked, asked.sets.split(","))
    jobs = [{"share": asked.share, **job} for job in trials.seeded(asked, planned)]
    rows = trials.ran(record, "generation", trial, jobs, asked.workers)
    for row in trials.means(rows, ("data", "recipe", "variant")):
        record.line("generation", **row)


if __name__ == "__main__":
    main()
