"""What scripts that train many models share: their options, their plans, a pool, and means.

A plan is {variant, recipe, changes, …}, from the recipes asked for or from `--variants FILE`; a
trial is one plan with one seed, and answers with one JSON line.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from record import Record

import weft
from weft.config import Config
from weft.run import Splits
from weft.text.example import Example

Job = dict[str, Any]
Parts = dict[str, list[Example]]


def options(description: str | None, recipes: str) -> argparse.ArgumentParser:
    """The options that these scripts share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--recipes", default=recipes)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--vectors", default="", help="for names that end in +vectors")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", default="", help="folder for the runs")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    parser.add_argument("--variants", help="JSON: [{variant, recipe, changes, seeds, …}]")
    return parser


def asked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was asked for; without the data there is nothing to do."""
    found = parser.parse_args()
    if not found.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return found


def plans(given: argparse.Namespace, sets: Sequence[str] = ("",)) -> list[Job]:
    """Those of the variants file, or each recipe on each data set as it is."""
    if given.variants:
        return json.loads(Path(given.variants).read_text("utf-8"))
    return [
        {"variant": "recipe", "recipe": recipe, "changes": {}} | ({"data": name} if name else {})
        for name in sets
        for recipe in given.recipes.split(",")
    ]


def common(given: argparse.Namespace) -> Job:
    """What every job of a script has."""
    names = ("device", "threads", "vectors", "keep")
    return {"root": given.data} | {name: getattr(given, name) for name in names}


def seeded(given: argparse.Namespace, planned: Sequence[Job]) -> list[Job]:
    """Every plan with each of its seeds."""
    return [
        {**common(given), **plan, "seed": seed + 1}
        for plan in planned
        for seed in range(plan.get("seeds", given.seeds))
    ]


def splits(parts: Parts) -> Splits:
    """Parts held in memory, for `weft.train`."""

    def source(part: str) -> Callable[[], Iterator[Example]]:
        return lambda: iter(parts[part])

    return Splits(source("train"), source("dev"), source("test"))


def configured(job: Job, recipe: str = "") -> Config:
    """The recipe of a job with its seed, threads and changes."""
    own = {"train.seed": job["seed"], "train.threads": job["threads"]}
    return weft.recipe(recipe or job["recipe"]).with_values({**own, **job["changes"]}, "bench")


def attempt(job: Job, names: Sequence[str], train: Callable[[Job, Path], Job]) -> Job:
    """What training once leads to, beside what it was; an error is a line like another."""
    keep = {key: job[key] for key in names}
    folder = Path(tempfile.mkdtemp(prefix="weft-trial-"))
    try:
        found = train(job, folder)
        if job.get("keep") and (folder / "run").is_dir():  # a peer leaves nothing
            name = "-".join(str(value) for value in keep.values() if value is not None)
            shutil.copytree(folder / "run", Path(job["keep"]) / name, dirs_exist_ok=True)
        return {**keep, **found}
    except Exception as error:  # one bad trial must not lose the others
        return {**keep, "error": repr(error)[:500]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def epochs(run: Path) -> Job:
    """How many evaluations a run had, and which was the best."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    seen = [event for event in map(json.loads, lines) if event["event"] == "evaluation"]
    return {"epochs": len(seen), "best": max(i for i, e in enumerate(seen, 1) if e["best"])}


def ran(
    record: Record, question: str, trial: Callable[[Job], Job], jobs: Sequence[Job], workers: int
) -> list[Job]:
    """The lines of all trials, in processes of their own."""
    rows = []
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(trial, jobs, chunksize=1):
            rows.append(row)
            record.line(f"{question} trial", **row)
    return rows


def means(rows: Sequence[Job], names: Sequence[str], digits: int = 2) -> list[Job]:
    """Mean and standard deviation of every number of dev and test over the seeds."""
    groups: dict[tuple[Any, ...], list[Job]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
    out = []
    for values, found in groups.items():
        mean: Job = dict(zip(names, values, strict=True))
        for key in found[0]:
            if key.startswith(("dev_", "test_")):
                numbers = [row[key] for row in found]
                mean[key] = round(statistics.mean(numbers), digits)
                if len(numbers) > 1:
                    mean[f"{key}_sd"] = round(statistics.stdev(numbers), digits)
        mean["n"] = len(found)
        for key in ("seconds", "sentences_per_second"):
            if key in found[0]:
                mean[key] = round(statistics.mean(row[key] for row in found), 1)
        out.append(mean)
    return out
