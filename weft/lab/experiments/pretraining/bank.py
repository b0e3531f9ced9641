"""One word, two contexts, two vectors: the layers pull the senses apart."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.pretraining import FIRST_WORD, layer_states, mean_cosine, pretrain

TOPICS, TOPIC_WORDS, LENGTH = 4, 10, 8  # topic 0 is money, topic 1 is rivers, and so on
BANK = FIRST_WORD + TOPICS * TOPIC_WORDS
SAME, OTHER = "same sense", "other sense"


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw sentences of one topic each; “bank” occurs in the first two."""
    topics = rng.integers(TOPICS, size=(count, 1))
    ids = FIRST_WORD + topics * TOPIC_WORDS + rng.integers(TOPIC_WORDS, size=(count, LENGTH))
    banks = (topics[:, 0] < 2) & (rng.random(count) < 0.5)
    ids[np.flatnonzero(banks), rng.integers(LENGTH, size=int(banks.sum()))] = BANK
    return ids


def draw_banks(rng: np.random.Generator, topic: int, count: int) -> np.ndarray:
    """Draw sentences of one topic with “bank” in the middle."""
    ids = FIRST_WORD + topic * TOPIC_WORDS + rng.integers(TOPIC_WORDS, size=(count, LENGTH))
    ids[:, LENGTH // 2] = BANK
    return ids


def measure(seed: int) -> Table:
    """Return the cosine of “bank” in two contexts, of one sense and of two, layer by layer."""
    model = pretrain("masked", BANK + 1, draw, seed, 400, layers=3)
    rng = np.random.default_rng([seed, 1])
    money, other_money, river = (
        [states[:, LENGTH // 2] for states in layer_states(model, draw_banks(rng, topic, 100))]
        for topic in (0, 0, 1)
    )
    scores: Table = {SAME: {}, OTHER: {}}
    for layer, (a, b, c) in enumerate(zip(money, other_money, river, strict=True)):
        scores[SAME][layer] = mean_cosine(a, b)
        scores[OTHER][layer] = mean_cosine(a, c)
    assert torch.isfinite(money[-1]).all()
    return scores


def _holds(mean: Means) -> str:
    return (
        f"As a word vector, “bank” is the same everywhere (cosine {mean(OTHER, 0):.2f}). After "
        f"three layers, two banks of money have a cosine of {mean(SAME, 3):.2f}, a bank of money "
        f"and one of a river {mean(OTHER, 3):.2f}."
    )


def _fails(mean: Means) -> str:
    return (
        f"After three layers, the cosine is {mean(SAME, 3):.2f} within a sense of “bank” and "
        f"{mean(OTHER, 3):.2f} between senses."
    )


EXPERIMENT = Experiment(
    claim="“Bank” has one vector to begin with, and two after attention: one for each sense.",
    decks=("002",),
    why="Word2vec has one vector for both. Attention adds to a word what stands around it, and to "
    "predict hidden words the network must know which bank it is.",
    data="Sentences of 8 words about one of four topics, two of which share the word “bank”; a "
    "masked language model of three layers of width 32, 400 updates.",
    measure=measure,
    conditions=(
        (at(SAME, 0) - at(OTHER, 0)).below(0.01),
        (at(SAME, 3) - at(OTHER, 3)).above(0.2),
    ),
    holds=_holds,
    fails=_fails,
    x="layer (0: word vectors)",
    y="cosine of “bank” in two sentences",
    limits=(-1, 1),
    seconds=4,
)
