"""The average gives every word the weight 1 / n; attention gives it to the word that counts."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

LENGTHS = (10, 20, 40, 80, 160)
MARK, VALUES, WORDS = 1, 4, 24  # the label is the value after the mark
POOLS = {"average": {"kind": "mean"}, "attention": {"kind": "attention"}}


def draw(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Draw rows with one mark before a value; other values stand anywhere."""
    ids = rng.integers(2, WORDS, (count, length))
    labels = rng.integers(VALUES, size=count)
    places = rng.integers(length - 1, size=count)
    ids[range(count), places] = MARK
    ids[range(count), places + 1] = 2 + labels
    return Rows(list(ids), labels.tolist())


def measure(seed: int) -> Table:
    """Return the test accuracy by length of the text, for either way to make one vector."""
    scores: Table = {name: {} for name in POOLS}
    for length in LENGTHS:
        rng = np.random.default_rng([seed, length])
        train, test = draw(rng, 1500, length), draw(rng, 600, length)
        for name, pool in POOLS.items():
            encoder = {"kind": "cnn", "hidden": 24, "widths": [2]}
            model = build(WORDS, VALUES, encoder=encoder, pool=pool)
            fit_rows(model, train, seed, 250, learning_rate=5e-3)
            scores[name][length] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"In texts of {LENGTHS[0]} words both find the word that counts; in texts of "
        f"{LENGTHS[-1]} words attention still names it in {mean('attention', LENGTHS[-1]):.0%} of "
        f"cases and the average in {mean('average', LENGTHS[-1]):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"At {LENGTHS[-1]} words the average is right in {mean('average', LENGTHS[-1]):.0%} of "
        f"texts and attention in {mean('attention', LENGTHS[-1]):.0%}: the gap does not grow."
    )


GAP = at("attention", LENGTHS[-1]) - at("average", LENGTHS[-1])
EXPERIMENT = Experiment(
    claim="The longer the text, the more an average of its words loses to attention.",
    decks=("000",),
    why="“Sum and average give equal importance to each input”: what one word says is divided by "
    "the length. Attention decides which word matters and gives it nearly all the weight.",
    data="Random texts of 10 to 160 words; a mark stands before the word that is the label, and "
    "the same words stand elsewhere without a mark. A convolution over two words, 1,500 texts.",
    measure=measure,
    conditions=(
        GAP.above(0.15),
        (GAP - (at("attention", LENGTHS[0]) - at("average", LENGTHS[0]))).above(0.1),
    ),
    holds=_holds,
    fails=_fails,
    x="words in the text",
    y="accuracy",
    limits=(0, 1),
    log_x=True,
    seconds=8,
)
