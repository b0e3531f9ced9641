"""Averages over several models: probabilities of tags, arcs and labels, then one search.

p̄ = Σ w_m p_m, with weights that sum to 1; the search runs on the average, not on the answers.

T words   C tags or labels   S = T + 1 heads, the root first   N spans of a sentence
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from weft.batch.padded import Padded
from weft.batch.ragged import pad
from weft.decode.heads.biaffine import TreeSearch, best_heads
from weft.decode.heads.crf import CRF
from weft.decode.heads.span_constituency import best_spans
from weft.errors import UserError
from weft.text.annotation.schemes import allowed_transitions

TagColumns = Sequence[tuple[Sequence[str], str]]  # labels and span scheme of each column
DecodedRow = tuple[np.ndarray, np.ndarray]  # a table, and its probabilities
ROWS = 256  # sentences decoded together


@dataclass(frozen=True)
class TagProbs:
    """The probability of every tag of a sentence, column by column.

    If tags are `chained`, only sequences that their scheme allows may be predicted.
    """

    columns: tuple[np.ndarray, ...]  # (T, C) each; of a CRF, its marginals
    chained: bool

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True)
class ArcProbs:
    """The log-probability of every head, and a function for the relations to chosen heads."""

    heads: np.ndarray  # (T, S) -inf where the head is the word itself
    relations: Callable[[np.ndarray], np.ndarray]  # heads (T,) -> probabilities (T, C)
    tags: TagProbs | None
    search: TreeSearch

    def __len__(self) -> int:
        return len(self.heads)


@dataclass(frozen=True)
class SpanScores:
    """The score of every label for every span of a sentence; an unlabelled span scores 0."""

    scores: np.ndarray  # (N, C)
    tags: TagProbs

    def __len__(self) -> int:
        return len(self.tags)


@dataclass(frozen=True)
class NodeProbs:
    """The probability of every label for every node of a tree."""

    probs: np.ndarray  # (T, C)

    def __len__(self) -> int:
        return len(self.probs)


SentenceScores = TagProbs | ArcProbs | SpanScores | NodeProbs
One = TypeVar("One", TagProbs, ArcProbs, SpanScores, NodeProbs)


def join_tags(parts: Sequence[TagProbs]) -> TagProbs:
    """Join the parts of a sentence that was split for its length."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.columns for part in parts), strict=True)
    return TagProbs(tuple(np.concatenate(column) for column in columns), parts[0].chained)


def decode_average(
    rows: Sequence[Sequence[SentenceScores]], weights: np.ndarray, outputs: TagColumns
) -> list[DecodedRow]:
    """Return the table and its probabilities of each sentence; a row has one entry per model."""
    kinds = {type(one) for row in rows for one in row}
    if not rows:
        return []
    if len(kinds) > 1:
        raise UserError("These models label words in different ways, so they cannot be averaged.")
    if tags := _all_of(rows, TagProbs):
        return _decode_tags(tags, weights, outputs)
    if arcs := _all_of(rows, ArcProbs):
        return _decode_arcs(arcs, weights, outputs)
    if spans := _all_of(rows, SpanScores):
        return _decode_spans(spans, weights, outputs)
    means = [_mean([one.probs for one in row], weights) for row in _all_of(rows, NodeProbs)]
    return [(mean.argmax(1)[:, None], mean) for mean in means]


def _all_of(rows: Sequence[Sequence[SentenceScores]], kind: type[One]) -> list[list[One]]:
    """Return the rows if all entries are of a kind, else []."""
    kept = [[one for one in row if isinstance(one, kind)] for row in rows]
    return kept if all(kept) else []


