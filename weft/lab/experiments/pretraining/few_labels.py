"""Pre-training replaces labels, so it helps most where there are few."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.pretraining import FIRST_WORD, fine_tune, network, pretrain
from weft.lab.training import Rows, accuracy, build, fit_rows

TOPICS, TOPIC_WORDS, LENGTH = 8, 12, 8
VOCABULARY = FIRST_WORD + TOPICS * TOPIC_WORDS
LABELS = (8, 32, 128, 512)
PRETRAINED, SCRATCH = "pre-trained", "from scratch"


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw sentences, most of whose words are of one topic."""
    return draw_labelled(rng, count)[0]


def draw_labelled(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw sentences and their topics; a third of the words are of any topic."""
    topics = rng.integers(TOPICS, size=(count, 1))
    mixed = np.where(
        rng.random((count, LENGTH)) < 0.33, rng.integers(TOPICS, size=(count, LENGTH)), topics
    )
    ids = FIRST_WORD + mixed * TOPIC_WORDS + rng.integers(TOPIC_WORDS, size=mixed.shape)
    return ids, topics[:, 0]


def measure(seed: int) -> Table:
    """Return the accuracy by the number of labelled sentences, with pre-training and without."""
    base = pretrain("masked", VOCABULARY, draw, seed, 1000)
    rng = np.random.default_rng([seed, 1])
    ids, topics = draw_labelled(rng, max(LABELS))
    test_ids, test_topics = draw_labelled(rng, 400)
    test = Rows(list(test_ids), test_topics.tolist())
    scores: Table = {PRETRAINED: {}, SCRATCH: {}}
    for name in scores:
        for count in LABELS:
            torch.manual_seed(seed)
            model = build(VOCABULARY, TOPICS, **network("masked"))
            if name == PRETRAINED:
                fine_tune(base, model)
            train = Rows(list(ids[:count]), topics[:count].tolist())
            fit_rows(model, train, seed, 120, 16, learning_rate=2e-3)
            scores[name][count] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"With 32 labelled sentences, pre-training lifts the accuracy from {mean(SCRATCH, 32):.0%} "
        f"to {mean(PRETRAINED, 32):.0%}; with 512, from {mean(SCRATCH, 512):.0%} to "
        f"{mean(PRETRAINED, 512):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"From scratch and pre-trained: {mean(SCRATCH, 32):.0%} and {mean(PRETRAINED, 32):.0%} "
        f"with 32 labels, {mean(SCRATCH, 512):.0%} and {mean(PRETRAINED, 512):.0%} with 512."
    )


GAIN = {count: at(PRETRAINED, count) - at(SCRATCH, count) for count in LABELS}
EXPERIMENT = Experiment(
    claim="Pre-training on plain text helps, and the fewer labels there are, the more.",
    decks=("000", "001"),
    why="A language model has learnt from plain text which words go together, so a label on one "
    "sentence speaks for all the words of its topic.",
    data="Sentences of 8 words about one of eight topics, a third of the words from anywhere; "
    "1,000 updates as a masked language model, then 120 updates on 8 to 512 labelled sentences.",
    measure=measure,
    conditions=(GAIN[32].above(0.1), (GAIN[32] - GAIN[512]).above(0.05)),
    holds=_holds,
    fails=_fails,
    x="labelled sentences",
    y="accuracy",
    limits=(0, 1),
    log_x=True,
    seconds=6,
)
