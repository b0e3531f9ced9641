"""Dropout keeps a network from relying on any one feature of a small corpus."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

WORDS, LENGTH, SIGNAL = 300, 12, 40  # the first words lean to one label each
RATES = (0.0, 0.3, 0.6, 0.8)
TEXTS, EPOCHS = 150, 40


def draw(rng: np.random.Generator, count: int) -> Rows:
    """Draw texts of weak evidence: each of some words goes with its label in 70 % of cases."""
    labels = rng.integers(2, size=count)
    ids = rng.integers(1 + SIGNAL, WORDS, (count, LENGTH))
    for row, label in zip(ids, labels, strict=True):
        for place in range(5):
            side = label if rng.random() < 0.7 else 1 - label
            row[place] = 1 + side * SIGNAL // 2 + rng.integers(SIGNAL // 2)
    return Rows(list(ids), labels.tolist())


def measure(seed: int) -> Table:
    """Return the accuracy on the training texts and on new ones, by the rate of dropout."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, TEXTS), draw(rng, 2000)
    scores: Table = {"training texts": {}, "new texts": {}}
    for rate in RATES:
        torch.manual_seed(seed)
        embedder = {"kind": "lookup", "width": 32, "dropout": rate}
        model = build(WORDS, 2, embedder=embedder, head={"kind": "linear", "dropout": rate})
        fit_rows(model, train, seed, TEXTS * EPOCHS // 32, learning_rate=1e-2)
        scores["training texts"][rate] = accuracy(model, train)
        scores["new texts"][rate] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Without dropout the network knows its training texts by heart "
        f"({mean('training texts', 0.0):.0%}) and gets {mean('new texts', 0.0):.0%} of new ones "
        f"right; with 80 % dropped, {mean('new texts', 0.8):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"New texts right without dropout: {mean('new texts', 0.0):.0%}; with 80 % dropped: "
        f"{mean('new texts', 0.8):.0%}; training texts: {mean('training texts', 0.0):.0%} and "
        f"{mean('training texts', 0.8):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Dropout improves accuracy on new texts when training texts are few.",
    decks=("002", "003"),
    why="A network with more weights than texts can learn every text by heart. Units that are "
    "missing at random cannot be relied on, so evidence is spread over many words.",
    data=f"{TEXTS} texts of 12 words out of 299; five words lean to the label, each right in 70 % "
    f"of cases. {EPOCHS} passes over the texts.",
    measure=measure,
    conditions=((at("new texts", 0.8) - at("new texts", 0.0)).above(0.01),),
    holds=_holds,
    fails=_fails,
    x="rate of dropout",
    y="accuracy",
    limits=(0, 1),
    seconds=2,
)
