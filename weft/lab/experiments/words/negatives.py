"""Each further negative sample says less than the one before."""

import numpy as np

from weft.lab.corpora import GROUP_WORDS, draw_topics, group_precision, learn_vectors
from weft.lab.experiment import Experiment, Means, Table, at

NEGATIVES = (1, 2, 5, 10, 20)


def measure(seed: int) -> Table:
    """Return how many neighbours are of the right topic, by the number of negative samples."""
    sentences = draw_topics(np.random.default_rng(seed), 3000)
    scores: dict[float | str, float] = {
        count: group_precision(
            learn_vectors(sentences, "skipgram", seed, negative=count), range(GROUP_WORDS)
        )
        for count in NEGATIVES
    }
    return {"skip-gram": scores}


def _holds(mean: Means) -> str:
    one, five, twenty = (mean("skip-gram", count) for count in (1, 5, 20))
    return (
        f"Five negatives instead of one lift the neighbours that are right from {one:.0%} to "
        f"{five:.0%}; twenty, four times the work, change that to {twenty:.0%}."
    )


def _fails(mean: Means) -> str:
    one, five, twenty = (mean("skip-gram", count) for count in (1, 5, 20))
    return (
        f"With 1, 5 and 20 negatives, {one:.0%}, {five:.0%} and {twenty:.0%} of the neighbours are "
        "right: the gain is not where the claim puts it."
    )


EXPERIMENT = Experiment(
    claim="A few negative samples are enough: from 1 to 5 helps, from 5 to 20 hardly does.",
    decks=("001",),
    why="“Classify independently the positive and few sampled negative examples”: the first few "
    "push unrelated words apart, the rest repeat that.",
    data="3,000 generated sentences about one of ten topics; a neighbour is right if it is of the "
    "same topic as the word.",
    measure=measure,
    conditions=(
        (at("skip-gram", 5) - at("skip-gram", 1)).above(0.03),
        (
            (at("skip-gram", 5) - at("skip-gram", 1)) - (at("skip-gram", 20) - at("skip-gram", 5))
        ).above(0.02),
    ),
    holds=_holds,
    fails=_fails,
    x="negative samples for each positive one",
    y="neighbours of the same topic",
    limits=(0, 1),
    log_x=True,
    seconds=5,
)
