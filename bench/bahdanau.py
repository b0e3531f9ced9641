"""Does it matter which state attends? Bahdanau's decoder against Luong's on Multi30k.

    python bench/bahdanau.py --data DATA -o RUNS --device cuda --record bahdanau

English to German captions, all 29,000 pairs, test2016; recipe `seq2seq-bahdanau`, where
`decoder.attention` is the only setting that differs. All runs go in parallel, one process each.
One JSON line a run, one for each order with mean and standard deviation over its seeds, and the
difference. RUNS/ORDER-SEED are run folders, ready to be averaged as an ensemble. BLEU is
sacrebleu's, on captions as they are written. `--limit N` takes N pairs, for a quick look.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import generation
import trials
from record import Record
from trials import Job

ORDERS = ("luong", "bahdanau")
SETTINGS = {
    "task.metrics": ["bleu", "bleu-lower", "chrf"],
    "train.epochs": 18,
    "train.batch_size": 128,
    "train.learning_rate": 0.003,
    "train.patience": 5,
    "train.minutes": 6.5,  # a guard: a run that it ends has fewer epochs in its line
}
PAIRS = 29_000


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, ("attention", "seed"), generation.trained)


def jobs(asked: argparse.Namespace) -> list[Job]:
    """Both orders with every seed."""
    own = {"data": "multi30k-de", "recipe": "seq2seq-bahdanau", "share": asked.limit / PAIRS}
    own |= {
        "root": asked.data,
        "device": asked.device,
        "threads": asked.threads,
        "keep": asked.runs,
    }
    epochs = {"train.epochs": asked.epochs} if asked.epochs else {}
    return [
        {
            **own, "attention": order, "seed": seed + 1,
            "changes": {**SETTINGS, **epochs, "decoder.attention": order},
        }
        for seed in range(asked.seeds)
        for order in ORDERS
    ]  # fmt: skip


def difference(rows: list[Job]) -> Job:
    """Bahdanau − Luong of the same seed: mean, standard deviation and the seeds won."""
    by = {order: {r["seed"]: r for r in rows if r["attention"] == order} for order in ORDERS}
    gains = [
        row["test_bleu"] - by["luong"][seed]["test_bleu"]
        for seed, row in sorted(by["bahdanau"].items())
        if seed in by["luong"]
    ]
    found: dict[str, Any] = {"test_bleu": [round(gain, 2) for gain in gains]}
    found["mean"] = round(statistics.mean(gains), 2)
    if len(gains) > 1:
        found["sd"] = round(statistics.stdev(gains), 2)
    return {**found, "won": sum(gain > 0 for gain in gains), "n": len(gains)}


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("-o", "--runs", default="", help="folder for the run folders")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--limit", type=int, default=PAIRS, help="training pairs")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return asked


def main() -> None:
    asked = options()
    if asked.runs:
        Path(asked.runs).mkdir(parents=True, exist_ok=True)
    record, begin = Record(asked.record), time.perf_counter()
    rows = trials.ran(record, "attention order", trial, jobs(asked), asked.workers)
    good = [row for row in rows if "error" not in row]
    for row in trials.means(rows, ("attention",)):
        record.line("attention order", **row)
    if {row["attention"] for row in good} == set(ORDERS):
        record.line("attention order, bahdanau - luong", **difference(good))
    record.line("attention order, all", seconds=round(time.perf_counter() - begin, 1), n=len(good))


if __name__ == "__main__":
    main()
