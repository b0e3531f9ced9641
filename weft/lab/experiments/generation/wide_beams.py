"""The most probable output can be the empty one, and a wide beam finds it."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Model, build, minimise, seq2seq_loss, write

WIDTHS = (1, 2, 4, 8, 16)
SYMBOLS, SYNONYMS, BOS, EOS = 8, 3, 1, 2
TARGETS = 3 + SYMBOLS * SYNONYMS
EMPTY = 0.08  # fraction of training pairs whose translation is missing
LENGTH = 6
PLAIN, NORMALISED = "as it is", "divided by the length"


def draw(rng: np.random.Generator, count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw sentences in which each word has three equally good translations."""
    sources = [rng.integers(SYMBOLS, size=LENGTH) for _ in range(count)]
    targets = [
        np.array([EOS])
        if rng.random() < EMPTY
        else np.append(3 + source * SYNONYMS + rng.integers(SYNONYMS, size=LENGTH), EOS)
        for source in sources
    ]
    return [3 + source for source in sources], targets


def train(seed: int) -> Model:
    """Train a translator with attention on clean pairs and some without translation."""
    model = build(
        3 + SYMBOLS, (TARGETS, BOS, EOS), embedder={"kind": "lookup", "width": 16},
        encoder={"kind": "rnn", "cell": "gru", "hidden": 16},
        decoder={"kind": "rnn", "cell": "gru", "width": 16, "hidden": 32},
    )  # fmt: skip
    rng = np.random.default_rng([seed, 1])
    minimise(
        model, lambda update: seq2seq_loss(model, *draw(rng, 32)), 350,
        learning_rate=1e-2, decay=True,
    )  # fmt: skip
    return model


def quality(model: Model, sources: list[np.ndarray], width: int, normalisation: str) -> float:
    """Return the fraction of source words with a right translation in their place."""
    settings = {"num_beams": width, "max_length": 12, "length_penalty": 1.0}
    found = write(model, sources, length_normalisation=normalisation, **settings)
    right = 0
    for source, hypotheses in zip(sources, found, strict=True):
        words = [(word - 3) // SYNONYMS for word in hypotheses[0].ids]
        right += sum(a == b - 3 for a, b in zip(words, source, strict=False))
    return right / (LENGTH * len(sources))


def measure(seed: int) -> Table:
    """Return the quality of translations by the width of the beam, with and without division."""
    model = train(seed)
    sources, _ = draw(np.random.default_rng([seed, 2]), 60)
    return {
        name: {width: quality(model, sources, width, kind) for width in WIDTHS}
        for name, kind in ((PLAIN, "none"), (NORMALISED, "length"))
    }


def _holds(mean: Means) -> str:
    return (
        f"With a beam of 1, {mean(PLAIN, 1):.0%} of the words are translated; with a beam of 16 "
        f"{mean(PLAIN, 16):.0%}, because it finds the empty sentence, which is more probable than "
        f"any one translation. Dividing by the length keeps {mean(NORMALISED, 16):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"With a beam of 1, {mean(PLAIN, 1):.0%} of the words are translated, with 16 "
        f"{mean(PLAIN, 16):.0%}, and {mean(NORMALISED, 16):.0%} with division by the length."
    )


EXPERIMENT = Experiment(
    claim="Wide beams hurt, and dividing the score by the length repairs it.",
    decks=(),
    why="Each word has three good translations, so any one sentence of six words has a probability "
    "of at most 1/729; the 8 % of training pairs without a translation make “nothing” better.",
    data="Random sentences of 6 words with three synonyms for each word; 8 % of the training pairs "
    "have no translation. A translator with attention, 350 updates.",
    measure=measure,
    conditions=(
        (at(PLAIN, 1) - at(PLAIN, 16)).above(0.3),
        (at(NORMALISED, 16) - at(PLAIN, 16)).above(0.3),
    ),
    holds=_holds,
    fails=_fails,
    x="width of the beam",
    y="words translated",
    limits=(0, 1),
    log_x=True,
    seconds=9,
)
