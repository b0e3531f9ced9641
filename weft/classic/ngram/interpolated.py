"""The interpolated n-gram model: a mixture of relative frequencies, weighted by held-out text.

p(w | h) = Σ λ_k p_k(w | the last k − 1 words of h), where p_0 is uniform and p_k the relative
frequency. A history that was never met has none; its weight is shared by the others in proportion.
The same in steps: p_k is trusted by a share μ_k, and the rest goes to the shorter history.
The shares are fitted by EM (Jelinek & Mercer 1980).
n words of held-out text   N the order   K buckets of histories
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from weft.classic.ngram import kernels as kernels
from weft.classic.ngram.counts import (
    Counts,
    Sentences,
    concatenate_sentences,
    in_parallel,
    shared_prefix,
)
from weft.classic.ngram.trie import NGram
from weft.errors import UserError

BUCKETS = 32  # by the binary logarithm of how often a history was met
ROUNDS = 200
CLOSE = 1e-7  # nats a word: when a round gains less, EM ends


@dataclass(frozen=True)
class InterpolatedFit:
    """A model and the shares behind it."""

    model: NGram
    weights: np.ndarray  # (N + 1,) λ of orders 0 … N; with buckets, the mean over held-out words
    shares: np.ndarray  # (N, K) μ of orders 1 … N; K is 1 where there is one for all histories
    perplexity: float  # on the held-out text


def estimate_interpolated(
    counts: Counts, held_out: Sentences, buckets: bool = False
) -> InterpolatedFit:
    """Estimate a model from counts and text that they were not taken from.

    With `buckets`, histories that were met about equally often have a share of their own, so that
    frequent ones are trusted more.
    """
    frequencies, histories = _observe(counts, held_out)
    single, all_ = np.full((counts.order, 1), 0.5), np.where(histories > 0, 0, -1)
    shares, nats = fit_weights(frequencies, all_, single)
    shares = _modest(shares, all_)
    weights = weights_from_shares(shares[:, 0])
    if buckets:
        # A bucket that held-out text says nothing about keeps the share of its order.
        start = np.repeat(shares, BUCKETS, axis=1)
        shares, nats = fit_weights(frequencies, bucket(histories), start)
        shares = _modest(shares, bucket(histories))
        weights = _mean_weights(shares, bucket(histories))
    return InterpolatedFit(_model(counts, shares), weights, shares, float(np.exp(nats)))


def _modest(shares: np.ndarray, buckets: np.ndarray) -> np.ndarray:
    """Shares (N, K) that leave something: of all held-out words and one more, that one.

    Where histories knew every word that followed them, all others would be impossible.
    """
    out = shares.copy()
    for own, column in zip(out, buckets.T, strict=True):
        queries = np.bincount(column[column >= 0], minlength=len(own))
        own[:] = np.where(queries > 0, np.minimum(own, queries / (queries + 1)), own)
    return out


def bucket(histories: np.ndarray) -> np.ndarray:
    """floor(log2) of how often each history was met, and −1 for those that never were."""
    return np.frexp(histories.astype(np.float64))[1] - 1


def fit_weights(
    frequencies: np.ndarray, buckets: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, float]:
    """The shares (N, K) under which held-out words are most likely, and their mean loss in nats.

    `frequencies` is (n, N + 1); `buckets` (n, N) names the share of each history, −1 where it was
    never met. Every word must have a frequency above zero somewhere.
    """
    shares, known = shares.copy(), buckets >= 0  # (n, N)
    orders = np.arange(shares.shape[0])
    places = orders * shares.shape[1] + np.maximum(buckets, 0)  # (n, N) into the flat shares
    before = np.inf
    for _ in range(ROUNDS):
        own = np.where(known, shares.ravel()[places], 0.0)  # (n, N)
        mixture = np.empty_like(frequencies)  # (n, N + 1): p with the first k orders
        mixture[:, 0] = frequencies[:, 0]
        for k in orders:
            mixture[:, k + 1] = own[:, k] * frequencies[:, k + 1] + (1 - own[:, k]) * mixture[:, k]
        nats = float(-np.log(mixture[:, -1]).mean())
        if before - nats < CLOSE:
            break
        before = nats
        # The chance that the word was drawn at order k or below, and at order k itself.
        reached = np.ones(len(own))
        for k in orders[::-1]:
            chance = own[:, k] * frequencies[:, k + 1]
            stopped = reached * np.divide(
                chance, mixture[:, k + 1], out=np.zeros_like(chance), where=chance > 0
            )
            in_vocabulary = known[:, k]
            size = shares.shape[1]
            wanted = np.bincount(buckets[in_vocabulary, k], reached[in_vocabulary], minlength=size)
            given = np.bincount(buckets[in_vocabulary, k], stopped[in_vocabulary], minlength=size)
            shares[k] = np.divide(given, wanted, out=shares[k], where=wanted > 0)
            reached = reached - stopped
    return shares, nats


def _observe(counts: Counts, held_out: Sentences) -> tuple[np.ndarray, np.ndarray]:
    """Relative frequencies (n, N + 1) of the held-out words, and how often histories were met."""
    ids, ends = concatenate_sentences(held_out, counts.size, counts.marks)
    if not len(ends):
        raise UserError(
            "There is no held-out text to fit the weights of an n-gram model on. Pass --dev FILE, "
            "or set data.dev_fraction above 0."
        )
    times = np.zeros((len(ids) + len(ends), counts.order))
    histories = np.zeros_like(times)
    marks = (counts.marks.bos, counts.marks.eos, counts.order)
    kernels.observe(counts.words, counts.first, counts.counts, marks, ids, ends, times, histories)
    histories[:, 0] = _words(counts)
    frequencies = np.full((len(times), counts.order + 1), 1 / counts.predicted)
    frequencies[:, 1:] = np.divide(times, histories, out=times, where=histories > 0)
    return frequencies, histories


def _words(counts: Counts) -> int:
    """Running words and ends of sentences: all that can be predicted."""
    return int(counts.counts[: counts.size].sum()) - int(counts.counts[counts.marks.bos])


def _model(counts: Counts, shares: np.ndarray) -> NGram:
    """The mixture written as a backoff model: what a history does not know, it leaves."""
    many = shares.shape[1] > 1
    words = _words(counts)
    own = shares[0, bucket(np.array(words)) if many else 0]
    probabilities = np.zeros(len(counts.words))
    probabilities[: counts.size] = own * counts.counts[: counts.size] / words
    probabilities[: counts.size] += (1 - own) / counts.predicted
    probabilities[list(counts.marks.silent)] = 0
    inner = len(counts.first) - 1
    trust, links = np.zeros(inner), counts.shorter()
    for order in range(2, counts.order + 1):
        begin, end = counts.starts[order - 2 : order]
        met = counts.counts[begin:end]
        trust[begin:end] = shares[order - 1][np.maximum(bucket(met), 0) if many else 0]
        # A history that nothing follows (a sentence ends with it) leaves everything.
        trust[begin:end][np.diff(counts.first[begin : end + 1]) == 0] = 0
        known = (counts.counts, counts.first, links, trust, probabilities)
        in_parallel(partial(kernels.mixed, *known), shared_prefix(counts.first, begin, end))
    with np.errstate(divide="ignore"):
        scores, backoffs = np.log(probabilities), np.log1p(-trust)
    return NGram(
        counts.words,
        counts.first,
        scores.astype(np.float32),
        backoffs.astype(np.float32),
        counts.starts,
        counts.marks,
    )


def weights_from_shares(shares: np.ndarray) -> np.ndarray:
    """Return λ (…, N + 1) of orders 0 … N from the shares (…, N) of orders 1 … N."""
    out = np.ones((*shares.shape[:-1], shares.shape[-1] + 1))
    for k in range(shares.shape[-1]):
        out[..., : k + 1] *= 1 - shares[..., k : k + 1]
        out[..., k + 1] = shares[..., k]
    return out


def _mean_weights(shares: np.ndarray, buckets: np.ndarray) -> np.ndarray:
    """Return the mean λ (N + 1,) over held-out words whose histories lie in `buckets` (n, N)."""
    orders = np.arange(len(shares))
    own = np.where(buckets >= 0, shares[orders, np.maximum(buckets, 0)], 0.0)  # (n, N)
    mean: np.ndarray = weights_from_shares(own).mean(0)
    return mean
