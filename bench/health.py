"""Does the verdict on gradients see what a model can remember? Elman against LSTM, 60 steps apart.

    OMP_NUM_THREADS=1 python bench/health.py --repeats 3

The built-in corpus "recall": the label is the first word, 60 to 64 words of filler follow, and the
pool reads the last state, so only the recurrence can carry the word. Both recipes get the same
changes. With strong inputs (word vectors of deviation 1, as nn.Embedding starts) and open forget
gates, Elman's gradient vanishes and the LSTM's does not. The recipes' own start, an orthogonal
recurrence fed with weak inputs, is milder on Elman's net: those lines are printed as well. Last
come the verdicts of all neural recipes on the reviews, after two epochs.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import record

import weft
from weft import config
from weft.run import Splits, neural, train
from weft.text.example import Example
from weft.text.synthetic.memory_probe import generate_recall
from weft.train.gradients.labelled import examine
from weft.train.gradients.verdict import GradientHealth, memory_curve

STEPS = 60
SMALL = {"embedder.width": 50, "encoder.hidden": 50, "embedder.dropout": 0.0}
STRONG = {"embedder.scale": 1.0, "encoder.forget_bias": 4.0}
PLAIN = {"train.threads": 1, "train.patience": 0}
spent: list[float] = []


def main() -> None:
    parser = record.options(__doc__, repeats=3)
    parser.add_argument("--no-reviews", action="store_true", help="leave out the last part")
    given = parser.parse_args()
    keep = record.Record(given.record)
    neural.examine = timed  # type: ignore[attr-defined]
    apart = [
        told_apart(keep, seed, start, changes)
        for start, changes in (("strong inputs", STRONG), ("the recipes' own", {}))
        for seed in range(1, given.repeats + 1)
    ]
    strong = apart[: given.repeats]
    keep.line(
        "gradients told apart",
        start="strong inputs",
        seeds=len(strong),
        right=sum(strong),
        bar="all",
    )
    if not given.no_reviews:
        reviews(keep)


def timed(*given: Any) -> GradientHealth:
    started = time.perf_counter()
    found = examine(*given)
    spent.append(time.perf_counter() - started)
    return found


def told_apart(keep: record.Record, seed: int, start: str, changes: dict[str, Any]) -> bool:
    """Whether Elman's net is found bad and the LSTM good on one seed's corpus."""
    levels = []
    for recipe in ("rnn", "lstm"):
        changed = {**PLAIN, **SMALL, **changes, "train.epochs": 10, "train.seed": seed}
        health, accuracy = trained(recipe, changed, generate_recall(seed, steps=STEPS))
        strength = dict(memory_curve(health.distances)[1])[STEPS]
        keep.line(
            "gradients on recall",
            start=start,
            recipe=recipe,
            seed=seed,
            accuracy=accuracy,
            falls_by=float(f"{1 / strength:.3g}"),
            level=health.level,
            verdict=health.verdict,
        )
        levels.append(health.level)
    return levels == ["bad", "good"]


def reviews(keep: record.Record) -> None:
    for recipe in config.recipes():
        if "classic" not in config.recipe(recipe):
            spent.clear()
            changed = {**PLAIN, "train.epochs": 2, "train.diagnose": True}
            health, accuracy = trained(recipe, changed, weft.corpus("reviews"))
            keep.line(
                "gradients on reviews",
                recipe=recipe,
                accuracy=accuracy,
                level=health.level,
                verdict=health.verdict,
                reading_ms=round(1000 * sum(spent) / len(spent)),
            )


def trained(
    recipe: str, changes: dict[str, Any], rows: dict[str, list[Example]]
) -> tuple[GradientHealth, float]:
    """The last reading of one training, and the accuracy on test."""

    def source(split: str) -> Any:
        return lambda: iter(rows[split])

    with tempfile.TemporaryDirectory() as folder:
        given = config.recipe(recipe).with_values(changes, "bench")
        splits = Splits(source("train"), source("dev"), source("test"))
        outcome = train(given, folder, splits=splits, device="cpu", overwrite=True, quiet=True)
        saved = json.loads((Path(folder) / "health.json").read_text("utf-8"))
    return GradientHealth.from_json(saved), round(outcome.figures["test"]["accuracy"].value, 4)


if __name__ == "__main__":
    main()
