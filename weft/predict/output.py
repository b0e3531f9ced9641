"""The inputs and the output of an engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.tasks.annotation import Decoded
from weft.text.example import Example

if TYPE_CHECKING:
    from weft.tasks.annotation import SentenceDistribution
    from weft.tasks.extractive_qa import AnswerSpan
    from weft.tasks.mlm import FilledMasks

EngineInput = str | Example
TokenWeight = tuple[int, int, float]  # start, end, weight


@dataclass(frozen=True)
class EngineOutput:
    """The output of an engine for a list of texts, in order."""

    # Logits (texts, C); or of a model that labels words or finds spans, a prediction per text, or
    # the probabilities of all of them (`Engine.distributions`).
    scores: (
        "np.ndarray | list[Decoded] | list[AnswerSpan] | list[FilledMasks] "
        "| list[SentenceDistribution]"
    )
    coverage: np.ndarray  # (texts,) fraction of the tokens that were read and distinguished
    parts: Sequence[tuple[TokenWeight, ...]] = ()  # of each text, the weights of its tokens
    read: np.ndarray | None = None  # (texts,) fraction of the tokens that were read; None: all


def plain_texts(inputs: Sequence[EngineInput]) -> list[str]:
    """Return the texts of inputs, without words, trees or a second text."""
    return [one if isinstance(one, str) else one.text for one in inputs]


def word_weights(decoded: Decoded) -> tuple[TokenWeight, ...]:
    """Return the offsets of the words, each with the lowest probability of its labels.

    Probabilities that are not of words, one by one, give none; nor does a label of the whole
    sentence, which the table repeats.
    """
    by_word = decoded.probs.ndim == 2 and len(decoded.probs) == len(decoded.places)
    if not decoded.places or not by_word:
        return ()
    width = decoded.probs.shape[1] - decoded.sentence_columns
    probs = decoded.probs[:, :width].min(1).tolist()
    return tuple((*span, prob) for span, prob in zip(decoded.places, probs, strict=True))
