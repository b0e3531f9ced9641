"""The `fasttext` classifier here and in C++, in turn: speed of training and predicting, accuracy.

    python bench/supervised.py --data DATA --peers VENV/bin/python --repeats 3
    python bench/supervised.py --data DATA --peers … --sets trec,banking77 --width 16 --epochs 25

DATA is laid out as in bench/quality.py. Both get the same file: lower-cased words between spaces,
shuffled once. Both learn from words and pairs of words. `words` counts every running word once an
epoch. C++'s training seconds are those of the whole call less those of a call with no epochs. The
C++ program leaves most of its table unset below ten threads, so it runs with two and with ten.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from quality import SETS
from record import Record, options, ratios, spread

from weft.classic.linear.tfidf_vectorizer import TOKEN
from weft.run.split import assign_folds

WORKER = Path(__file__).with_name("supervised_peer.py")


def prepared(name: str, root: Path, folder: str) -> dict[str, Any]:
    """Two files in fastText's format; of a set without a test part, a tenth becomes one."""
    parts = SETS[name](root)
    if "test" not in parts:
        owner = assign_folds(parts["train"], 10)
        pairs = list(zip(parts["train"], owner, strict=True))
        parts = {
            "train": [example for example, fold in pairs if fold],
            "test": [example for example, fold in pairs if not fold],
        }
    random.Random(1).shuffle(parts["train"])
    found: dict[str, Any] = {}
    for part in ("train", "test"):
        rows = [
            (str(e.label).replace(" ", "_"), TOKEN.findall(e.text.lower())) for e in parts[part]
        ]
        path = Path(folder) / f"{name}.{part}.txt"
        path.write_text("".join(f"__label__{a} {' '.join(b)}\n" for a, b in rows), "utf-8")
        found |= {part: str(path), f"{part}_texts": len(rows)}
        found[f"{part}_words"] = sum(len(words) for _, words in rows)
    return found


def run(asked: argparse.Namespace, files: dict[str, Any], system: str, seed: int) -> dict[str, Any]:
    """Train and predict once in a new process."""
    ours = system == "weft"
    job = {
        "system": system.partition("-")[0], "train": files["train"], "test": files["test"],
        "output": f"{Path(files['train']).parent}/{system}", "width": asked.width,
        "epochs": asked.epochs, "rate": asked.rate if ours else asked.peer_rate, "seed": seed,
        "threads": 10 if system.endswith("-10") else asked.threads,
    }  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable if ours else asked.peers, WORKER, json.dumps(job)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{system}:\n{done.stderr}")
    whole = time.perf_counter() - began
    found = json.loads(done.stdout.splitlines()[-1])
    return {**found, "process": whole}


def compare(asked: argparse.Namespace, record: Record, name: str, files: dict[str, Any]) -> None:
    """Every system in turn, `repeats` times; ratios are taken within each repeat."""
    systems = ("weft", *(asked.systems.split(",") if asked.peers else ()))
    run(asked, files, "weft", 0)  # compiles what is not yet
    runs: dict[str, list[Any]] = {system: [] for system in systems}
    for repeat in range(1, asked.repeats + 1):
        for system in systems:
            runs[system].append(run(asked, files, system, repeat))
    words = files["train_words"] * asked.epochs
    for system, done in runs.items():
        row = {
            "train_words_per_second": spread([words / one["train"] for one in done], 0),
            "read_and_train_seconds": spread([one["before"] + one["train"] for one in done]),
            "predict_texts_per_second": spread(
                [files["test_texts"] / one["predict"] for one in done], 0
            ),
            "one_text_ms": spread([1000 * one["one"] for one in done]),
            "accuracy": spread([100 * one["accuracy"] for one in done], 2),
        }
        if system == "weft":
            for key in ("predict_alone", "answers"):
                each = [files["test_texts"] / one[key] for one in done if key in one]
                row[f"{key}_texts_per_second"] = spread(each, 0)
        else:
            ours = runs["weft"]
            for key in ("train", "predict", "one"):
                row[f"{key}_ratio"] = ratios([o[key] for o in done], [o[key] for o in ours])
            together = [[o["before"] + o["train"] for o in each] for each in (done, ours)]
            row["read_and_train_ratio"] = ratios(*together)
        record.line(
            "supervised", data=name, system=system, width=asked.width, epochs=asked.epochs,
            threads=asked.threads, train_texts=files["train_texts"],
            train_words=files["train_words"], test_texts=files["test_texts"], **row,
        )  # fmt: skip


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--peers", default="", help="a Python with fastText; none: ours alone")
    parser.add_argument("--systems", default="fasttext,fasttext-10")
    parser.add_argument("--sets", default="imdb")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--peer-rate", type=float, default=0.5)
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    record = Record(asked.record)
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.sets.split(","):
            compare(asked, record, name, prepared(name, Path(asked.data), folder))


if __name__ == "__main__":
    main()
