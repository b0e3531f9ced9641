"""No hidden layer cannot tell odd from even; sixteen are too many to train."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

LAYERS = (0, 1, 2, 4, 8, 16)
WORDS, LENGTH, NEGATIONS = 12, 3, 3  # the first words are negations


def draw(rng: np.random.Generator, count: int) -> Rows:
    """Draw texts whose label is whether they have an odd number of negations."""
    negated = rng.random((count, LENGTH)) < 0.5
    words = rng.integers(1 + NEGATIONS, WORDS, (count, LENGTH))
    ids = np.where(negated, rng.integers(1, 1 + NEGATIONS, (count, LENGTH)), words)
    return Rows(list(ids), (negated.sum(1) % 2).tolist())


def measure(seed: int) -> Table:
    """Return the accuracy by the number of hidden layers."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 4000), draw(rng, 800)
    scores: Table = {"MLP": {}}
    for layers in LAYERS:
        torch.manual_seed(seed)
        head = {"kind": "mlp", "hidden": 32, "layers": layers} if layers else {"kind": "linear"}
        model = build(WORDS, 2, pool={"kind": "sum"}, head=head)
        fit_rows(model, train, seed, 400, learning_rate=5e-3)
        scores["MLP"][layers] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Without a hidden layer {mean('MLP', 0):.0%} are right, no more than a guess; with two "
        f"{mean('MLP', 2):.0%}; and with sixteen, trained just as long, {mean('MLP', 16):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Right without a hidden layer: {mean('MLP', 0):.0%}, with two: {mean('MLP', 2):.0%}, with "
        f"sixteen: {mean('MLP', 16):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Depth helps, up to a point.",
    decks=("003", "004"),
    why="“An MLP is strictly more powerful than a linear model”: odd or even is not linear in the "
    "number of words. But every layer also shrinks the gradient on its way down.",
    data="Texts of 3 words; the label is whether the number of negations is odd. The network sees "
    "the sum of the word vectors; 4,000 texts, 400 updates.",
    measure=measure,
    conditions=(
        (at("MLP", 2) - at("MLP", 0)).above(0.2),
        (at("MLP", 2) - at("MLP", 16)).above(0.1),
    ),
    holds=_holds,
    fails=_fails,
    x="hidden layers",
    y="accuracy",
    limits=(0, 1),
    seconds=4,
)
