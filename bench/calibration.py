"""Are confidences right, and are promises kept? TREC, banking77, SST-2 and CLINC150 by recipe.

    python bench/calibration.py --data DATA --device cuda --record calibration

Every set is trained with each recipe and `--seeds` seeds, in parallel processes. The first seed has
the official test part; for the others dev and test are pooled and divided again, since a promise
made on dev is about texts like those of dev. Dev is a tenth of train where there is none. One JSON
line a run, on test: accuracy, expected calibration error (ECE, 15 bins) before and after the
temperature, the accuracy and the fraction of answered texts of `abstain_at` 0.90 and 0.95, and
coverage and size of label sets at 0.90. Then one line a set and recipe, one with the means of all,
and one for each promise: in how many runs it was kept, and in how many the accuracy is below it by
more than the noise of the test part (exact binomial test, 5 %). SST-2 is trained on sentences.

CLINC150 comes again with its out-of-scope queries: `trained` with the 100 of its training part,
`unseen` without, both with the 100 of dev; `class` is an extra class and nothing else.
`bert-frozen` needs the checkpoint of `--pretrained`; it is left out if there is none.
`--limit N` takes N examples of each part, for a quick look.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import quality
import trials
from record import Record
from scipy.stats import binom
from trials import Job, Parts

import weft
from weft.config import with_pretrained
from weft.convert.locate import locate
from weft.errors import UserError
from weft.metrics.calibration import expected_calibration_error, risk_coverage
from weft.text.example import Example
from weft.text.read import read

PROMISES = (0.90, 0.95)
SET_COVERAGE = 0.90
PRETRAINED = ("bert-frozen",)
CLASSIC = ("tfidf", "fasttext")
DEV_SHARE = 0.1
OUT_OF_SCOPE = "oos"
WAYS = ("trained", "unseen", "class")


def clinc150(root: Path, way: str = "") -> Parts:
    """CLINC150; with a way, also its out-of-scope queries."""
    saved = json.loads((root / "classification/clinc150/data_full.json").read_text("utf-8"))
    names = {"train": "train", "dev": "val", "test": "test"}
    parts = {part: [Example(*row) for row in saved[name]] for part, name in names.items()}
    if way:
        for part, name in names.items():
            if part != "train" or way != "unseen":
                parts[part] += [Example(*row) for row in saved[f"oos_{name}"]]
    return parts


def sst2(root: Path) -> Parts:
    names = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}
    return {
        part: [
            Example(e.text, names[e.label])
            for e in read(root / f"classification/sst/{part}.txt")
            if e.label in names
        ]
        for part in ("train", "dev", "test")
    }


SETS = {"trec": quality.trec, "banking77": quality.banking77, "sst2": sst2, "clinc150": clinc150}


def load_parts(job: Job) -> Parts:
    """The parts of a run: official for the first seed, dev and test divided again for others."""
    root, pick = Path(job["root"]), random.Random(job["seed"])
    way = job.get("way", "")
    parts = clinc150(root, way) if way else SETS[job["data"]](root)
    if "dev" not in parts:
        train = list(parts["train"])
        random.Random(0).shuffle(train)
        cut = round(DEV_SHARE * len(train))
        parts |= {"dev": train[:cut], "train": train[cut:]}
    if job["seed"] > 1 and not way:
        pool = parts["dev"] + parts["test"]
        pick.shuffle(pool)
        cut = len(parts["dev"])
        parts |= {"dev": pool[:cut], "test": pool[cut:]}
    if job["limit"]:
        for found in parts.values():
            random.Random(1).shuffle(found)
        parts = {part: found[: job["limit"]] for part, found in parts.items()}
    known = {e.label for e in parts["train"]} | ({OUT_OF_SCOPE} if way != "class" else set())
    return {part: [e for e in found if e.label in known] for part, found in parts.items()}


def configure(job: Job) -> weft.Config:
    config = trials.configured(job)
    if job["recipe"] in PRETRAINED:
        config = with_pretrained(config, job["pretrained"])
    return config


def train(job: Job) -> Job:
    """Train and measure one run."""
    keep = {key: job[key] for key in ("data", "recipe", "way", "seed") if key in job}
    try:
        parts, folder = load_parts(job), Path(job["folder"])
        config, way = configure(job), job.get("way", "")
        if way and way != "class":
            config = config.with_values({"data.out_of_scope": OUT_OF_SCOPE}, "bench")
        result = weft.train(
            config, folder, splits=trials.splits(parts), quiet=True, device=job["device"]
        )
        rows = [json.loads(line) for line in open(folder / "predictions.jsonl", encoding="utf-8")]
        right = np.array([row["value"] == row["label"] for row in rows])
        found = out_of_scope(rows) if way else calibration(rows, right)
        found |= {"accuracy": round(float(right.mean()), 5), "texts": len(rows)}
        if not way:
            predictor = weft.load(folder / "model", device=job["device"])
            found |= {"temperature": round(1 / predictor.space.scale, 4)}
            found |= promises(predictor, parts["test"])
        return {**keep, "dev": len(parts["dev"]), **found, "seconds": result.record["seconds"]}
    except Exception as error:  # one bad run must not lose the others
        return {**keep, "error": repr(error)[:500]}
    finally:
        shutil.rmtree(job["folder"], ignore_errors=True)


def calibration(rows: list[Job], right: np.ndarray) -> Job:
    after = np.array([row["score"] for row in rows])
    before = np.array([row.get("uncalibrated", row["score"]) for row in rows])
    curve = risk_coverage(after, right)
    return {
        "ece_before": round(expected_calibration_error(before, right), 5),
        "ece_after": round(expected_calibration_error(after, right), 5),
        "coverage_at_95": round(curve.coverage_at(0.95), 5),
    }


def promises(predictor: weft.Predictor, examples: list[Example]) -> Job:
    """What the promises are worth on test."""
    out: Job = {}
    gold = [e.label for e in examples]
    for promise in PROMISES:
        name = f"at_{promise * 100:.0f}"
        try:
            answers = predictor([e.text for e in examples], abstain_at=promise)
        except UserError:
            out[name] = None  # it says so instead
            continue
        answered = [
            a.value == label for a, label in zip(answers, gold, strict=True) if not a.abstained
        ]
        n, wrong = len(answered), len(answered) - sum(answered)
        out[name] = {
            "answered": round(n / len(gold), 5), "accuracy": round(1 - wrong / max(n, 1), 5),
            "kept": wrong <= (1 - promise) * n + 1e-9,
            # P(so many errors or more) if the promise were just kept.
            "broken": bool(n and binom.sf(wrong - 1, n, 1 - promise) < 0.05),
        }  # fmt: skip
    answers = predictor([e.text for e in examples], label_sets=SET_COVERAGE)
    sets = [answer.label_set for answer in answers]
    out["sets"] = {
        "coverage": round(statistics.mean(g in own for g, own in zip(gold, sets, strict=True)), 5),
        "size": round(statistics.mean(map(len, sets)), 3),
    }
    return out


def out_of_scope(rows: list[Job]) -> Job:
    outside = np.array([row["label"] == OUT_OF_SCOPE for row in rows])
    rejected = np.array([row["value"] == OUT_OF_SCOPE for row in rows])
    right = np.array([row["value"] == row["label"] for row in rows])
    return {
        "in_scope_accuracy": round(float(right[~outside].mean()), 5),
        "out_of_scope_recall": round(float(rejected[outside].mean()), 5),
        "out_of_scope_precision": round(
            float(outside[rejected].mean()) if rejected.any() else 0, 5
        ),
    }


def summarise(record: Record, rows: list[Job]) -> None:
    """Means by set and recipe, of all, and the promises."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["recipe"]), []).append(row)
    mean = statistics.mean
    for (data, recipe), found in sorted(groups.items()):
        line: Job = {"data": data, "recipe": recipe, "n": len(found)}
        for key in ("accuracy", "ece_before", "ece_after", "temperature", "coverage_at_95"):
            line[key] = round(mean(row[key] for row in found), 4)
        for name in (f"at_{promise * 100:.0f}" for promise in PROMISES):
            made = [row[name] for row in found if row[name]]
            line[name] = {
                key: round(mean(one[key] for one in made), 4) for key in ("answered", "accuracy")
            } | {"runs": len(made)} if made else None  # fmt: skip
        line["sets"] = {
            key: round(mean(row["sets"][key] for row in found), 4) for key in ("coverage", "size")
        }
        record.line("calibration", **line)
    record.line(
        "calibration, mean", n=len(rows),
        ece_before=round(mean(row["ece_before"] for row in rows), 4),
        ece_after=round(mean(row["ece_after"] for row in rows), 4),
        lowered=sum(row["ece_after"] <= row["ece_before"] for row in rows),
        set_coverage=round(mean(row["sets"]["coverage"] for row in rows), 4),
    )  # fmt: skip
    for promise in PROMISES:
        made = [row[f"at_{promise * 100:.0f}"] for row in rows if row[f"at_{promise * 100:.0f}"]]
        record.line(
            "calibration, promise", promise=promise, runs=len(rows), made=len(made),
            kept=sum(one["kept"] for one in made), broken=sum(one["broken"] for one in made),
            answered=round(mean(one["answered"] for one in made), 4) if made else None,
            accuracy=round(mean(one["accuracy"] for one in made), 4) if made else None,
        )  # fmt: skip