def _mean(values: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return Σ w_m p_m."""
    mean: np.ndarray = np.tensordot(weights, np.stack(values).astype(np.float64), 1)
    return mean


def average_tags(row: Sequence[TagProbs], weights: np.ndarray) -> TagProbs:
    """Return the mean probabilities of a sentence; chained if one of the models is."""
    columns = zip(*(one.columns for one in row), strict=True)
    means = tuple(_mean(column, weights) for column in columns)
    return TagProbs(means, any(one.chained for one in row))


def _decode_tags(
    rows: Sequence[Sequence[TagProbs]], weights: np.ndarray, outputs: TagColumns
) -> list[DecodedRow]:
    """Return the tags with the highest expected accuracy under p̄, and their probabilities.

    Σ_t p̄_t(y_t) is the expected number of right tags. Its maximum is the best tag of every word,
    or the best sequence that the scheme allows (posterior decoding, a minimum-risk rule).
    """
    means = [average_tags(row, weights) for row in rows]
    columns = []
    for k, (labels, scheme) in enumerate(outputs):
        probs = [one.columns[k] for one in means]
        chained = bool(scheme) and any(one.chained for one in means)
        columns.append(
            _best_allowed(probs, labels, scheme) if chained else [p.argmax(1) for p in probs]
        )
    out = []
    for i, mean in enumerate(means):
        table = np.stack([column[i] for column in columns], axis=1)  # (T, K)
        chosen = [
            np.take_along_axis(probs, table[:, k, None], 1)[:, 0]
            for k, probs in enumerate(mean.columns)
        ]
        out.append((table, np.stack(chosen, axis=1)))
    return out


def _best_allowed(
    probs: Sequence[np.ndarray], labels: Sequence[str], scheme: str
) -> list[np.ndarray]:
    """Return the allowed tags (T,) of each sentence with the highest sum of probabilities."""
    chain = CRF(len(labels), allowed_transitions(labels, scheme), labels)  # without scores
    out: list[np.ndarray] = []
    for at in range(0, len(probs), ROWS):
        part = [row.astype(np.float32) for row in probs[at : at + ROWS]]
        lengths = np.array([len(row) for row in part])
        emissions = Padded(torch.from_numpy(pad(part, lengths)), torch.from_numpy(lengths))
        best, _ = chain.viterbi(emissions)
        out += [row[:n].numpy() for row, n in zip(best, lengths.tolist(), strict=True)]
    return out


def _decode_arcs(
    rows: Sequence[Sequence[ArcProbs]], weights: np.ndarray, outputs: TagColumns
) -> list[DecodedRow]:
    """Return the best tree under the mean probability of heads, and then of relations.

    For one model that is its own tree: log-softmax adds the same number to all heads of a word.
    """
    tags = [[one.tags for one in row if one.tags is not None] for row in rows]
    tagged = _decode_tags(tags, weights, outputs[1:]) if all(tags) else []
    out = []
    for i, row in enumerate(rows):
        with np.errstate(divide="ignore"):
            arcs = np.log(_mean([np.exp(one.heads) for one in row], weights))  # (T, S)
        floor = np.where(np.isneginf(row[0].heads), -np.inf, -1e4)  # a tree must exist
        arcs = np.maximum(arcs, floor)
        heads = best_heads(arcs[None].astype(np.float32), np.array([len(arcs)]), row[0].search)[0]
        relations = _mean([one.relations(heads) for one in row], weights)  # (T, C)
        labels = relations.argmax(1)
        words = np.arange(len(arcs))
        probs = np.exp(arcs[words, heads]) * relations[words, labels]
        table, chosen = np.stack([heads, labels], axis=1), probs[:, None]
        if tagged:
            table = np.concatenate([table, tagged[i][0]], axis=1)
            chosen = np.concatenate([chosen, tagged[i][1]], axis=1)
        out.append((table, chosen))
    return out


def _decode_spans(
    rows: Sequence[Sequence[SpanScores]], weights: np.ndarray, outputs: TagColumns
) -> list[DecodedRow]:
    """Return the tree with the highest mean score; margins are on one scale for all models."""
    tagged = _decode_tags([[one.tags for one in row] for row in rows], weights, outputs[1:])
    out = []
    for row, (tags, probs) in zip(rows, tagged, strict=True):
        spans = best_spans(_mean([one.scores for one in row], weights), len(tags))
        table = np.full((max(len(tags), len(spans)), 4), -1, np.int64)
        table[: len(tags), 0] = tags[:, 0]
        if spans:
            table[: len(spans), 1:] = spans
        out.append((table, probs))
    return out
