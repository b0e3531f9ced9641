"""How good are parsers and networks over trees? One JSON line a training, then one a mean of seeds.

    python bench/parsing.py --data DATA --recipes parser,constituency,rntn,tree-lstm --seeds 3

Dependencies are those of UD English-EWT, constituents the parse bits beside EWT's roles, sentiment
that of the Stanford treebank; DATA is laid out as <task>/<data set>/…. A recipe whose name ends in
`+vectors` also has those of `--vectors FILE`, frozen, beside the rows it learns; with `+tuned` the
rows it learns begin as those. `--variants FILE` tries other settings: plans/recursive.json compares
greedy merging with the chart parser. `--limit N` trains on the first N sentences only.
"""

from pathlib import Path

import trials
from record import Record
from tagging import given, treebank
from trials import Job, Parts

import weft
from weft.text.read import read
from weft.vectors.store import Vectors

FIGURES = {
    "parse": ("las", "uas", "clas", "upos", "xpos", "feats"),
    "constituency": ("f1", "unlabelled_f1", "precision", "recall", "complete", "tag"),
    "nodes": ("root", "root_binary", "nodes", "nodes_binary"),
}


def brackets(root: Path) -> Parts:
    folder = root / "srl/ewt_propbank"
    return {part: list(read(folder / f"{part}.conll.gz")) for part in ("train", "dev", "test")}


def sentiment(root: Path) -> Parts:
    folder = root / "classification/sst"
    return {part: list(read(folder / f"{part}.txt")) for part in ("train", "dev", "test")}


SETS = {
    "parse": treebank("ud_english_ewt", "en_ewt"),
    "constituency": brackets,
    "nodes": sentiment,
}


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, ("recipe", "variant", "seed"), trained)


def trained(job: Job, folder: Path) -> Job:
    name, _, vectors = job["recipe"].partition("+")
    config = trials.configured(job, name)
    kind = config["task"]["kind"]
    parts = SETS[kind](Path(job["root"]))
    if job["limit"]:
        parts["train"] = parts["train"][: job["limit"]]
    if vectors == "tuned":
        width = Vectors.load(job["vectors"]).width
        start = {"embedder.vectors": job["vectors"], "embedder.width": width}
        config = config.with_values(start, "bench")
    elif vectors:
        more = given(config.sections, job["vectors"], parts, folder / "tokenizer.json")
        config = config.with_values(more, "bench")
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    figures = {
        f"{part}_{metric}": round(100 * figure[metric].value, 2)
        for part, figure in out.figures.items()
        for metric in FIGURES[kind]
        if metric in figure
    }
    seen = trials.epochs(folder / "run")
    return {"task": kind, **figures, **seen, "seconds": out.record["seconds"]}


def main() -> None:
    recipes = "parser,parser-tagger,constituency,rntn,tree-lstm"
    parser = trials.options(__doc__, recipes)
    parser.add_argument("--limit", type=int, default=0, help="training sentences; 0: all")
    asked = trials.asked(parser)
    record = Record(asked.record)
    plans = [{**plan, "limit": asked.limit} for plan in trials.plans(asked)]
    jobs = trials.seeded(asked, plans)
    rows = trials.ran(record, "parsing", trial, jobs, asked.workers)
    for row in trials.means(rows, ("recipe", "variant", "task")):
        record.line("parsing", **row)


if __name__ == "__main__":
    main()
