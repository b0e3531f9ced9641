"""In a deep network, the scale of the first weights decides whether anything is learnt."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.order.bag_order import WORDS
from weft.lab.training import Rows, accuracy, build, fit_rows
from weft.train.initialise import initialise
from weft.train.settings import Init

LAYERS = (1, 4, 16)
INITS: dict[str, tuple[Init, float]] = {
    "small (0.01)": ("normal", 0.01),
    "Xavier": ("xavier-uniform", 1.0),
    "Kaiming": ("kaiming-uniform", 1.0),
}


def draw(rng: np.random.Generator, count: int) -> Rows:
    """Draw texts whose label is whether a marked word occurs."""
    ids = rng.integers(2, WORDS, (count, 6))
    labels = rng.integers(2, size=count)
    ids[np.flatnonzero(labels), rng.integers(6, size=int(labels.sum()))] = 1
    return Rows(list(ids), labels.tolist())


def measure(seed: int) -> Table:
    """Return the accuracy of ReLU networks by depth, for each initialisation."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 1500), draw(rng, 500)
    scores: Table = {name: {} for name in INITS}
    for name, (init, scale) in INITS.items():
        for layers in LAYERS:
            torch.manual_seed(seed)
            head = {"kind": "mlp", "hidden": 32, "layers": layers, "activation": "relu"}
            model = build(WORDS, 2, head=head)
            initialise(model, init, scale)
            fit_rows(model, train, seed, 150, learning_rate=1e-3)
            scores[name][layers] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"With one hidden layer any start will do ({mean('small (0.01)', 1):.0%} right from small "
        f"weights); with sixteen, small weights end at {mean('small (0.01)', 16):.0%}, a guess, "
        f"and Kaiming's at {mean('Kaiming', 16):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"With sixteen layers, small weights lead to {mean('small (0.01)', 16):.0%} and Kaiming's "
        f"to {mean('Kaiming', 16):.0%}; with one layer, to {mean('small (0.01)', 1):.0%} and "
        f"{mean('Kaiming', 1):.0%}."
    )


EXPERIMENT = Experiment(
    claim="The deeper the network, the more depends on the initial weights.",
    decks=("003",),
    why="Each layer multiplies signal and gradient by the size of its weights: 0.01 to the power "
    "16 is nothing. Xavier and Kaiming choose the size so that the product stays near 1.",
    data="Texts of 6 words; the label is whether a marked word occurs. ReLU networks of 1 to 16 "
    "hidden layers of 32 units, 150 updates of Adam.",
    measure=measure,
    conditions=(
        (at("Kaiming", 16) - at("small (0.01)", 16)).above(0.2),
        at("small (0.01)", 1).above(0.9),
    ),
    holds=_holds,
    fails=_fails,
    x="hidden layers",
    y="accuracy",
    limits=(0, 1),
    seconds=4,
)
