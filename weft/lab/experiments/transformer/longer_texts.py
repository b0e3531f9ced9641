"""A formula gives every position a vector; that does not make it a familiar one."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

WORDS, LABELS = 20, 4
TRAINED = 12  # words of the longest training text
LENGTHS = (6, 12, 18, 24, 36)
KINDS = ("sinusoidal", "learned")


def draw(rng: np.random.Generator, count: int, low: int, high: int) -> Rows:
    """Draw texts whose label is the word after a mark; the same words stand elsewhere too."""
    rows, labels = [], []
    for length in rng.integers(low, high + 1, count):
        ids = rng.integers(2, WORDS, length)
        place, label = rng.integers(length - 1), int(rng.integers(LABELS))
        ids[place], ids[place + 1] = 1, 2 + label
        rows.append(ids)
        labels.append(label)
    return Rows(rows, labels)


def measure(seed: int) -> Table:
    """Return the accuracy by length, on texts up to three times as long as in training."""
    rng = np.random.default_rng(seed)
    train = draw(rng, 2500, 4, TRAINED)
    tests = {length: draw(rng, 400, length, length) for length in LENGTHS}
    scores: Table = {}
    for positions in KINDS:
        encoder = {
            "kind": "transformer", "hidden": 32, "layers": 2, "heads": 4, "dropout": 0.0,
            "positions": positions, "max_positions": 64,
        }  # fmt: skip
        model = build(WORDS, LABELS, encoder=encoder, pool={"kind": "max"})
        fit_rows(model, train, seed, 400, learning_rate=3e-3)
        scores[positions] = {length: accuracy(model, test) for length, test in tests.items()}
    return scores


def _holds(mean: Means) -> str:
    return (
        f"In texts of 36 words, three times the longest in training, sinusoidal positions keep "
        f"{mean('sinusoidal', 36):.0%} right and learned ones {mean('learned', 36):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"At the longest length of training, {mean('sinusoidal', 12):.0%} are right with "
        f"sinusoidal positions; in texts three times as long, {mean('sinusoidal', 36):.0%}, and "
        f"{mean('learned', 36):.0%} with learned ones."
    )


EXPERIMENT = Experiment(
    claim="Sinusoidal positions extend to texts longer than any in training; learned ones do not.",
    decks=("000",),
    why="“If a test input is longer than all training inputs we will face issues; use a functional "
    "form”: learned vectors of unseen positions are still random, sinusoids are defined.",
    data="Texts of 4 to 12 random words; the label is the word after a mark. Tested on up to 36 "
    "words; two layers of width 32, 400 updates.",
    measure=measure,
    conditions=(
        at("sinusoidal", 12).above(0.8),
        (at("sinusoidal", 36) - at("learned", 36)).above(0.1),
        (at("sinusoidal", 36) - at("sinusoidal", 12)).above(-0.1),
    ),
    holds=_holds,
    fails=_fails,
    x="words in the text (trained up to 12)",
    y="accuracy",
    limits=(0, 1),
    seeds=10,
    seconds=3,
    explanation="A sinusoid is defined at position 30, but the network has never seen that pattern "
    "of values and has learnt nothing about it. Later work adds distances instead of positions "
    "(Shaw et al. 2018, Press et al. 2022).",
)
