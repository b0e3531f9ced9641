"""A bag of words gives "dog bites man" and "man bites dog" the same vector."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

WORDS, LENGTH = 30, 9
FIRST, SECOND = 1, 2  # the two words whose order is the label
ENCODERS = {
    "bag": {"kind": "none"},
    "CNN": {"kind": "cnn", "hidden": 24, "widths": [3], "layers": 2},
    "GRU": {"kind": "rnn", "cell": "gru", "hidden": 24, "bidirectional": False},
    "self-attention": {"kind": "transformer", "hidden": 32, "layers": 1, "heads": 2, "dropout": 0},
}
POOLS = {"GRU": "last"}


def draw(rng: np.random.Generator, count: int) -> Rows:
    """Draw rows with both words side by side among others; the label is which is first."""
    ids = rng.integers(3, WORDS, (count, LENGTH))
    labels = rng.integers(2, size=count)
    places = rng.integers(LENGTH - 1, size=count)
    ids[range(count), places] = np.where(labels, SECOND, FIRST)
    ids[range(count), places + 1] = np.where(labels, FIRST, SECOND)
    return Rows(list(ids), labels.tolist())


def measure(seed: int) -> Table:
    """Return the test accuracy of each encoder."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 2000), draw(rng, 1000)
    scores: Table = {"accuracy": {}}
    for name, encoder in ENCODERS.items():
        model = build(WORDS, 2, encoder=encoder, pool={"kind": POOLS.get(name, "max")})
        if name == "bag":
            model = build(WORDS, 2, encoder=encoder, head={"kind": "mlp", "hidden": 32})
        fit_rows(model, train, seed, 250, learning_rate=5e-3)
        scores["accuracy"][name] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"The bag of words is right in {mean('accuracy', 'bag'):.0%} of sentences, no more than a "
        f"coin; every network that reads the words in order is right in at least "
        f"{min(mean('accuracy', name) for name in ENCODERS if name != 'bag'):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"The bag of words is right in {mean('accuracy', 'bag'):.0%} of sentences, so it does see "
        "something of their order, or another network does not."
    )


EXPERIMENT = Experiment(
    claim="A bag of words cannot see the order of the words.",
    decks=("002", "004"),
    why="A sum is the same in any order, so “dog bites man” and “man bites dog” are one vector, "
    "and no layer behind it can tell them apart.",
    data="Sentences of 9 words out of 30, made at random; two marked words stand next to each "
    "other, and the label is which comes first. 2,000 to learn from, 1,000 to test.",
    measure=measure,
    conditions=(
        at("accuracy", "bag").below(0.55),
        *(at("accuracy", name).above(0.9) for name in ENCODERS if name != "bag"),
    ),
    holds=_holds,
    fails=_fails,
    x="encoder",
    y="accuracy",
    limits=(0, 1),
    seconds=6,
)
