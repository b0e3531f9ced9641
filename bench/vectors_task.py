"""Does a task gain from word vectors? The same recipe with random rows and with vectors, paired.

    python bench/vectors_task.py --data DATA --vectors FILE --sets trec,mr --seeds 10 --workers 4

One JSON line a training (TREC: several seeds, MR: ten folds), then the gain in points of accuracy
on test with its 95 % interval, from the differences of the pairs (Student's t). Words that occur
once in training keep their row in both, since a file of vectors may know them.
"""

import argparse
import math
import multiprocessing
import statistics
from typing import Any

from quality import trial
from record import Record
from scipy.stats import t as student


def jobs(asked: argparse.Namespace, data: str) -> list[dict[str, Any]]:
    """Every seed or fold, with random rows, with vectors, and with vectors that stay."""
    pairs = [(1, fold) for fold in range(10)] if data in ("mr", "subj") else None
    variants: dict[str, dict[str, Any]] = {
        "random": {},
        "vectors": {"embedder.vectors": asked.vectors},
        "frozen vectors": {"embedder.vectors": asked.vectors, "embedder.frozen": True},
    }
    common = {"embedder.width": asked.dim, "tokenizer.min_count": 1}
    return [
        {
            "data": data, "recipe": asked.recipe, "variant": name, "seed": seed, "fold": fold,
            "root": asked.data, "device": asked.device, "share": 0.1, "threads": asked.threads,
            "changes": {**common, **changes},
        }
        for seed, fold in pairs or [(seed, None) for seed in range(1, asked.seeds + 1)]
        for name, changes in variants.items()
    ]  # fmt: skip


def gain(rows: list[dict[str, Any]], variant: str) -> dict[str, Any]:
    """The mean difference to random rows with its interval, in points."""
    found = {(r["variant"], r["seed"], r["fold"]): 100 * r["test_accuracy"] for r in rows}
    pairs = [(found["random", s, f], value) for (v, s, f), value in found.items() if v == variant]
    differences = [after - before for before, after in pairs]
    mean, n = statistics.mean(differences), len(differences)
    half = student.ppf(0.975, n - 1) * statistics.stdev(differences) / math.sqrt(n)
    dev = [100 * r["dev_accuracy"] for r in rows if r["variant"] == variant]
    return {
        "random": round(statistics.mean(before for before, _ in pairs), 2),
        "with": round(statistics.mean(after for _, after in pairs), 2),
        "dev": round(statistics.mean(dev), 2),
        "gain": round(mean, 2),
        "interval": [round(mean - half, 2), round(mean + half, 2)],
        "n": n,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--sets", default="trec,mr")
    parser.add_argument("--recipe", default="cnn")
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="")
    asked = parser.parse_args()
    record = Record(asked.record)
    rows: list[dict[str, Any]] = []
    planned = [job for data in asked.sets.split(",") for job in jobs(asked, data)]
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for row in pool.imap_unordered(trial, planned):
            rows.append(row)
            record.line("trial", **row)
    for data in asked.sets.split(","):
        mine = [row for row in rows if row["data"] == data and "error" not in row]
        for variant in ("vectors", "frozen vectors"):
            record.line("vectors for a task", data=data, variant=variant, **gain(mine, variant))


if __name__ == "__main__":
    main()
