"""Attention learns which word translates which, although it is never shown."""

import numpy as np
import torch

from weft.batch import Padded
from weft.decode.losses import shift_right
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.seq2seq.ideas import (
    BOS,
    EOS,
    WORDS,
    Pairs,
    build_translator,
    fit,
    translate,
)
from weft.lab.training import Model, token_accuracy

LENGTHS = (4, 6, 8, 10)


def draw(rng: np.random.Generator, count: int, low: int, high: int) -> Pairs:
    """Draw sentences whose translation comes in reverse order."""
    sources = [rng.integers(3, WORDS, n) for n in rng.integers(low, high + 1, count)]
    return sources, [np.append(translate(source)[::-1], EOS) for source in sources]


@torch.no_grad()
def alignment(model: Model, sources: list[np.ndarray], targets: list[np.ndarray]) -> float:
    """Return the fraction of target words whose greatest weight is on the word they translate."""
    gold, output = Padded.from_rows(targets), model(Padded.from_rows(sources))
    weights = output.head.decoder.read(shift_right(gold, BOS), output.memory).weights  # (B, T, S)
    length = len(sources[0])
    chosen = weights[:, :length].argmax(2)  # (B, T)
    right = torch.arange(length).flip(0)
    return float((chosen == right).float().mean())


def measure(seed: int) -> Table:
    """Return by length how many words are translated right, and how many point at their source."""
    model = build_translator({"source": "attention", "attention": "bahdanau"})
    fit(model, seed, 300, lambda rng: draw(rng, 24, LENGTHS[0], LENGTHS[-1]))
    rng = np.random.default_rng([seed, 2])
    scores: Table = {"words right": {}, "attention on the source word": {}}
    for length in LENGTHS:
        pairs = draw(rng, 150, length, length)
        scores["words right"][length] = token_accuracy(model, *pairs)
        scores["attention on the source word"][length] = alignment(model, *pairs)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"In sentences of 8 words, {mean('attention on the source word', 8):.0%} of the translated "
        "words look most at the very word they translate; one in eight would by chance. No one "
        "told the network which word that is."
    )


def _fails(mean: Means) -> str:
    return (
        f"In sentences of 8 words, {mean('words right', 8):.0%} of the words are right, and "
        f"{mean('attention on the source word', 8):.0%} look most at the word they translate."
    )


EXPERIMENT = Experiment(
    claim="Attention aligns: while writing a word, the decoder looks at the word it translates.",
    decks=("000", "001"),
    why="The information about a word is nearest to hand in its own state, so the gradient moves "
    "the weights there.",
    data="Random sentences of 4 to 10 words whose translation is in reverse order; Bahdanau's "
    "decoder, 300 updates of 24 sentences.",
    measure=measure,
    conditions=(
        at("words right", 8).above(0.7),
        at("attention on the source word", 8).above(0.6),
    ),
    holds=_holds,
    fails=_fails,
    x="words in the sentence",
    y="fraction of words",
    limits=(0, 1),
    seconds=2.5,
)
