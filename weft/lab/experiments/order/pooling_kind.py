"""A maximum finds whether something occurs, an average how much of it there is."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

WORDS, SHORT, LONG = 24, 24, 192
FIRST, SECOND = 1, 2  # the two words of the phrase to find
POOLS = {"maximum": "max", "average": "mean"}
EXISTS, MAJORITY = "does a phrase occur?", "which word is more frequent?"


def draw_phrase(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Draw texts with both words; the label is whether they stand next to each other."""
    ids = rng.integers(3, WORDS, (count, length))
    labels = rng.integers(2, size=count)
    for row, label in zip(ids, labels, strict=True):
        places = rng.permutation(length // 3 - 1) * 3
        row[places[:2]], row[places[2:4]] = FIRST, SECOND
        row[places[0] + 1] = SECOND if label else row[places[0] + 1]
    return Rows(list(ids), labels.tolist())


def draw_majority(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Draw texts with many of both words; the label is which there are more of."""
    ids = rng.integers(3, WORDS, (count, length))
    labels = rng.integers(2, size=count)
    for row, label in zip(ids, labels, strict=True):
        few = int(rng.integers(3, 9))
        places = rng.permutation(length)[: 2 * few + 4]
        row[places[:few]] = FIRST if label else SECOND
        row[places[few:]] = SECOND if label else FIRST
    return Rows(list(ids), labels.tolist())


def measure(seed: int) -> Table:
    """Return the accuracy of both pools on both questions."""
    scores: Table = {name: {} for name in POOLS}
    for question, draw in ((EXISTS, draw_phrase), (MAJORITY, draw_majority)):
        rng = np.random.default_rng(seed)
        train, test = draw(rng, 1500, SHORT), draw(rng, 400, LONG)
        for name, pool in POOLS.items():
            encoder = {"kind": "cnn", "hidden": 24, "widths": [2]}
            model = build(WORDS, 2, encoder=encoder, pool={"kind": pool})
            fit_rows(model, train, seed, 300, learning_rate=5e-3)
            scores[name][question] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"In texts eight times as long as in training, the maximum knows whether a phrase occurs "
        f"in {mean('maximum', EXISTS):.0%} of cases, the average in {mean('average', EXISTS):.0%}; "
        f"which word is more frequent, the average knows in "
        f"{mean('average', MAJORITY):.0%} of texts and the maximum in "
        f"{mean('maximum', MAJORITY):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Finding a phrase: maximum {mean('maximum', EXISTS):.0%}, average "
        f"{mean('average', EXISTS):.0%}. Comparing counts: maximum "
        f"{mean('maximum', MAJORITY):.0%}, average {mean('average', MAJORITY):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Max-pooling asks whether something occurs; averaging asks how often.",
    decks=("001", "004"),
    why="A maximum over time works like an ∃ over feature detectors: one match is enough in a text "
    "of any length, and further ones change nothing. An average counts, and dilutes one match.",
    data="Random texts of 24 words in training and 192 in the test. One question is whether two "
    "words stand next to each other, the other which of two words is more frequent, by four.",
    measure=measure,
    conditions=(
        (at("maximum", EXISTS) - at("average", EXISTS)).above(0.05),
        (at("average", MAJORITY) - at("maximum", MAJORITY)).above(0.05),
    ),
    holds=_holds,
    fails=_fails,
    x="question",
    y="accuracy",
    limits=(0, 1),
    seeds=12,
    seconds=1.5,
)
