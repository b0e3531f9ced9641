"""Kneser–Ney and interpolated models: against exact fractions, KenLM's figures, and the mixture."""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest

from tests.fixtures.ngram_counts import MARKS, SIZE, grams, sentences
from weft.classic.ngram.counts import count
from weft.classic.ngram.interpolated import bucket, estimate_interpolated, fit_weights
from weft.classic.ngram.kneser_ney import FALLBACK, adjusted_counts, discounts, kneser_ney
from weft.errors import UserError

PREDICTED = [i for i in range(SIZE) if i not in MARKS.silent]
FRESH = [*sentences(31, 6), [4, 1, 5], [1, 1]]  # some words that were never met


class Exact:
    """Chen & Goodman's modified Kneser–Ney as the paper writes it, in fractions."""

    def __init__(self, rows, order, prune=()):
        self.raw, self.order = grams(rows, order), order
        limits = [*prune, *[prune[-1] if prune else 0] * order][:order]
        self.weights = {}
        for gram, times in self.raw.items():
            lefts = [g for g in self.raw if g[1:] == gram and len(g) > 1]
            whole = len(gram) == order or gram[0] == MARKS.bos
            self.weights[gram] = times if whole else len(lefts)
        self.weights.pop((MARKS.bos,))
        self.kept = {g for g in self.weights if len(g) == 1 or self.raw[g] > limits[len(g) - 1]}
        self.discounts = [self._discounts(k) for k in range(1, order + 1)]
        self.after = defaultdict(list)
        for gram in self.weights:
            self.after[gram[:-1]].append(gram)

    def _discounts(self, order):
        n = Counter(w for gram, w in self.weights.items() if len(gram) == order)
        if not (n[1] and n[2] and n[3]):
            return [Fraction(d) for d in FALLBACK]
        y = Fraction(n[1], n[1] + 2 * n[2])
        found = [j - (j + 1) * y * Fraction(n[j + 1], n[j]) for j in (1, 2, 3)]
        fits = all(0 <= d <= j for j, d in enumerate(found, 1))
        return found if fits else [Fraction(d) for d in FALLBACK]

    def probability(self, word, history):
        """p(word | history); with no history left, the uniform distribution is below."""
        history = tuple(history)[-self.order + 1 :] if self.order > 1 else ()
        below = Fraction(1, len(PREDICTED))
        for k in range(len(history) + 1):
            context = history[len(history) - k :]
            seen = self.after.get(context)
            if not seen:
                continue
            total = sum(self.weights[g] for g in seen)
            cut = {g: self.discounts[k][min(self.weights[g], 3) - 1] for g in seen}
            left = sum(cut[g] if g in self.kept else self.weights[g] for g in seen)
            gram, own = (*context, word), 0
            if gram in self.kept:
                own = self.weights[gram] - cut[gram]
            below = (own + left * below) / total
        return below


@pytest.mark.parametrize(("order", "prune"), [(1, ()), (2, ()), (4, ()), (4, (0, 0, 1, 2))])
def test_kneser_ney_is_exact(order, prune):
    rows = sentences(53)
    exact, found = Exact(rows, order, prune), kneser_ney(count(rows, SIZE, order), prune)
    assert np.allclose(found.discounts, np.array(exact.discounts, float), atol=1e-12)
    fresh = [*sentences(11, 6), [4, 1, 5], [12, 12, 12]]
    for row, scores in zip(fresh, found.model.sentence_scores(fresh), strict=True):
        framed = [MARKS.bos, *row, MARKS.eos]
        for t, score in enumerate(scores, 1):
            wanted = exact.probability(framed[t], framed[:t])
            assert np.exp(np.float64(score)) == pytest.approx(float(wanted), rel=2e-6)


# Perplexities of KenLM 0.3.0: lmplz -o N --discount_fallback [--prune …], then query. Unknown words
# count, and lmplz had every word here but <unk> in its text.
@pytest.mark.parametrize(
    ("order", "prune", "kenlm"),
    [
        (4, (), 8.781889395),
        (4, (0, 0, 1, 2), 8.375851417),
        (3, (0, 1), 8.058844941),
        (5, (), 8.870631368),
    ],
)
def test_perplexities_are_those_of_kenlm(order, prune, kenlm):
    found = kneser_ney(count(sentences(397), SIZE, order), prune)
    assert found.fallback == (1,)
    assert found.model.perplexity(FRESH) == pytest.approx(kenlm, rel=1e-6)


def test_ngrams_at_sentence_start_keep_their_raw_count():
    counts = count([[4, 5], [4, 5], [6, 5]], SIZE, 3)
    weights = adjusted_counts(counts, counts.shorter())
    assert weights[[MARKS.bos, 4, 5, 6, MARKS.eos]].tolist() == [0, 1, 2, 1, 1]
    begin, end = counts.first[MARKS.bos], counts.first[MARKS.bos + 1]
    assert dict(
        zip(counts.words[begin:end].tolist(), weights[begin:end].tolist(), strict=True)
    ) == {
        4: 2,
        6: 1,
    }


def test_discounts_that_cannot_be_had():
    wanted = (1 - 6 / 7 * 4 / 6, 2 - 9 / 14, 3 - 12 / 7)
    assert discounts(np.array([1, 1, 1, 2, 2, 3, 4])) == pytest.approx(wanted)
    assert discounts(np.array([1, 1, 2, 4, 4])) is None  # nothing counts 3
    assert discounts(np.array([2, 2, 3])) is None
    assert discounts(np.array([1] * 9 + [2] * 1 + [3] * 9)) is None  # the second is below zero
    found = kneser_ney(count([[4, 5]], SIZE, 2), fallback=(0.25, 0.5, 0.75))
    assert found.fallback == (1, 2)
    assert found.discounts.tolist() == [[0.25, 0.5, 0.75]] * 2


