"""Heads that start at random end up with work of their own."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows, tagging

WORDS, LENGTH, BACK = 6, 12, (1, 4)  # the tag needs the words 1 and 4 steps back
HEADS = (1, 2, 4)
TABLE = np.random.default_rng(0).integers(WORDS, size=(WORDS, WORDS))  # of tags


def draw(rng: np.random.Generator, count: int) -> Rows:
    """Draw rows in which two earlier words give the tag of a word."""
    ids = rng.integers(1, WORDS + 1, (count, LENGTH))
    labels = np.full(ids.shape, -1)
    far = max(BACK)
    first, second = (np.roll(ids, step, axis=1)[:, far:] - 1 for step in BACK)
    labels[:, far:] = TABLE[first, second]
    return Rows(list(ids), list(labels))


def difference(weights: torch.Tensor) -> float:
    """Return how far the heads' patterns (N, T, T) are apart: 0 the same, 1 disjoint."""
    heads = len(weights)
    gaps = [
        0.5 * float((weights[i] - weights[j]).abs().sum(-1).mean())
        for i in range(heads)
        for j in range(i)
    ]
    return max(gaps, default=0.0)


def measure(seed: int) -> Table:
    """Return the accuracy by the number of heads, and how different their patterns are."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, 1500), draw(rng, 200)
    scores: Table = {"accuracy": {}, "difference of the heads": {}}
    for heads in HEADS:
        torch.manual_seed(seed)
        encoder = {
            "kind": "transformer", "hidden": 32, "layers": 1, "heads": heads, "dropout": 0.0,
            "positions": "learned", "max_positions": 16,
        }  # fmt: skip
        model = build(1 + WORDS, encoder=encoder, **tagging(WORDS))
        fit_rows(model, train, seed, 350, learning_rate=5e-3)
        source, _ = test.batch(range(100))
        net = model.get_submodule("encoder")
        with torch.no_grad():
            (weights,) = net.attention_weights(model.embed(source))  # type: ignore[operator]
        scores["accuracy"][heads] = accuracy(model, test)
        scores["difference of the heads"][heads] = difference(weights[:, :, max(BACK) :].mean(0))
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Of what one of two heads looks at, the other ignores "
        f"{mean('difference of the heads', 2):.0%}; of four, the two that differ most share only "
        f"{1 - mean('difference of the heads', 4):.0%}. But one head alone does as well here: "
        f"{mean('accuracy', 1):.0%} right against {mean('accuracy', 4):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Right with one, two and four heads: {mean('accuracy', 1):.0%}, "
        f"{mean('accuracy', 2):.0%}, {mean('accuracy', 4):.0%}; the patterns of four differ by "
        f"{mean('difference of the heads', 4):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Heads specialise: each learns to look at other words than the next.",
    decks=("000", "002", "004"),
    why="“Why choose one attention pattern if we can have several?” One softmax that looks at two "
    "words mixes them; two heads keep them apart.",
    data="Rows of 12 numbers; a random table gives the tag by those 1 and 4 steps before. One "
    "layer of width 32, 350 updates.",
    measure=measure,
    conditions=(
        at("difference of the heads", 2).above(0.5),
        at("difference of the heads", 4).above(0.5),
    ),
    holds=_holds,
    fails=_fails,
    x="heads",
    y="accuracy, or difference of patterns",
    limits=(0, 1),
    seconds=4,
)
