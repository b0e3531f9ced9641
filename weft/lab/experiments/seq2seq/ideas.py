"""One vector for the whole sentence, at the start or at every step, or one vector per word."""

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Model, build, minimise, seq2seq_loss, token_accuracy

WORDS, BOS, EOS = 16, 1, 2  # ids from 3 on are words
LENGTHS = (2, 4, 8, 12)
IDEAS = {"idea 1: first state": "start", "idea 2: every step": "every", "attention": "attention"}
FIRST, EVERY, ATTENTION = IDEAS
Pairs = tuple[list[np.ndarray], list[np.ndarray]]


def draw(rng: np.random.Generator, count: int, low: int, high: int) -> Pairs:
    """Draw sentences and translations: word for word, each by a fixed other word."""
    sources = [rng.integers(3, WORDS, n) for n in rng.integers(low, high + 1, count)]
    return sources, [np.append(translate(source), EOS) for source in sources]


def translate(source: np.ndarray) -> np.ndarray:
    """Return the translation of each word."""
    return 3 + (source - 3) * 5 % (WORDS - 3)


def build_translator(decoder: dict[str, Any], **parts: Any) -> Model:
    """Build a bidirectional encoder and a recurrent decoder of width 32."""
    return build(
        WORDS,
        (WORDS, BOS, EOS),
        encoder={"kind": "rnn", "cell": "gru", "hidden": 16},
        decoder={"kind": "rnn", "cell": "gru", "width": 24, "hidden": 32, **decoder},
        **parts,
    )


def fit(
    model: Model, seed: int, updates: int, pairs: Callable[[np.random.Generator], Pairs]
) -> None:
    """Train on fresh pairs at every update."""
    rng = np.random.default_rng([seed, 1])
    minimise(
        model, lambda update: seq2seq_loss(model, *pairs(rng)), updates,
        learning_rate=1e-2, decay=True,
    )  # fmt: skip


def measure(seed: int) -> Table:
    """Return the accuracy per word by the length of the sentence."""
    scores: Table = {}
    for name, source in IDEAS.items():
        model = build_translator({"source": source})
        fit(model, seed, 350, lambda rng: draw(rng, 24, LENGTHS[0], LENGTHS[-1]))
        rng = np.random.default_rng([seed, 2])
        scores[name] = {n: token_accuracy(model, *draw(rng, 200, n, n)) for n in LENGTHS}
    return scores


def _holds(mean: Means) -> str:
    long = LENGTHS[-1]
    return (
        f"In sentences of {long} words, {mean(FIRST, long):.0%} of the words are right when the "
        f"sentence is only the decoder's first state, {mean(EVERY, long):.0%} when it is an input "
        f"of every step, and {mean(ATTENTION, long):.0%} with attention."
    )


def _fails(mean: Means) -> str:
    long = LENGTHS[-1]
    return (
        f"In sentences of {long} words the first idea gets {mean(FIRST, long):.0%} of the words "
        f"right, the second {mean(EVERY, long):.0%} and attention {mean(ATTENTION, long):.0%}: not "
        "the order that the lecture gives."
    )


EXPERIMENT = Experiment(
    claim="Giving the sentence vector to every step beats giving it once, and attention beats "
    "both, the more the longer the sentence.",
    decks=("000",),
    why="“You can't cram the meaning of a whole sentence into a single vector”; given once, it "
    "also has to survive all steps of the decoder.",
    data="Random sentences of 2 to 12 words out of 13, translated word by word into other words; "
    "350 updates of 24 fresh sentences. Accuracy per word after the right words before.",
    measure=measure,
    conditions=(
        (at(EVERY, LENGTHS[-1]) - at(FIRST, LENGTHS[-1])).above(0.0),
        (at(ATTENTION, LENGTHS[-1]) - at(EVERY, LENGTHS[-1])).above(0.1),
        (
            (at(ATTENTION, LENGTHS[-1]) - at(EVERY, LENGTHS[-1]))
            - (at(ATTENTION, LENGTHS[0]) - at(EVERY, LENGTHS[0]))
        ).above(0.05),
    ),
    holds=_holds,
    fails=_fails,
    x="words in the sentence",
    y="words translated right",
    limits=(0, 1),
    seconds=7,
)