def test_pruned_ngrams_are_gone():
    rows = sentences()
    model = kneser_ney(count(rows, SIZE, 3), (0, 1, 2)).model
    wanted = [sum(len(g) == k and n > k - 1 for g, n in grams(rows, 3).items()) for k in (2, 3)]
    assert np.diff(model.starts).tolist() == [SIZE, *wanted]
    assert kneser_ney(count(rows, SIZE, 3), (0, 1, 10_000)).model.order == 2


@pytest.mark.parametrize(
    ("prune", "message"),
    [
        ((1,), "prune begins with 1; single words cannot be left out: give 0"),
        ((0, 2, 1), r"prune is \[0, 2, 1\]; a longer n-gram needs the same number or a higher one"),
        ((0, 0, 0, 1), "prune has 4 numbers, and the n-grams have orders 1 to 3"),
    ],
)
def test_pruning_that_cannot_be(prune, message):
    with pytest.raises(UserError, match=message):
        kneser_ney(count(sentences(), SIZE, 3), prune)


def mixture(counts, weights, word, history):
    """Σ λ_k p_k over the histories that were met, their λ made to sum to one."""
    words = sum(n for gram, n in counts.items() if len(gram) == 1 and gram[0] != MARKS.bos)
    parts = [(weights[0], 1 / len(PREDICTED)), (weights[1], counts.get((word,), 0) / words)]
    for k in range(1, len(weights) - 1):
        context = tuple(history[-k:])
        if k <= len(history) and context in counts:
            parts.append((weights[k + 1], counts.get((*context, word), 0) / counts[context]))
    return sum(w * p for w, p in parts) / sum(w for w, _ in parts)


def test_the_interpolated_model_is_the_mixture():
    rows, fresh = sentences(), [*sentences(11, 6), [4, 1, 5], [12, 12]]
    found = estimate_interpolated(count(rows, SIZE, 3), sentences(31, 7))
    assert found.weights.sum() == pytest.approx(1)
    assert (found.weights > 1e-4).all()
    counts = grams(rows, 3)
    for row, scores in zip(fresh, found.model.sentence_scores(fresh), strict=True):
        framed = [MARKS.bos, *row, MARKS.eos]
        for t, score in enumerate(scores, 1):
            wanted = mixture(counts, found.weights, framed[t], framed[:t])
            assert np.exp(np.float64(score)) == pytest.approx(wanted, rel=2e-6)


@pytest.mark.parametrize("buckets", [False, True])
def test_the_perplexity_of_the_fit_is_that_of_the_model(buckets):
    held_out = [*sentences(31, 7), [4, 1, 5]]
    found = estimate_interpolated(count(sentences(), SIZE, 4), held_out, buckets)
    assert found.model.perplexity(held_out) == pytest.approx(found.perplexity, rel=1e-5)


def test_no_other_weights_are_better_on_the_held_out_text():
    rows, held_out = sentences(), [*sentences(31, 7), [4, 1, 5]]
    counts = grams(rows, 2)
    found = estimate_interpolated(count(rows, SIZE, 2), held_out)

    def loss(weights):
        total = 0.0
        for row in held_out:
            framed = [MARKS.bos, *row, MARKS.eos]
            for t in range(1, len(framed)):
                total -= np.log(mixture(counts, weights, framed[t], framed[:t]))
        return total

    best = loss(found.weights)
    for up, down in itertools.permutations(range(3), 2):
        other = found.weights.copy()
        moved = min(0.02, other[down] / 2)
        other[up], other[down] = other[up] + moved, other[down] - moved
        assert loss(other) > best


def test_buckets_trust_frequent_histories_more():
    rows = [[4, 5]] * 64 + [[6, 7]] + [[8, 9]]
    held_out = [[4, 5]] * 9 + [[6, 9], [8, 7]]  # after rare words, only the end is as it was
    found = estimate_interpolated(count(rows, SIZE, 2), held_out, buckets=True)
    pairs = found.shares[1]
    assert pairs[bucket(np.array(64))] > 0.95
    assert pairs[bucket(np.array(1))] < 0.5
    plain = estimate_interpolated(count(rows, SIZE, 2), held_out)
    assert found.perplexity < plain.perplexity
    # What the held-out text says nothing about has the share of all histories.
    assert pairs[20] == pytest.approx(plain.shares[1, 0])


def test_buckets_are_powers_of_two():
    times = np.array([0, 1, 2, 3, 4, 7, 8, 1023, 1024])
    assert bucket(times).tolist() == [-1, 0, 1, 1, 2, 2, 3, 9, 10]


def test_shares_of_made_words_are_found():
    rng = np.random.default_rng(3)
    frequencies = np.stack([np.full(20_000, 0.1), rng.choice([0.9, 0.02], 20_000, p=[0.5, 0.5])], 1)
    shares, nats = fit_weights(frequencies, np.zeros((20_000, 1), int), np.full((1, 1), 0.5))
    tried = np.linspace(0.001, 0.999, 999)
    losses = [-np.log(s * frequencies[:, 1] + (1 - s) * 0.1).mean() for s in tried]
    assert shares[0, 0] == pytest.approx(tried[np.argmin(losses)], abs=0.003)
    assert nats == pytest.approx(min(losses), abs=1e-5)


def test_held_out_text_is_needed():
    with pytest.raises(UserError, match="no held-out text to fit the weights"):
        estimate_interpolated(count(sentences(), SIZE, 2), [])
