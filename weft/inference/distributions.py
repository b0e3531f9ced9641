"""The probabilities of all choices, instead of the best: what an ensemble averages."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.decode.heads.averaging import TagProbs, join_tags
from weft.inference.forward import run_rows
from weft.tasks.annotation import CharSpan, SentenceDistribution

if TYPE_CHECKING:
    from weft.batch.indexer import Row
    from weft.batch.inference_rows import InferenceRows
    from weft.model import Model
    from weft.runtime import Runtime


def sentence_distributions(
    model: "Model", rows: "InferenceRows", runtime: "Runtime", count: int
) -> list[SentenceDistribution]:
    """Return the probabilities of all labels of the words of each text."""
    parts: list[list[tuple[Row, Any]]] = [[] for _ in range(count)]
    for row, scores in zip(rows.rows, _distributions(model, rows, runtime), strict=True):
        if row.read_fraction:  # an empty text has no prediction
            parts[row.text].append((row, scores))
    return [_join(own) for own in parts]


def _join(parts: "Sequence[tuple[Row, Any]]") -> SentenceDistribution:
    """Join the parts of one sentence; only sentences with independent words are split."""
    if not parts:
        return SentenceDistribution(None)
    words = tuple(word for row, _ in parts for word in row.words)
    places: tuple[CharSpan, ...] = tuple(
        tuple(span) for row, _ in parts if row.spans is not None for span in row.spans.tolist()
    )
    tags = [scores for _, scores in parts if isinstance(scores, TagProbs)]
    scores = join_tags(tags) if tags else parts[0][1]
    return SentenceDistribution(scores, words, places, parts[0][0].tree)


def _distributions(model: "Model", rows: "InferenceRows", runtime: "Runtime") -> list[Any]:
    """Return what the head's output makes of each row, in the order of the rows."""
    return run_rows(model, rows, runtime, lambda output: output.distributions())
