"""A stack of convolutions sees as far as its receptive field, and dilation widens that."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows, tagging

WORDS, LENGTH, LABELS = 12, 24, 4
DISTANCES = (1, 2, 3, 4, 5, 6, 7, 8)
# Three layers of width 3 reach 1 + 1 + 1 steps, dilated by 1, 2 and 4 they reach 1 + 2 + 4.
NETWORKS = {"dilation 1, 1, 1": [1, 1, 1], "dilation 1, 2, 4": [1, 2, 4]}
PLAIN, DILATED = NETWORKS


def draw(rng: np.random.Generator, count: int, distance: int) -> Rows:
    """Draw rows in which the tag of a word is the word some steps before it."""
    ids = rng.integers(1, WORDS, (count, LENGTH))
    labels = np.full((count, LENGTH), -1)
    labels[:, distance:] = ids[:, :-distance] % LABELS
    return Rows(list(ids), list(labels))


def measure(seed: int) -> Table:
    """Return the accuracy by the distance of the word that decides."""
    scores: Table = {name: {} for name in NETWORKS}
    for distance in DISTANCES:
        rng = np.random.default_rng([seed, distance])
        train, test = draw(rng, 400, distance), draw(rng, 100, distance)
        for name, dilation in NETWORKS.items():
            encoder = {
                "kind": "cnn", "hidden": 32, "widths": [3], "layers": 3, "dilation": dilation
            }  # fmt: skip
            model = build(WORDS, encoder=encoder, **tagging(LABELS))
            fit_rows(model, train, seed, 150, batch_size=16, learning_rate=5e-3)
            scores[name][distance] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Three plain layers use a word 3 steps away ({mean(PLAIN, 3):.0%} right) and are blind at "
        f"4 ({mean(PLAIN, 4):.0%}, a guess); with growing dilation they reach 7 steps "
        f"({mean(DILATED, 7):.0%}) and are blind at 8 ({mean(DILATED, 8):.0%})."
    )


def _fails(mean: Means) -> str:
    return (
        f"Right at 3 and 4 steps: {mean(PLAIN, 3):.0%} and {mean(PLAIN, 4):.0%}; dilated, at 7 and "
        f"8 steps: {mean(DILATED, 7):.0%} and {mean(DILATED, 8):.0%}. The edge is not where the "
        "receptive field ends."
    )


EXPERIMENT = Experiment(
    claim="A convolution sees nothing outside its receptive field, and dilation widens the field.",
    decks=("001",),
    why="Each layer of width 3 adds one step on either side; with dilation 1, 2, 4 the layers add "
    "1, 2 and 4 steps for the same number of weights.",
    data="Random rows of 24 words; the tag of a word is decided by the word 1 to 8 steps before "
    "it. Four tags, so guessing is right in 25 % of cases.",
    measure=measure,
    conditions=(
        at(PLAIN, 3).above(0.6),
        at(PLAIN, 4).below(0.4),
        at(DILATED, 7).above(0.6),
        at(DILATED, 8).below(0.4),
    ),
    holds=_holds,
    fails=_fails,
    x="steps to the word that decides",
    y="accuracy",
    limits=(0, 1),
    seconds=10,
)
