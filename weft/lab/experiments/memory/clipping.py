"""Clipping shortens a gradient that exploded; it cannot lengthen one that vanished."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.memory.forgetting import FILLERS, SYMBOLS, draw
from weft.lab.training import accuracy, build, label_loss

DISTANCE = 20
CASES = {"exploding": 2.0, "vanishing": 0.3}  # spectral radius of the recurrent matrix
CLIPS = {"without clipping": 0.0, "with clipping": 1.0}


def measure(seed: int) -> Table:
    """Return the accuracy on a word far back, by how the gradient starts and is clipped."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 1000, DISTANCE), draw(rng, 400, DISTANCE)
    scores: Table = {name: {} for name in CLIPS}
    for case, radius in CASES.items():
        for name, clip in CLIPS.items():
            torch.manual_seed(seed)
            encoder = {"kind": "rnn", "cell": "rnn", "hidden": 32, "bidirectional": False}
            model = build(1 + SYMBOLS + FILLERS, SYMBOLS, encoder=encoder, pool={"kind": "last"})
            for weight_name, weight in model.named_parameters():
                if "weight_hh" in weight_name:
                    weight.data.mul_(radius)  # orthogonal so far: all eigenvalues have length 1
            # Plain gradient descent, as in the lecture: Adam would rescale both.
            optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
            for _ in range(400):
                source, labels = train.batch(rng.integers(len(train), size=32))
                label_loss(model(source), labels).backward()
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimiser.step()
                optimiser.zero_grad()
            scores[name][case] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Where gradients explode, clipping lifts the accuracy from "
        f"{mean('without clipping', 'exploding'):.0%} to {mean('with clipping', 'exploding'):.0%}; "
        f"where they vanish it stays at {mean('with clipping', 'vanishing'):.0%}, a guess."
    )


def _fails(mean: Means) -> str:
    return (
        f"Clipping changes the accuracy from {mean('without clipping', 'exploding'):.0%} to "
        f"{mean('with clipping', 'exploding'):.0%} where gradients explode, and to "
        f"{mean('with clipping', 'vanishing'):.0%} where they vanish."
    )


EXPERIMENT = Experiment(
    claim="Clipping cures exploding gradients, but not vanishing ones.",
    decks=("000",),
    why="Clipping keeps the direction of a gradient and limits its length. A gradient that has "
    "become zero on its way has no direction to keep.",
    data=f"The first word of a text, one of four, is the label, {DISTANCE} words before the end; "
    "an Elman network whose recurrent matrix starts with spectral radius 2 or 0.3, trained by SGD.",
    measure=measure,
    conditions=(
        (at("with clipping", "exploding") - at("without clipping", "exploding")).above(0.2),
        at("with clipping", "vanishing").below(0.5),
    ),
    holds=_holds,
    fails=_fails,
    x="gradients at the start",
    y="accuracy",
    limits=(0, 1),
    seconds=6,
)
