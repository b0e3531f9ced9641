"""Modified Kneser–Ney smoothing, interpolated (Chen & Goodman 1998), as KenLM's lmplz defines it.

An n-gram below the highest order counts once for each different word before it, unless it begins
a sentence: nothing comes before that, and it keeps its own count (Heafield et al. 2013).
M n-grams   N the order
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from weft.classic.ngram import kernels as kernels
from weft.classic.ngram.counts import Counts, in_parallel, shared_prefix
from weft.classic.ngram.trie import NGram, order_starts
from weft.errors import UserError

FALLBACK = (0.5, 1.0, 1.5)  # what lmplz takes with --discount_fallback


@dataclass(frozen=True)
class KneserNeyFit:
    """A model and the discounts behind it, those of n-grams that count 1, 2, and 3 or more."""

    model: NGram
    discounts: np.ndarray  # (N, 3)
    fallback: tuple[int, ...]  # orders whose counts gave no discounts, and took the fallback


def kneser_ney(
    counts: Counts,
    prune: Sequence[int] = (),
    fallback: tuple[float, float, float] = FALLBACK,
) -> KneserNeyFit:
    """Estimate a model.

    `prune` has a number for each order, the last for all further ones: n-grams that occur so often
    or less are left out after the discounts are known, and histories back off from them.
    """
    limits = check_limits(prune, counts.order)
    links = counts.shorter()
    weights = adjusted_counts(counts, links)
    kept = np.ones(len(weights), dtype=np.bool_)
    for order in range(2, counts.order + 1):
        kept[counts.span(order)] = counts.counts[counts.span(order)] > limits[order - 1]
    found, failed = [], []
    for order in range(1, counts.order + 1):
        values = discounts(weights[counts.span(order)])
        if values is None:
            failed.append(order)
        found.append(fallback if values is None else values)
    table = np.array(found)  # (N, 3)
    probabilities, gammas = _estimate(counts, weights, kept, links, table)
    model = _kept_model(counts, kept, probabilities, gammas)
    return KneserNeyFit(model, table, tuple(failed))


def adjusted_counts(counts: Counts, links: np.ndarray) -> np.ndarray:
    """(M,) int32: in how many different contexts to the left each n-gram occurs.

    At the highest order, and where an n-gram begins a sentence, how often it occurs.
    """
    out = counts.counts.copy()
    bos = counts.marks.bos
    begin, end = bos, bos + 1  # what begins with `bos` lies side by side in every order
    for order in range(1, counts.order):
        span, above = counts.span(order), counts.span(order + 1)
        own = out[begin:end].copy()
        out[span] = np.bincount(links[above] - span.start, minlength=span.stop - span.start)
        out[begin:end] = own
        begin, end = int(counts.first[begin]), int(counts.first[end])
    out[bos] = 0  # is never predicted
    return out


def discounts(weights: np.ndarray) -> tuple[float, float, float] | None:
    """The three discounts of an order (Chen & Goodman 1998, equation 26).

    None where they cannot be had: a count from 1 to 3 that no n-gram has, or a discount that is
    negative or takes more than there is.
    """
    n = np.bincount(np.minimum(weights, 5), minlength=6).astype(np.float64)
    if not n[1:4].all():
        return None
    y = n[1] / (n[1] + 2 * n[2])
    one, two, three = (j - (j + 1) * y * n[j + 1] / n[j] for j in (1, 2, 3))
    fits = 0 <= one <= 1 and 0 <= two <= 2 and 0 <= three <= 3
    return (one, two, three) if fits else None


def _estimate(
    counts: Counts, weights: np.ndarray, kept: np.ndarray, links: np.ndarray, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (M,), zero for what is not kept, and what each history leaves (I,)."""
    probabilities = np.zeros(len(weights))
    gammas = np.ones(len(counts.first) - 1)
    taken = np.concatenate([np.zeros((len(table), 1)), table], axis=1)  # (N, 4), by the count
    words = weights[: counts.size]
    total = words.sum()
    left = taken[0][np.minimum(words, 3)].sum() / total
    uniform = left / counts.predicted
    probabilities[: counts.size] = (words - taken[0][np.minimum(words, 3)]) / total + uniform
    probabilities[list(counts.marks.silent)] = 0
    for order in range(2, counts.order + 1):
        known = (weights, kept, counts.first, links, taken[order - 1], probabilities, gammas)
        spans = shared_prefix(counts.first, *counts.starts[order - 2 : order])
        in_parallel(partial(kernels.discounted, *known), spans)
    return probabilities, gammas


def _kept_model(
    counts: Counts, kept: np.ndarray, probabilities: np.ndarray, gammas: np.ndarray
) -> NGram:
    """The model of the n-grams that were kept; so are the prefixes of each."""
    with np.errstate(divide="ignore"):
        scores = np.log(probabilities[kept]).astype(np.float32)
        backoffs = np.log(gammas).astype(np.float32)
    words, first = counts.words, counts.first
    if not kept.all():
        moved = np.concatenate([[0], np.cumsum(kept)])
        words, inner = words[kept], kept[: len(gammas)]
        first = np.append(moved[first[:-1][inner]], moved[-1]).astype(np.int32)
        backoffs = backoffs[inner]
    starts = order_starts(first, counts.size, len(words))
    inside = starts[-2]  # pruning may leave nothing of the highest order
    return NGram(words, first[: inside + 1], scores, backoffs[:inside], starts, counts.marks)


def check_limits(prune: Sequence[int], order: int) -> list[int]:
    """A limit for each order, or a UserError for numbers that make no sense."""
    limits = [int(limit) for limit in prune] or [0]
    if len(limits) > order:
        raise UserError(
            f"prune has {len(limits)} numbers, and the n-grams have orders 1 to {order}."
        )
    if limits[0] != 0:
        raise UserError(f"prune begins with {limits[0]}; single words cannot be left out: give 0.")
    if any(b < a for a, b in pairwise(limits)):
        raise UserError(
            f"prune is {limits}; a longer n-gram needs the same number or a higher one."
        )
    return limits + limits[-1:] * (order - len(limits))
