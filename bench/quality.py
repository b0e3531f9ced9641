"""How good is each recipe on public data? One JSON line a training, then one a mean.

    python bench/quality.py --data DATA --sets trec,sst2 --recipes cnn,bilstm --seeds 3 --workers 2

DATA is a folder laid out as <task>/<data set>/… (see docs/benchmarks.md). Settings are chosen on
the dev part, which is cut from train where there is none; `--variants FILE` tries several settings.
"""

import argparse
import json
import lzma
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from record import Record

import weft
from weft.run import Splits
from weft.run.split import assign_folds, in_holdout
from weft.text.example import Example
from weft.text.read import Columns, read
from weft.text.synthetic.corpora import generate_reviews


def trec(root: Path) -> dict[str, list[Example]]:
    columns = Columns(text=2, label=0)
    return {
        part: list(read(root / f"classification/trec/{part}.tsv", columns=columns))
        for part in ("train", "test")
    }


def banking77(root: Path) -> dict[str, list[Example]]:
    folder = root / "classification/banking77"
    return {part: list(read(folder / f"{part}.csv")) for part in ("train", "test")}


def one_file(name: str):
    def load(root: Path) -> dict[str, list[Example]]:
        columns = Columns(text=1, label=0)
        return {"train": list(read(root / f"classification/{name}/all.tsv", columns=columns))}

    return load


def sst(binary: bool):
    names = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}

    def load(root: Path) -> dict[str, list[Example]]:
        out = {}
        for part in ("train", "dev", "test"):
            path = root / f"classification/sst/{part}.txt"
            examples = list(read(path, phrases=part == "train"))
            if part == "train":  # the same phrase occurs in many trees
                examples = list({(e.text, e.label): e for e in examples}.values())
            if binary:
                examples = [
                    Example(e.text, names[e.label], e.id, e.file, e.line)
                    for e in examples
                    if e.label in names
                ]
            out[part] = examples
        return out

    return load


def imdb(root: Path) -> dict[str, list[Example]]:
    out = {}
    for part in ("train", "test"):
        with lzma.open(root / f"classification/imdb/{part}.tsv.xz", "rt", encoding="utf-8") as file:
            rows = (line.rstrip("\n").split("\t") for line in file)
            out[part] = [Example(row[3].replace("<br />", " "), row[0]) for row in rows]
    return out


def built_in(root: Path) -> dict[str, list[Example]]:
    return generate_reviews()


SETS = {
    "reviews": built_in,
    "trec": trec,
    "banking77": banking77,
    "mr": one_file("mr"),
    "subj": one_file("subj"),
    "sst2": sst(True),
    "sst5": sst(False),
    "imdb": imdb,
}


def splits(name: str, root: Path, fold: int | None, share: float) -> Splits:
    """The parts of a data set; dev is cut from train by text where there is none."""

    parts = SETS[name](root)
    if fold is not None:
        everything = parts["train"]
        owner = assign_folds(everything, 10)
        parts = {
            "train": [e for e, k in zip(everything, owner, strict=True) if k != fold],
            "test": [e for e, k in zip(everything, owner, strict=True) if k == fold],
        }
    if "dev" not in parts:
        parts["dev"] = [e for e in parts["train"] if in_holdout(e.text, share)]
        parts["train"] = [e for e in parts["train"] if not in_holdout(e.text, share)]

    def source(part: str):
        def examples() -> Iterator[Example]:
            return iter(parts[part])

        return examples

    return Splits(source("train"), source("dev"), source("test"))


def trial(job: dict) -> dict:
    folder = tempfile.mkdtemp(prefix="weft-quality-")
    try:
        config = weft.recipe(job["recipe"]).with_values(
            {"train.seed": job["seed"], "train.threads": job["threads"], **job["changes"]}, "bench"
        )
        parts = splits(job["data"], Path(job["root"]), job["fold"], job["share"])
        out = weft.train(
            config, folder, splits=parts, quiet=True, overwrite=True, device=job["device"]
        )
        figures = {f"{part}_accuracy": f["accuracy"].value for part, f in out.figures.items()}
        keep = ("data", "recipe", "variant", "seed", "fold")
        return {k: job[k] for k in keep} | figures | {"seconds": out.record["seconds"]}
    except Exception as error:  # one bad trial must not lose the others
        return {"data": job["data"], "recipe": job["recipe"], "error": repr(error)[:500]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def summarise(rows: list[dict]) -> list[dict]:
    """Mean and standard deviation over seeds or folds."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((row["data"], row["recipe"], row["variant"]), []).append(row)
    out = []
    for (data, recipe, variant), found in groups.items():
        row = {"data": data, "recipe": recipe, "variant": variant}
        for part in ("dev_accuracy", "test_accuracy"):
            values = [100 * r[part] for r in found if part in r]
            if values:
                row[part] = round(statistics.mean(values), 2)
                row[part + "_sd"] = round(statistics.stdev(values), 2) if len(values) > 1 else None
        row["n"] = len(found)
        row["seconds"] = round(statistics.mean(r["seconds"] for r in found), 1)
        out.append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"), required=False)
    parser.add_argument("--sets", default="trec")
    parser.add_argument("--recipes", default="tfidf,fasttext,cnn,bilstm-attention,transformer")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=10, help="of MR and Subj that are run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    parser.add_argument("--variants", help="JSON: {name: {recipe: …, data: …, changes: {…}}}")
    arguments = parser.parse_args()
    if not arguments.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    jobs = []
    common = {
        "root": arguments.data,
        "device": arguments.device,
        "share": arguments.share,
        "threads": arguments.threads,
    }
    if arguments.variants:
        planned = json.loads(Path(arguments.variants).read_text("utf-8"))
    else:
        planned = [
            {"variant": "recipe", "recipe": recipe, "data": data, "changes": {}}
            for data in arguments.sets.split(",")
            for recipe in arguments.recipes.split(",")
        ]
    for plan in planned:
        if plan["data"] in ("mr", "subj"):
            for fold in range(plan.get("folds", arguments.folds)):
                jobs.append({**plan, **common, "seed": 1, "fold": fold})
        else:
            for seed in range(1, plan.get("seeds", arguments.seeds) + 1):
                jobs.append({**plan, **common, "seed": seed, "fold": None})
    record = Record(arguments.record)
    rows = []
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for row in pool.imap_unordered(trial, jobs):
            rows.append(row)
            record.line("trial", **row)
    for row in summarise(rows):
        record.line("quality", **row)


if __name__ == "__main__":
    main()
