"""Self-attention treats a text as a set unless positions are added."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.order.bag_order import WORDS, draw
from weft.lab.training import accuracy, build, fit_rows

KINDS = ("none", "sinusoidal", "learned")


def measure(seed: int) -> Table:
    """Return the accuracy on the order of two words, by the kind of positions."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 1500), draw(rng, 800)
    scores: Table = {"accuracy": {}}
    for positions in KINDS:
        encoder = {
            "kind": "transformer", "hidden": 32, "layers": 2, "heads": 2, "dropout": 0.0,
            "positions": positions,
        }  # fmt: skip
        model = build(WORDS, 2, encoder=encoder, pool={"kind": "max"})
        fit_rows(model, train, seed, 200, learning_rate=3e-3)
        scores["accuracy"][positions] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Without positions, two layers of self-attention are right about the order of two words "
        f"in {mean('accuracy', 'none'):.0%} of texts, like a coin; with sinusoidal positions in "
        f"{mean('accuracy', 'sinusoidal'):.0%}, with learned ones in "
        f"{mean('accuracy', 'learned'):.0%}."
    )


def _fails(mean: Means) -> str:
    values = ", ".join(f"{kind}: {mean('accuracy', kind):.0%}" for kind in KINDS)
    return f"Right about the order of two words, by positions: {values}."


EXPERIMENT = Experiment(
    claim="Self-attention needs positions: without them it does not know the order of the words.",
    decks=("000", "001", "002"),
    why="“The model is not aware of the position in the sequence”: every word attends to all "
    "others in the same way, wherever they stand.",
    data="Sentences of 9 random words with two marked ones side by side; the label is which comes "
    "first. Two layers of width 32, 1,500 sentences.",
    measure=measure,
    conditions=(
        at("accuracy", "none").below(0.6),
        at("accuracy", "sinusoidal").above(0.9),
        at("accuracy", "learned").above(0.9),
    ),
    holds=_holds,
    fails=_fails,
    x="positions",
    y="accuracy",
    limits=(0, 1),
    seconds=5,
)
