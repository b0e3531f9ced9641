"""Align two sets of word vectors by a rotation learned from pairs, and translate words with it.

V words   E width of a vector   P pairs   Q queries   k nearest
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError, near_miss
from weft.metrics import MetricValue, bootstrap_interval
from weft.vectors.neighbours import nearest, unit

if TYPE_CHECKING:
    from weft.vectors.store import Vectors

MAX_WORDS = 200_000  # words of each side that are compared, the most frequent ones
HUB_NEIGHBOURS = 10  # neighbours whose mean cosine tells a hub
REFINEMENT_WORDS = 15_000  # words whose translations refine the rotation: rare ones mislead
VALIDATION_WORDS = 10_000  # words whose translations tell whether a round helped


@dataclass(frozen=True)
class Round:
    """One fit: the pairs it was made of, and how near translations lie after it."""

    pairs: int
    nearness: float  # mean cosine of the frequent words and their translations


@dataclass(frozen=True)
class Alignment:
    """A rotation that maps source vectors into the target space.

    `shift` is taken off a source vector before the rotation and `base` added after it: the means
    of the pairs' two sides, where they are centred.
    """

    rotation: np.ndarray  # (E, E), orthogonal
    shift: np.ndarray | None = None  # (E,)
    base: np.ndarray | None = None  # (E,)
    normalised: bool = True  # vectors have length 1 before they are shifted
    pairs: int = 0  # that were known on both sides
    rounds: tuple[Round, ...] = ()  # of refinement, the first fit included

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Source vectors (V, E) in the target's space; a rotation alone keeps their lengths."""
        if self.shift is None or self.base is None:
            rotated: np.ndarray = np.asarray(rows, np.float32) @ self.rotation
            return rotated
        rows = unit(rows) if self.normalised else np.asarray(rows, np.float32)
        moved: np.ndarray = (rows - self.shift) @ self.rotation + self.base
        return moved


def align(
    source: Vectors,
    target: Vectors,
    pairs: Iterable[tuple[str, str]],
    *,
    normalise: bool = True,
    centre: bool = False,
    refine: int = 0,
    max_words: int = MAX_WORDS,
) -> Alignment:
    """The rotation that brings the pairs together best.

    `normalise` lets every pair weigh the same, whatever the lengths of its vectors; `centre` also
    moves the mean of the source's words onto that of the target's. Each of `refine` rounds fits
    again on the frequent words that are each other's translation (Conneau et al. 2018); the fit
    whose translations lie nearest is kept.
    """
    if source.matrix.shape[1] != target.matrix.shape[1]:
        raise UserError(
            f"Vectors of width {source.matrix.shape[1]} cannot be turned onto vectors of width "
            f"{target.matrix.shape[1]}. Train both with the same width."
        )
    rows = _covered_pairs(source, target, pairs)
    best = found = _fit(source, target, rows, normalise, centre)
    rounds: list[Round] = []
    for number in range(refine + 1 if refine else 0):
        space = Space(source, target, found, max_words)
        rounds.append(Round(len(rows), space.nearness()))
        if rounds[-1].nearness >= max(one.nearness for one in rounds):
            best = found
        if number < refine:
            rows = space.mutual()
            found = _fit(source, target, rows, normalise, centre)
    return replace(best, rounds=tuple(rounds))


def procrustes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The orthogonal W (E, E) that makes x W nearest to y, both (P, E) (Schönemann 1966)."""
    left, _, right = np.linalg.svd(x.T.astype(np.float64) @ y)
    rotation: np.ndarray = (left @ right).astype(np.float32)
    return rotation


def identical(source: Vectors, target: Vectors) -> list[tuple[str, str]]:
    """Words that are spelt the same on both sides, as a dictionary to begin with."""
    return [(word, word) for word in source.words if word in target.index]


class Space:
    """The words of both sides where an alignment puts them; finds translations there.

    Nearest neighbours alone would make hubs the translation of everything; CSLS (Conneau et al.
    2018) takes off how near a word is to its neighbours on the other side anyway.
    """

    def __init__(
        self, source: Vectors, target: Vectors, alignment: Alignment, max_words: int = MAX_WORDS
    ) -> None:
        self.source, self.target = source, target
        self.x = unit(alignment.apply(source.matrix[:max_words]))  # (V, E)
        self.y = unit(np.asarray(target.matrix[:max_words]))  # (V, E)

    @cached_property
    def source_hubs(self) -> np.ndarray:
        """(V,) mean cosine of each source word with its nearest target words."""
        hubs: np.ndarray = _nearest(self.y, self.x, HUB_NEIGHBOURS)[1].mean(1)
        return hubs

    @cached_property
    def target_hubs(self) -> np.ndarray:
        """(V,) mean cosine of each target word with its nearest source words."""
        hubs: np.ndarray = _nearest(self.x, self.y, HUB_NEIGHBOURS)[1].mean(1)
        return hubs

    def rank(self, rows: np.ndarray, k: int, csls: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Target rows and scores (Q, k), best first, for some source rows."""
        if not csls:
            return _nearest(self.y, self.x[rows], k)
        ids, scores = _csls(self.y, self.target_hubs, self.x[rows], k)
        hubs = _nearest(self.y, self.x[rows], HUB_NEIGHBOURS)[1].mean(1)
        return ids, scores - hubs[:, None]

    def translate(
        self, words: Sequence[str], k: int = 5, csls: bool = True
    ) -> list[list[tuple[str, float]]]:
        """The k best translations of each word with their scores."""
        for word in words:
            if self.source.index.get(word, len(self.x)) >= len(self.x):
                raise self.source.unknown_word(word)
        rows = np.array([self.source.index[word] for word in words], dtype=int)
        ids, scores = self.rank(rows, k, csls)
        return [
            [(self.target.words[i], score) for i, score in zip(*row, strict=True)]
            for row in zip(ids.tolist(), scores.tolist(), strict=True)
        ]

    def mutual(self, frequent: int = REFINEMENT_WORDS) -> np.ndarray:
        """(P, 2) rows of the frequent words that are each other's best translation."""
        there = _csls(self.y, self.target_hubs, self.x[:frequent], 1)[0][:, 0]
        back = _csls(self.x, self.source_hubs, self.y[:frequent], 1)[0][:, 0]
        rows = np.flatnonzero(there < len(back))
        rows = rows[back[there[rows]] == rows]
        return np.stack([rows, there[rows]], axis=1)

    def nearness(self, words: int = VALIDATION_WORDS) -> float:
        """Mean cosine of the most frequent words with their translations.

        It rises and falls with the translations' precision, but needs no dictionary.
        """
        x = self.x[:words]
        best = _csls(self.y, self.target_hubs, x, 1)[0][:, 0]
        return float(np.einsum("qe,qe->q", x, self.y[best]).mean())


