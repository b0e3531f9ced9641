"""Post-norm Transformers need a slow start at a high learning rate."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.order.bag_order import WORDS, draw
from weft.lab.training import accuracy, build, fit_rows

WARMUPS = {"none": 0, "100 updates": 100}
NORMS = {"norm after (2017)": "post", "norm before": "pre"}
POST, PRE = NORMS


def measure(seed: int) -> Table:
    """Return the accuracy with and without warm-up, by where the layer norm stands."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 1500), draw(rng, 400)
    scores: Table = {name: {} for name in NORMS}
    for name, norm in NORMS.items():
        for kind, warmup in WARMUPS.items():
            torch.manual_seed(seed)
            encoder = {
                "kind": "transformer", "hidden": 32, "layers": 4, "heads": 4, "norm": norm,
                "dropout": 0.0,
            }  # fmt: skip
            model = build(WORDS, 2, encoder=encoder, pool={"kind": "max"})
            fit_rows(model, train, seed, 200, 16, learning_rate=1e-2, warmup=warmup)
            scores[name][kind] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"With the norm after each part, as in 2017, four layers reach {mean(POST, 'none'):.0%} "
        f"without warm-up and {mean(POST, '100 updates'):.0%} with it."
    )


def _fails(mean: Means) -> str:
    return (
        f"Without and with warm-up, the norm after each part leads to {mean(POST, 'none'):.0%} and "
        f"{mean(POST, '100 updates'):.0%}, the norm before to {mean(PRE, 'none'):.0%} and "
        f"{mean(PRE, '100 updates'):.0%}: warm-up does not rescue it here."
    )


EXPERIMENT = Experiment(
    claim="Warm-up rescues a Transformer at a high learning rate.",
    decks=("003",),
    why="At the start the gradients near the output are large and the averages of Adam are not "
    "settled; full steps then push the network where it learns nothing more.",
    data="The order of two marked words among nine; four layers of width 32 at a learning rate of "
    "0.01, 200 updates.",
    measure=measure,
    conditions=((at(POST, "100 updates") - at(POST, "none")).above(0.1),),
    holds=_holds,
    fails=_fails,
    x="warm-up",
    y="accuracy",
    limits=(0, 1),
    seeds=8,
    seconds=4,
    explanation="At this rate four layers with the norm after each part learn nothing, slow start "
    "or not; at a tenth of it, they learn with and without. What helps here is to put the norm "
    "before each part, as most Transformers now do.",
)
