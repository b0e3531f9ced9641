"""Dropping frequent words brings the others closer together, inside one window."""

import numpy as np

from weft.lab.corpora import GROUP_WORDS, draw_topics, group_precision, learn_vectors
from weft.lab.experiment import Experiment, Means, Table, at

SETTINGS = {"off": 0.0, "1e-2": 1e-2, "1e-3": 1e-3}


def measure(seed: int) -> Table:
    """Return how many neighbours are of the right topic, by the threshold of sub-sampling."""
    # Two of three words are function words, as in English.
    sentences = draw_topics(np.random.default_rng(seed), 3000, content=5, function=10)
    scores: dict[float | str, float] = {}
    for name, sample in SETTINGS.items():
        vectors = learn_vectors(sentences, "skipgram", seed, sample=sample, window=3)
        scores[name] = group_precision(vectors, range(GROUP_WORDS))
    return {"skip-gram": scores}


def _holds(mean: Means) -> str:
    return (
        f"With every “the” in place {mean('skip-gram', 'off'):.0%} of the neighbours are right; "
        f"with frequent words dropped at random {mean('skip-gram', '1e-3'):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Dropping frequent words changes the neighbours that are right from "
        f"{mean('skip-gram', 'off'):.0%} to {mean('skip-gram', '1e-3'):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Sub-sampling frequent words makes better vectors.",
    decks=("001",),
    why="A window of three words is full of words that stand everywhere and say nothing; when they "
    "are dropped, the window reaches further content words. But every dropped word is also one "
    "less training example.",
    data="3,000 generated sentences about one of ten topics, ten function words to five others; a "
    "neighbour is right if it is of the same topic.",
    measure=measure,
    conditions=((at("skip-gram", "1e-3") - at("skip-gram", "off")).above(0.03),),
    holds=_holds,
    fails=_fails,
    x="threshold of sub-sampling",
    y="neighbours of the same topic",
    limits=(0, 1),
    seconds=4,
)
