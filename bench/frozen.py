"""How fast is learning over a network that stays as it is? One JSON line a way.

    python bench/frozen.py --data DATA --pretrained MINILM --repeats 3

A thousand questions of TREC, ten epochs of the recipe `bert` with `embedder.frozen=true` at a rate
of 1e-3: Weft, which lets the network read every text once; Weft, where it reads them in each epoch;
and a plain loop of `transformers` with the same settings, seeds and batches. Everything is counted,
from texts to figures.
"""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import finetune
import finetune_peer
import trials
from record import Record, options, ratios, spread

import weft
from weft.run import trainer

CHANGES = {"embedder.frozen": True, "train.epochs": 10, "train.learning_rate": 1e-3}
JOB = {
    "data": "trec", "system": "weft", "start": "pretrained", "changes": CHANGES, "share": 1.0,
    "examples": 1000, "seed": 1, "device": "cpu",
}  # fmt: skip
WAYS = ("weft", "weft, each epoch", "transformers")


def once(way: str, job: dict[str, Any]) -> tuple[float, float]:
    """Seconds, and percent on test."""
    parts = finetune.loaded(job)
    began = time.perf_counter()
    if way == "transformers":
        found = finetune_peer.trained(job, finetune.configured(job), parts, "accuracy")
        return time.perf_counter() - began, found["test_accuracy"]
    folder = Path(tempfile.mkdtemp())
    reads, trainer.cache_features = (
        trainer.cache_features,
        trainer.cache_features if way == "weft" else lambda *_: False,
    )
    try:
        out = weft.train(
            finetune.configured(job), folder / "run", splits=trials.splits(parts), quiet=True,
            device="cpu",
        )  # fmt: skip
    finally:
        trainer.cache_features = reads
        shutil.rmtree(folder)
    return time.perf_counter() - began, 100 * out.figures["test"]["accuracy"].value


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--pretrained", required=True, help="folder of a checkpoint")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    job = {**JOB, "root": asked.data, "pretrained": asked.pretrained, "threads": asked.threads}
    record = Record(asked.record)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    right: dict[str, float] = {}
    for _ in range(asked.repeats):
        for way in WAYS:
            taken, right[way] = once(way, job)
            seconds[way].append(taken)
    for way in WAYS:
        faster = ratios(seconds[way], seconds["weft"])
        record.line(
            "frozen network", way=way, seconds=spread(seconds[way]), weft_is_faster=faster,
            test_accuracy=round(right[way], 2), threads=asked.threads, examples=job["examples"],
            epochs=CHANGES["train.epochs"],
        )  # fmt: skip


if __name__ == "__main__":
    main()
