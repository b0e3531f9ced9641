"""Does the verdict on gradients predict what is learned? Elman against LSTM, 10 to 120 words apart.

    OMP_NUM_THREADS=1 python bench/gradient_verdicts.py --record gradient_verdicts
    python bench/gradient_verdicts.py --data DIR --record gradient_verdicts_text --parts text

Three parts, `--parts classify,language,text`. "classify": the label is the first word and the pool
reads the last state, so that only the recurrence can carry it. "language": a sentence ends with its
first word, which a language model predicts from that far back or not at all: accuracy is how often
with a probability above one half, and the level is that of this distance, not of the window.
"text": the same language models on a part of Tiny Shakespeare (`--data`). Each run has the
strength of the gradient at the farthest step, relative to the nearest, before and after training,
the verdict at both times, and what the model learned.

Starts: "own" are the recipes' (an orthogonal recurrence, small word vectors, forget bias 1);
"strong inputs" has word vectors of deviation 1, as nn.Embedding; "open gates" a forget bias of 4.
`--plot FILE` draws accuracy against the strength before training.
"""

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import record

import weft
from weft import config
from weft.run import Splits, train
from weft.text.example import Example
from weft.text.synthetic.memory_probe import generate_recall, generate_recall_text
from weft.train.gradients.verdict import (
    VANISHED_GRADIENT,
    WEAK_GRADIENT,
    Curve,
    GradientHealth,
    memory_curve,
)

STEPS = {"classify": (20, 60, 120), "language": (10, 20, 40)}  # words between the two
COMMON = {"train.threads": 1, "train.patience": 0, "train.diagnose": True}
CLASSIFIER = {"embedder.width": 50, "encoder.hidden": 50, "embedder.dropout": 0.0,
              "head.dropout": 0.0, "train.epochs": 20}  # fmt: skip
LANGUAGE_MODEL = {"decoder.width": 50, "decoder.hidden": 50, "decoder.layers": 1,
                  "decoder.dropout": 0.0, "decoder.tied": False, "train.learning_rate": 0.003,
                  "train.batch_size": 8, "train.epochs": 60}  # fmt: skip
STARTS: dict[str, dict[str, Any]] = {
    "own": {},
    "strong inputs": {"embedder.scale": 1.0},
    "open gates": {"encoder.forget_bias": 4.0},
}
TEXT_WORDS, TEXT_WINDOW = 60_000, 70
LEARNED = 0.9  # accuracy from which on the word is recalled
SHOWN = (1, 5, 10, 20, 40, 60)  # distances of a curve that are printed


def main() -> None:
    parser = record.options(__doc__, repeats=5)
    parser.add_argument("--data", default="", help="folder with lm/tinyshakespeare, for 'text'")
    parser.add_argument("--parts", default="classify,language")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=0, help="0: 20 and 60; fewer for a trial")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plot", default="", help="write a figure here, such as verdicts.svg")
    options = parser.parse_args()
    keep = record.Record(options.record)
    seeds = range(options.first_seed, options.first_seed + options.repeats)
    jobs = [
        (part, *job, options.data, options.epochs)
        for part in options.parts.split(",")
        for job in plan(part, seeds)
    ]
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            keep.line(**row)
            rows.append(row)
    summarise(keep, rows)
    if options.plot:
        draw([row for row in rows if "accuracy" in row], Path(options.plot))


def plan(part: str, seeds: range) -> list[tuple[str, str, int, int]]:
    """Return recipe, start, distance and seed of every run of a part."""
    if part == "text":
        return [(recipe, "own", 0, seeds[0]) for recipe in ("rnn-lm", "lstm-lm")]
    pairs = (
        [(recipe, start) for start in STARTS for recipe in ("rnn", "lstm")]
        if part == "classify"
        else [("rnn-lm", "own"), ("lstm-lm", "own")]
    )
    pairs = [pair for pair in pairs if pair != ("rnn", "open gates")]
    return [(*pair, steps, seed) for pair in pairs for steps in STEPS[part] for seed in seeds]


def run(
    part: str, recipe: str, start: str, steps: int, seed: int, data: str, epochs: int
) -> dict[str, Any]:
    """Train one model and return its line."""
    changes: dict[str, Any] = {**COMMON, "train.seed": seed}
    if part == "classify":
        changes |= CLASSIFIER | STARTS[start]
        rows = generate_recall(seed, steps=steps)
    elif part == "language":
        # Half of the sentences lie within one window of truncated backpropagation.
        changes |= LANGUAGE_MODEL | {"task.window": 2 * (steps + 4), "tokenizer.min_count": 1}
        rows = generate_recall_text(seed, steps=steps)
    else:
        changes |= LANGUAGE_MODEL | {"decoder.width": 100, "decoder.hidden": 100,
                                     "train.epochs": 6, "task.window": TEXT_WINDOW}  # fmt: skip
        rows = read_text(Path(data))
    changes |= {"train.epochs": epochs} if epochs else {}
    with tempfile.TemporaryDirectory() as folder:
        splits = Splits(*(source(rows[split]) for split in ("train", "dev", "test")))
        given = config.recipe(recipe).with_values(changes, "bench")
        result = train(given, folder, splits=splits, device="cpu", overwrite=True, quiet=True)
        events = [json.loads(line) for line in open(Path(folder) / "metrics.jsonl")]
        first = next(GradientHealth.from_json(e) for e in events if e["event"] == "health")
        saved = json.loads((Path(folder) / "health.json").read_text("utf-8"))
        last = GradientHealth.from_json(saved)
        learned = {"perplexity": round(result.figures["test"]["perplexity"].value, 1)} if (
            part == "text"
        ) else {"accuracy": round(
            result.figures["test"]["accuracy"].value if part == "classify"
            else recall_accuracy(Path(folder), rows["test"]), 4)}  # fmt: skip
    before, after = memory_curve(first.distances)[1], memory_curve(last.distances)[1]
    levels = first.level, last.level
    if part == "language":
        weak = strength(before, steps)
        levels = level(weak), level(min(weak, strength(after, steps)))
    return {
        "question": f"gradient verdict: {part}",
        "recipe": recipe,
        "start": start,
        **({"steps": steps} if steps else {}),
        "seed": seed,
        **learned,
        "before": strength(before, steps),
        "after": strength(after, steps),
        "level_before": levels[0],
        "level": levels[1],
        "verdict": last.verdict,
        **({"curve": points(after), "curve_before": points(before)} if part == "text" else {}),
    }