def main() -> None:
    asked = options()
    record, begin = Record(asked.record), time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="weft-calibration-"))
    recipes = asked.recipes.split(",")
    if any(name in PRETRAINED for name in recipes):
        try:
            locate(asked.pretrained)
        except UserError as error:
            record.line("calibration left out", recipes=list(PRETRAINED), reason=str(error))
            recipes = [name for name in recipes if name not in PRETRAINED]
    own = {"root": asked.data, "limit": asked.limit, "threads": 1, "pretrained": asked.pretrained}
    plans = [
        {"data": name, "recipe": recipe, "seed": seed}
        for seed in range(1, asked.seeds + 1)
        for name in asked.sets.split(",")
        for recipe in recipes
    ]
    plans += [
        {"data": "clinc150", "recipe": recipe, "seed": 1, "way": way}
        for recipe in recipes
        for way in WAYS
        if asked.ways
    ]
    jobs = [
        {
            **own, **plan, "folder": str(folder / str(i)),
            "device": "cpu" if plan["recipe"] in CLASSIC else asked.device,
            "changes": {"train.epochs": asked.epochs}
            if asked.epochs and plan["recipe"] not in CLASSIC else {},
        }
        for i, plan in enumerate(plans)
    ]  # fmt: skip
    # The longest first: tf-idf over 150 classes, then networks that read token by token.
    jobs.sort(key=lambda job: (job["recipe"] != "tfidf", job["data"] != "clinc150"))
    rows: list[Job] = []
    with multiprocessing.get_context("spawn").Pool(asked.workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(train, jobs, chunksize=1):
            record.line("out of scope" if "way" in row else "calibration run", **row)
            if "error" not in row and "way" not in row:
                rows.append(row)
    if rows:
        summarise(record, rows)
    shutil.rmtree(folder, ignore_errors=True)
    record.line("calibration, all", seconds=round(time.perf_counter() - begin, 1))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument(
        "--recipes", default="tfidf,fasttext,cnn,bilstm-attention,transformer,bert-frozen"
    )
    parser.add_argument("--pretrained", default="minilm")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="examples of every part; 0: all")
    parser.add_argument("--ways", action=argparse.BooleanOptionalAction, default=True,
                        help="also the out-of-scope queries of CLINC150")  # fmt: skip
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return asked


if __name__ == "__main__":
    main()