@dataclass(frozen=True)
class Precision:
    """Precision at k over the dictionary words that have vectors."""

    words: int
    found: int
    at: dict[int, MetricValue]  # k -> share of the words found

    @property
    def coverage(self) -> float:
        return self.found / self.words

    def to_json(self) -> dict[str, object]:
        figures = {f"precision@{k}": figure.to_json() for k, figure in self.at.items()}
        return {
            **figures,
            "words": self.words,
            "found": self.found,
            "coverage": self.coverage,
        }


def precision(
    space: Space,
    pairs: Iterable[tuple[str, str]],
    *,
    at: Sequence[int] = (1, 5),
    csls: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> Precision:
    """Translate the first word of each pair; any second word it has in the pairs is right."""
    gold: dict[str, set[int]] = {}
    for word, translation in pairs:
        row = space.target.index.get(translation, len(space.y))
        gold.setdefault(word, set()).update([row] if row < len(space.y) else [])
    covered = [
        w for w in gold if gold[w] and space.source.index.get(w, len(space.x)) < len(space.x)
    ]
    rows = np.array([space.source.index[word] for word in covered], dtype=int)
    if not len(rows):
        return Precision(len(gold), 0, {k: MetricValue(0.0, 0.0, 0.0, 0) for k in at})
    ids, _ = space.rank(rows, max(at), csls)
    hits = [[i in gold[w] for i in row] for w, row in zip(covered, ids.tolist(), strict=True)]
    figures = {}
    for k in at:
        right = np.array([any(row[:k]) for row in hits])
        figures[k] = bootstrap_interval(np.mean, right, resamples=resamples, seed=seed)
    return Precision(len(gold), len(covered), figures)


def _covered_pairs(
    source: Vectors, target: Vectors, pairs: Iterable[tuple[str, str]]
) -> np.ndarray:
    """(P, 2) rows of the pairs that have both vectors."""
    given = list(pairs)
    if not given:
        raise UserError("No pairs of words to align with.")
    rows = [
        (source.index[a], target.index[b])
        for a, b in given
        if a in source.index and b in target.index
    ]
    if not rows:
        a, b = given[0]
        side, word = (source, a) if a not in source.index else (target, b)
        raise UserError(
            f"None of the {len(given)} pairs has vectors on both sides, for example '{a}' and "
            f"'{b}'.{near_miss(word, side.words[:10_000])} The source comes first in a pair."
        )
    return np.array(rows)


def _fit(
    source: Vectors, target: Vectors, rows: np.ndarray, normalise: bool, centre: bool
) -> Alignment:
    x, y = (
        np.asarray(side.matrix[column], np.float32)
        for side, column in zip((source, target), rows.T, strict=True)
    )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UserError("Some vectors of the pairs are not finite numbers. Train or copy again.")
    if normalise:
        x, y = unit(x), unit(y)
    if not centre:
        return Alignment(procrustes(x, y), normalised=normalise, pairs=len(rows))
    shift, base = x.mean(0), y.mean(0)
    return Alignment(procrustes(x - shift, y - base), shift, base, normalise, len(rows))


def _nearest(rows: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and cosines of unit vectors, (Q, k) each; blocked, so never the whole (Q, V)."""
    return nearest(rows, np.ones(len(rows), np.float32), queries, k)


def _csls(
    rows: np.ndarray, hubs: np.ndarray, queries: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and scores 2 cos - hub, (Q, k) each; the query's own hub would not change the order."""
    # One more number in each vector, so that the product is the score.
    wider = np.concatenate([2 * queries, np.ones((len(queries), 1), np.float32)], axis=1)
    return _nearest(np.concatenate([rows, -hubs[:, None]], axis=1), wider, k)