def source(rows: list[Example]) -> Any:
    return lambda: iter(rows)


def strength(curve: Curve, steps: int) -> float:
    """Return the relative strength at a distance, or at the farthest."""
    known = dict(curve)
    return float(f"{known.get(steps, curve[-1][1]) if steps else curve[-1][1]:.3g}")


def level(value: float) -> str:
    """Return the level of a strength, as the verdict has it."""
    return "good" if value >= WEAK_GRADIENT else "warning" if value >= VANISHED_GRADIENT else "bad"


def points(curve: Curve) -> dict[int, float]:
    return {k: float(f"{value:.3g}") for k, value in curve if k in (*SHOWN, curve[-1][0])}


def recall_accuracy(folder: Path, rows: list[Example]) -> float:
    """Return the fraction of sentences whose last word has a probability above one half."""
    scored = weft.load(folder).engine.likelihoods([row.text for row in rows])
    return float(np.mean([one.probs[-2, 0] > 0.5 for one in scored]))  # the word before EOS


def read_text(data: Path) -> dict[str, list[Example]]:
    """Return a part of Tiny Shakespeare: the first words to train on, the next to test on."""
    path = data / "lm" / "tinyshakespeare" / "input.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    counts = np.cumsum([len(line.split()) for line in lines])
    cuts = np.searchsorted(counts, [TEXT_WORDS, TEXT_WORDS * 11 // 10, TEXT_WORDS * 12 // 10])
    parts = np.split(np.array(lines, object), cuts)
    names = ("train", "dev", "test")
    return {
        name: [Example(line) for line in part] for name, part in zip(names, parts, strict=False)
    }


def summarise(keep: record.Record, rows: list[dict[str, Any]]) -> None:
    """Print what each network learned at each distance, and how often a level said so."""
    for part in ("classify", "language"):
        own = [row for row in rows if row["question"].endswith(f": {part}")]
        keys = ("recipe", "start", "steps")
        for key in dict.fromkeys(tuple(row[name] for name in keys) for row in own):
            runs = [row for row in own if tuple(row[name] for name in keys) == key]
            keep.line(
                f"what is learned: {part}",
                **dict(zip(keys, key, strict=True)),
                runs=len(runs),
                learned=sum(row["accuracy"] >= LEARNED for row in runs),
                accuracy=round(float(np.mean([row["accuracy"] for row in runs])), 3),
                before=float(f"{np.median([row['before'] for row in runs]):.2g}"),
                after=float(f"{np.median([row['after'] for row in runs]):.2g}"),
                levels=dict(Counter(row["level"] for row in runs)),
            )
        for level in ("good", "warning", "bad"):
            runs = [row for row in own if row["level"] == level]
            if runs:
                keep.line(
                    "verdict against what is learned",
                    part=part,
                    level=level,
                    runs=len(runs),
                    learned=sum(row["accuracy"] >= LEARNED for row in runs),
                    accuracy=round(float(np.mean([row["accuracy"] for row in runs])), 3),
                )


def draw(rows: list[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy against the weaker strength, one mark per run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    marks = {"rnn": ("o", "tab:red"), "lstm": ("s", "tab:blue"),
             "rnn-lm": ("^", "tab:orange"), "lstm-lm": ("v", "tab:cyan")}  # fmt: skip
    for recipe, (mark, colour) in marks.items():
        own = [row for row in rows if row["recipe"] == recipe]
        x = [max(min(row["before"], row["after"]), 1e-12) for row in own]
        axes.scatter(x, [row["accuracy"] for row in own], 22, colour, mark, label=recipe, alpha=0.7)
    axes.set_xscale("log")
    axes.axvspan(1e-13, VANISHED_GRADIENT, color="tab:red", alpha=0.06, lw=0)
    axes.axvspan(WEAK_GRADIENT, 1e3, color="tab:green", alpha=0.06, lw=0)
    axes.set_xlim(1e-13, 1e3)
    axes.set_xlabel("gradient at the first word, relative to the last (before or after training)")
    axes.set_ylabel("accuracy")
    axes.legend(frameon=False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
