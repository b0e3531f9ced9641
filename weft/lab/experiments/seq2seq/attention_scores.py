"""Four ways to score how well a query fits a word."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.seq2seq.ideas import build_translator, draw, fit
from weft.lab.training import token_accuracy

SCORES = {
    "additive": "Bahdanau's network", "dot": "Luong's product", "scaled": "divided by √d",
    "bilinear": "h W q",
}  # fmt: skip


def measure(seed: int) -> Table:
    """Return the accuracy per word with each score."""
    scores: Table = {"accuracy": {}}
    for score in SCORES:
        # Dot products need queries and states of one width: 32 = 2 × 16.
        model = build_translator({"source": "attention"}, attention={"score": score})
        fit(model, seed, 250, lambda rng: draw(rng, 24, 4, 10))
        pairs = draw(np.random.default_rng([seed, 2]), 200, 10, 10)
        scores["accuracy"][score] = token_accuracy(model, *pairs)
    return scores


def _holds(mean: Means) -> str:
    values = [mean("accuracy", score) for score in SCORES]
    return (
        f"After the same training, all four get between {min(values):.0%} and {max(values):.0%} of "
        "the words right: which one you take hardly matters here."
    )


def _fails(mean: Means) -> str:
    worst = min(SCORES, key=lambda score: mean("accuracy", score))
    best = max(SCORES, key=lambda score: mean("accuracy", score))
    return (
        f"After the same training, the score “{best}” gets {mean('accuracy', best):.0%} of the "
        f"words right and “{worst}” {mean('accuracy', worst):.0%}: they do not learn equally fast."
    )


EXPERIMENT = Experiment(
    claim="The four attention scores, additive, dot, scaled and bilinear, do equally well.",
    decks=("000",),
    why="All four can say which word fits which step; the lecture lists them side by side. They "
    "differ in their weights and in the size of what goes into the softmax.",
    data="Random sentences of 4 to 10 words, translated word by word; 250 updates of 24 sentences, "
    "tested on 10 words. Equal means: within 10 points of the additive score.",
    measure=measure,
    conditions=tuple(
        condition
        for score in ("dot", "scaled", "bilinear")
        for condition in (
            (at("accuracy", score) - at("accuracy", "additive")).above(-0.1),
            (at("accuracy", score) - at("accuracy", "additive")).below(0.1),
        )
    ),
    holds=_holds,
    fails=_fails,
    x="attention score",
    y="words translated right",
    limits=(0, 1),
    seconds=5,
    explanation="After 250 updates they differ in speed, not in what they can learn: divided by "
    "√d, small products of small states leave the softmax nearly flat, and it takes longer to "
    "point. The division pays where vectors are wide and products large, as in a Transformer.",
)
