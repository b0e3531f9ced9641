"""Semantic search with the sentence vectors of any model that has them.

Q queries   n texts   H width of a vector
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from weft.errors import UserError
from weft.predict.predictor import CHUNK_TEXTS


class TextEmbedder(Protocol):
    """A model with a vector for every text: a Predictor, an auto-encoder."""

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


def nearest(
    predictor: TextEmbedder, queries: Sequence[str], texts: Iterable[str], count: int = 10
) -> list[list[tuple[str, float]]]:
    """Return the `count` texts with the highest cosine for each query, best first, without copies.

    Texts stream by in chunks, so a file need not fit in memory.
    """
    query_vectors = _normalise(predictor.embed(queries))  # (Q, H)
    best: list[dict[str, float]] = [{} for _ in queries]
    stream, searched = iter(texts), False
    while chunk := list(islice(stream, CHUNK_TEXTS)):
        searched = True
        cosines = query_vectors @ _normalise(predictor.embed(chunk)).T  # (Q, n)
        for kept, row in zip(best, cosines, strict=True):
            order = np.argsort(-row, kind="stable")
            kept |= _top_texts(chunk, row, order, count)
            for text in sorted(kept, key=lambda text: -kept[text])[count:]:
                del kept[text]
    if not searched:
        raise UserError("There are no texts to search.")
    return [sorted(kept.items(), key=lambda pair: -pair[1]) for kept in best]


def _top_texts(
    texts: Sequence[str], scores: np.ndarray, order: np.ndarray, count: int
) -> dict[str, float]:
    """Return the first `count` distinct texts in an order."""
    out: dict[str, float] = {}
    for i in order.tolist():
        if len(out) == count:
            break
        out.setdefault(texts[i], float(scores[i]))
    return out


def _normalise(vectors: np.ndarray) -> np.ndarray:
    """Normalise rows to length 1; rows of zeros stay zero."""
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
