"""How good are parsers and networks over trees? One JSON line a training, then one a mean of seeds.

    python bench/parsing.py --data DATA --recipes parser,constituency,rntn,tree-lstm --seeds 3

Dependencies are those of UD English-EWT, constituents the parse bits beside EWT's roles, sentiment
that of the Stanford treebank; DATA is laid out as <task>/<data set>/…. A recipe whose name ends in
`+vectors` also has those of `--vectors FILE`, frozen, beside the rows it learns; with `+tuned` the
rows it learns begin as those. `--variants FILE` tries other settings.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import Record
from tagging import Job, Parts, given, splits, treebank

import weft
from weft.text.read import read
from weft.vectors.store import Vectors

FIGURES = {
    "parse": ("las", "uas", "clas", "upos", "xpos", "feats"),
    "constituency": ("f1", "precision", "recall", "complete", "tag"),
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
    """Train once and measure; an error is a line like another."""
    keep = {key: job[key] for key in ("recipe", "variant", "seed")}
    folder = Path(tempfile.mkdtemp(prefix="weft-parsing-"))
    try:
        name, _, vectors = job["recipe"].partition("+")
        changes = {"train.seed": job["seed"], "train.threads": job["threads"], **job["changes"]}
        config = weft.recipe(name).with_values(changes, "bench")
        kind = config["task"]["kind"]
        parts = SETS[kind](Path(job["root"]))
        if vectors == "tuned":
            width = Vectors.load(job["vectors"]).width
            start = {"embedder.vectors": job["vectors"], "embedder.width": width}
            config = config.with_values(start, "bench")
        elif vectors:
            more = given(config.sections, job["vectors"], parts, folder / "tokenizer.json")
            config = config.with_values(more, "bench")
        out = weft.train(
            config, folder / "run", splits=splits(parts), quiet=True, device=job["device"]
        )
        if job["keep"]:
            name = f"{job['recipe']}-{job['variant']}-{job['seed']}"
            shutil.copytree(folder / "run", Path(job["keep"]) / name)
        figures = {
            f"{part}_{metric}": round(100 * figure[metric].value, 2)
            for part, figure in out.figures.items()
            for metric in FIGURES[kind]
            if metric in figure
        }
        lines = (folder / "run/metrics.jsonl").read_text("utf-8").splitlines()
        seen = [e for e in map(json.loads, lines) if e["event"] == "evaluation"]
        best = max(i for i, e in enumerate(seen, 1) if e["best"])
        more = {"epochs": len(seen), "best": best, "seconds": out.record["seconds"]}
        return {**keep, "task": kind, **figures, **more}
    except Exception as error:  # one bad trial must not lose the others
        return {**keep, "error": repr(error)[:500]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def summarise(rows: list[Job]) -> list[Job]:
    """Mean and standard deviation over seeds."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((row["recipe"], row["variant"]), []).append(row)
    out = []
    for (recipe, variant), found in groups.items():
        row: Job = {"recipe": recipe, "variant": variant, "task": found[0]["task"]}
        for key in found[0]:
            if key.startswith(("dev_", "test_")):
                values = [r[key] for r in found]
                row[key] = round(statistics.mean(values), 2)
                if len(values) > 1:
                    row[f"{key}_sd"] = round(statistics.stdev(values), 2)
        row["n"] = len(found)
        row["seconds"] = round(statistics.mean(r["seconds"] for r in found), 1)
        out.append(row)
    return out


def plans(asked: argparse.Namespace) -> list[Job]:
    """Every training: each recipe with each seed."""
    planned: list[Any]
    if asked.variants:
        planned = json.loads(Path(asked.variants).read_text("utf-8"))
    else:
        planned = [
            {"variant": "recipe", "recipe": recipe, "changes": {}}
            for recipe in asked.recipes.split(",")
        ]
    common = {
        "root": asked.data, "device": asked.device, "threads": asked.threads,
        "vectors": asked.vectors, "keep": asked.keep,
    }  # fmt: skip
    return [
        {**common, **plan, "seed": seed + 1}
        for plan in planned
        for seed in range(plan.get("seeds", asked.seeds))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--recipes", default="parser,parser-tagger,constituency,rntn,tree-lstm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--vectors", default="", help="for recipes whose name ends in +vectors")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", default="", help="folder for the trained models")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    parser.add_argument("--variants", help="JSON: [{variant, recipe, changes, seeds}]")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    record = Record(asked.record)
    rows = []
    with multiprocessing.get_context("spawn").Pool(asked.workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(trial, plans(asked), chunksize=1):
            rows.append(row)
            record.line("parsing trial", **row)
    for row in summarise(rows):
        record.line("parsing", **row)


if __name__ == "__main__":
    main()
