"""A forget gate that starts open lets the gradient through from the first update on."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.memory.forgetting import FILLERS, SYMBOLS, draw
from weft.lab.training import accuracy, build, fit_rows

BIASES = (-1.0, 0.0, 1.0, 2.0, 4.0)
DISTANCE = 60


def measure(seed: int) -> Table:
    """Return the accuracy on a word far back, by the first value of the forget gate's bias."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 1000, DISTANCE), draw(rng, 400, DISTANCE)
    scores: Table = {"LSTM": {}}
    for bias in BIASES:
        encoder = {
            "kind": "rnn", "cell": "lstm", "hidden": 24, "bidirectional": False, "forget_bias": bias
        }  # fmt: skip
        model = build(1 + SYMBOLS + FILLERS, SYMBOLS, encoder=encoder, pool={"kind": "last"})
        fit_rows(model, train, seed, 250, learning_rate=3e-3)
        scores["LSTM"][bias] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"With a bias of 0 the LSTM is right in {mean('LSTM', 0.0):.0%} of texts after 250 "
        f"updates; with a bias of 2, which keeps the gate nearly open, in "
        f"{mean('LSTM', 2.0):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"The bias makes little difference: {mean('LSTM', 0.0):.0%} right with 0 and "
        f"{mean('LSTM', 2.0):.0%} with 2."
    )


EXPERIMENT = Experiment(
    claim="Start the forget gate's bias at 1 or more, or the LSTM forgets as well.",
    decks=("000",),
    why="∂c_t/∂c_{t−1} is the forget gate. With a bias of 0 it starts at one half, so 60 steps "
    "back the gradient is 2⁻⁶⁰ of what it was; with a bias of 2 the gate starts at 0.88.",
    data=f"Texts whose first word, one of four, is the label, {DISTANCE} words before the end; 250 "
    "updates on 1,000 texts.",
    measure=measure,
    conditions=(
        (at("LSTM", 2.0) - at("LSTM", 0.0)).above(0.3),
        at("LSTM", 2.0).above(0.8),
    ),
    holds=_holds,
    fails=_fails,
    x="first value of the forget gate's bias",
    y="accuracy after 60 words",
    limits=(0, 1),
    seeds=12,
    seconds=3,
)
