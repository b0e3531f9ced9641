"""Labels in a tree against flat ones: TREC's coarse > fine classes, and generated requests.

    python bench/hierarchy.py --data DATA --device cuda --workers 16 --record hierarchy

One softmax over the labels is trained flat, and with `task.ancestor_weight` 0.1, 0.3 and 1, which
add the loss of the nodes above a label; answers are paths, so both levels are of the same answer.
Every recipe and seed is a process. One JSON line a run, then one a recipe and set: accuracy of each
level, and the gain over flat labels with the 95 % interval of a paired bootstrap over the test
texts, scores averaged over seeds. A weight of 0 must give the answers of the flat model: one run
checks that. `trec/4` has a quarter of the training questions. `--limit N` takes N training texts.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import trials
from record import Record
from trials import Job, Parts

import weft
from weft.run.split import in_holdout
from weft.text.example import Example, sentence_label
from weft.text.label_tree import SEPARATOR, prefixes
from weft.text.read import Columns, read
from weft.text.synthetic.intents import DOMAINS, generate_intents

DEV_SHARE = 0.1
RESAMPLES = 2000
# By set: the recipes that learn it.
RECIPES = {
    "trec": ("cnn", "bilstm-attention", "bag"),
    "trec/4": ("cnn", "bag"),
    "requests": ("cnn", "bag"),
}
WEIGHTS = (0.1, 0.3, 1.0)


def trec(root: Path, share: float = 1.0) -> Parts:
    """TREC with labels such as LOC > city; those of a share of train, where it is below 1."""
    columns = Columns(text=2, label=1)
    found = {
        part: [
            replace(e, label=str(e.label).replace(":", SEPARATOR))
            for e in read(root / f"classification/trec/{part}.tsv", columns=columns)
        ]
        for part in ("train", "test")
    }
    everything = found["train"]
    train = [e for e in everything if not in_holdout(e.text, DEV_SHARE)]
    if share < 1:
        train = [e for e in train if in_holdout(f"share {e.text}", share)]
    parts = {"train": train, "dev": [e for e in everything if in_holdout(e.text, DEV_SHARE)],
             "test": found["test"]}  # fmt: skip
    return _known(parts)


def requests(root: Path) -> Parts:
    """Generated requests, labelled domain > intent."""
    return {
        part: [Example(e.text, _path(str(sentence_label(e.label)))) for e in found]
        for part, found in generate_intents().items()
    }


def _path(intent: str) -> str:
    return f"{DOMAINS[intent]}{SEPARATOR}{intent}"


def _known(parts: Parts) -> Parts:
    """The parts without labels that training never sees."""
    labels = {e.label for e in parts["train"]}
    return {part: [e for e in found if e.label in labels] for part, found in parts.items()}


SETS = {"trec": trec, "trec/4": lambda root: trec(root, 0.25), "requests": requests}


def train(job: Job) -> Job:
    """Train once; return, of each test text, how many levels of the answer are right."""
    keep = {key: job[key] for key in ("data", "recipe", "weight", "seed")}
    folder = Path(tempfile.mkdtemp(prefix="weft-hierarchy-"))
    try:
        parts = SETS[job["data"]](Path(job["root"]))
        if job["limit"]:
            parts = _known({**parts, "train": parts["train"][: job["limit"]]})
        found = weft.train(
            trials.configured(job), folder, splits=trials.splits(parts), quiet=True, overwrite=True,
            device=job["device"],
        )  # fmt: skip
        out: Job = {}
        for part in ("dev", "test"):
            answers = [str(a.value) for a in found.predictor.stream([e.text for e in parts[part]])]
            gold = [str(e.label) for e in parts[part]]
            levels = [_levels(a, g) for a, g in zip(answers, gold, strict=True)]
            for level in (1, 2):
                share = statistics.mean(float(right >= level) for right in levels)
                out[f"{part}_level_{level}"] = round(100 * share, 3)
            if part == "test":
                out |= {"right": levels, "answers": answers}
        return {**keep, **out, "seconds": found.record["seconds"]}
    except Exception as error:  # one bad run must not lose the others
        return {**keep, "error": repr(error)[:500]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _levels(answer: str, gold: str) -> int:
    """The number of levels on which an answer is right."""
    pairs = zip(prefixes(answer, SEPARATOR), prefixes(gold, SEPARATOR), strict=False)
    return sum(a == b for a, b in pairs)


def gain(mine: list[Job], flat: list[Job], level: int) -> list[float]:
    """The gain over the flat model at a level, and its interval over test texts."""
    rights = [
        np.mean([np.array(row["right"]) >= level for row in rows], axis=0) for rows in (mine, flat)
    ]
    difference = 100 * (rights[0] - rights[1])  # (n,)
    draws = np.random.default_rng(0).integers(0, len(difference), (RESAMPLES, len(difference)))
    low, high = np.quantile(difference[draws].mean(1), [0.025, 0.975])
    return [round(float(x), 2) for x in (difference.mean(), low, high)]


def main() -> None:
    asked = options()
    record, begin = Record(asked.record), time.perf_counter()
    own = {"root": asked.data, "device": asked.device, "threads": asked.threads}
    usual = {"train.metric": "accuracy"} | ({"train.epochs": asked.epochs} if asked.epochs else {})
    jobs = []
    for name in asked.sets.split(","):
        for recipe in RECIPES[name]:
            if asked.recipes and recipe not in asked.recipes.split(","):
                continue
            for weight in ("flat", *WEIGHTS, 0.0):
                ways = {"task.hierarchy": weight != "flat"}
                ways |= {"task.ancestor_weight": weight} if weight not in ("flat", 0.0) else {}
                seeds = 1 if weight == 0.0 else asked.seeds  # equal to flat, which one run checks
                jobs += [
                    {**own, "limit": asked.limit, "data": name, "recipe": recipe, "weight": weight,
                     "seed": seed, "changes": {**usual, **ways}}
                    for seed in range(1, seeds + 1)
                ]  # fmt: skip
    rows: list[Job] = []
    with multiprocessing.get_context("spawn").Pool(asked.workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(train, jobs, chunksize=1):
            rows.append(row)
            shown = {key: row[key] for key in row if key not in ("right", "answers")}
            record.line("hierarchy trial", **shown)
    groups: dict[tuple[str, str], dict[object, list[Job]]] = {}
    for row in rows:
        if "error" not in row:
            own_group = groups.setdefault((row["data"], row["recipe"]), {})
            own_group.setdefault(row["weight"], []).append(row)
    for (name, recipe), by_weight in groups.items():
        flat = by_weight.get("flat", [])
        for weight in ("flat", *WEIGHTS):
            mine = by_weight.get(weight, [])
            if not mine or not flat:
                continue
            line: Job = {"data": name, "recipe": recipe, "weight": weight, "n": len(mine)}
            line |= {"texts": len(mine[0]["right"])}
            for part in ("dev", "test"):
                for level in (1, 2):
                    key = f"{part}_level_{level}"
                    line[key] = round(statistics.mean(row[key] for row in mine), 2)
            if len(mine) > 1:
                line["sd"] = round(statistics.stdev(row["test_level_2"] for row in mine), 2)
            if weight != "flat":
                line |= {f"gain_level_{level}": gain(mine, flat, level) for level in (1, 2)}
            record.line("hierarchy", **line)
        same = [
            zero["answers"] == one["answers"]
            for zero in by_weight.get(0.0, [])
            for one in flat
            if one["seed"] == zero["seed"]
        ]
        record.line("hierarchy, weight 0", data=name, recipe=recipe, equals_flat=all(same))
    record.line("hierarchy, all", seconds=round(time.perf_counter() - begin, 1))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--recipes", default="", help="of those of each set; empty: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="training texts; 0: all")
    parser.add_argument("--workers", type=int, default=min(16, multiprocessing.cpu_count()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return asked


if __name__ == "__main__":
    main()
