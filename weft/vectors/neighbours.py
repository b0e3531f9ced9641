"""Nearest words by cosine or Euclidean distance, block by block, and analogies on top of them.

V words   E width   Q queries   k answers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from weft.embed.vector_files.table import not_finite_error
from weft.errors import UserError

Method = Literal["add", "multiply"]
ANALOGY_METHODS: tuple[Method, ...] = ("add", "multiply")
Metric = Literal["cosine", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "euclidean")
BLOCK_SCORES = (
    1 << 22
)  # scores computed at once: 16 MB, so that they are still in the cache when ranked
EPSILON = 1e-3  # of 3CosMul: keeps the division finite (Levy & Goldberg 2014)


def norms(matrix: np.ndarray, words: Sequence[str], place: str = "") -> np.ndarray:
    """The length of each row, (V,); 1 for a row of zeros, whose cosine with anything is then 0.

    `place` is the file that an error names.
    """
    found = np.empty(len(matrix), np.float32)
    step = max(1, BLOCK_SCORES // max(1, matrix.shape[1]))
    for begin in range(0, len(matrix), step):
        block = np.asarray(matrix[begin : begin + step], np.float32)
        # Squares of numbers near float32's end overflow, and of tiny ones vanish.
        length = np.sqrt(np.einsum("ve,ve->v", block, block, dtype=np.float64))
        if not np.isfinite(length).all():
            row = begin + int(np.flatnonzero(~np.isfinite(length))[0])
            raise not_finite_error(words[row], row, place)
        found[begin : begin + step] = length
    found[found == 0] = 1
    return found


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1 in the same directions; zeros stay zeros."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def nearest(
    matrix: np.ndarray,
    lengths: np.ndarray,
    queries: np.ndarray,
    k: int = 10,
    without: Sequence[Sequence[int]] = (),
    rule: Method | Metric = "cosine",
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and scores of the k best words for each query, best first, (Q, k) each.

    `queries` are (Q, E), or for the analogy rules (Q, 3, E): a, b, c of "a is to b as c is to …",
    all of length 1. With `euclidean` they have any length, and the scores are minus the distances.
    `without` names rows that do not count, a list a query.
    """
    V, Q = len(matrix), len(queries)
    excluded = max((len(rows) for rows in without), default=0)
    k = max(0, min(k, V - excluded))
    if rule == "add":
        # With the query brought to length 1 the score is a cosine; the order stays the same.
        queries, rule = unit(queries[:, 1] - queries[:, 0] + queries[:, 2]), "cosine"
    ids = np.zeros((Q, k), np.int64)
    scores = np.full((Q, k), -np.inf, np.float32)
    if not k:
        return ids, scores
    many = min(Q, 512)
    plain = matrix.flags.aligned and matrix.dtype == np.float32
    wide = rule == "euclidean" or not plain  # a block is copied, or subtracted from
    step = max(k, BLOCK_SCORES // max(1, many, matrix.shape[1] if wide else 0))
    for first in range(0, Q, many):
        part = slice(first, first + many)
        gone = without[part] if len(without) else ()
        for begin in range(0, V, step):
            rows = np.asarray(matrix[begin : begin + step], np.float32)
            found = _scores(rows, lengths[begin : begin + step], queries[part], rule)  # (q, v)
            for q, excluding in enumerate(gone):
                inside = [row - begin for row in excluding if begin <= row < begin + len(rows)]
                found[q, inside] = -np.inf
            ids[part], scores[part] = _merge(ids[part], scores[part], found, begin, k)
    return ids, scores


def _scores(rows: np.ndarray, lengths: np.ndarray, queries: np.ndarray, rule: str) -> np.ndarray:
    """Scores of a block of words, (Q, v)."""
    if rule == "cosine":
        scores: np.ndarray = queries @ rows.T
        scores /= lengths
        return scores
    if rule == "euclidean":
        return np.stack([_negative_distances(rows, query) for query in queries])
    cosines = np.einsum("qxe,ve->xqv", queries, rows, optimize=True) / lengths  # (3, Q, v)
    a, b, c = (cosines + 1) / 2  # from 0 to 1: a product of negative numbers would mislead
    return np.asarray(b * c / (a + EPSILON), np.float32)


def _negative_distances(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """−‖v − q‖ of each row, (v,); from differences, as |v|² − 2 v·q + |q|² cancels."""
    differences = rows - query  # (v, E)
    squares = np.einsum("ve,ve->v", differences, differences, dtype=np.float64)
    return np.asarray(-np.sqrt(squares), np.float32)


def _merge(
    ids: np.ndarray, scores: np.ndarray, found: np.ndarray, begin: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best k of those so far and of one block; of equals the first row wins."""
    Q, v = found.shape
    if np.isfinite(scores[:, -1]).all():
        # Few of a later block are better than the worst so far: no need to rank the others.
        query, best = np.nonzero(found > scores[:, -1:])
    else:
        size = min(k, v)
        best = np.argpartition(found, v - size, axis=1)[:, v - size :].ravel()
        query = np.repeat(np.arange(Q), size)
    if not len(query):
        return ids, scores
    queries = np.concatenate([np.repeat(np.arange(Q), k), query])
    all_ids = np.concatenate([ids.ravel(), best + begin])
    all_scores = np.concatenate([scores.ravel(), found[query, best]])
    order = np.lexsort((all_ids, -all_scores, queries))
    counts = k + np.bincount(query, minlength=Q)
    picked = order[(np.cumsum(counts) - counts)[:, None] + np.arange(k)]  # (Q, k)
    return all_ids[picked], all_scores[picked]


class Approximate:
    """A graph over the vectors (HNSW, Malkov & Yashunin 2016) for vocabularies of millions.

    Kept by usearch: small, maintained, with wheels for every system. Building takes minutes for
    millions of words and happens once: `save` and `open` keep it beside the vectors.
    """

    def __init__(self, width: int) -> None:
        try:
            from usearch.index import Index
        except ImportError as error:
            raise UserError(
                "Approximate neighbours need usearch: pip install 'weft[ann]' (or usearch)."
            ) from error
        self.index = Index(ndim=width, metric="cos", dtype="f32")

    @classmethod
    def build(cls, matrix: np.ndarray) -> Approximate:
        """Put every row into the graph."""
        made = cls(matrix.shape[1])
        step = max(1, (BLOCK_SCORES * 8) // max(1, matrix.shape[1]))
        for begin in range(0, len(matrix), step):
            rows = np.ascontiguousarray(matrix[begin : begin + step], np.float32)
            made.index.add(np.arange(begin, begin + len(rows), dtype=np.uint64), rows)
        return made

    @classmethod
    def open(cls, path: str, rows: int, width: int) -> Approximate:
        """A saved graph, mapped; it must be of as many vectors."""
        made = cls(width)
        try:
            made.index.view(path)
        except RuntimeError as error:
            raise UserError(
                f"{path}: broken ({error}). Delete it, and it is made again."
            ) from error
        if len(made.index) != rows or made.index.ndim != width:
            raise UserError(
                f"{path}: a graph of {len(made.index)} vectors of width {made.index.ndim}, but "
                f"there are {rows} of width {width}. Delete it, and it is made again."
            )
        return made

    def save(self, path: str) -> None:
        """Write the graph, vectors included."""
        self.index.save(path)

    def nearest(
        self, query: np.ndarray, k: int, without: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and cosines of about the k best words, best first."""
        found = self.index.search(query, min(k + len(without), len(self.index)))
        ids = np.asarray(found.keys, np.int64)
        kept = ~np.isin(ids, np.asarray(without, np.int64))
        return ids[kept][:k], 1 - np.asarray(found.distances, np.float32)[kept][:k]
