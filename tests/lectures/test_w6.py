"""W6, GloVe: J = Σ f(X_ij) (w_i·w̃_j + b_i + b̃_j − log X_ij)², f(x) = min(1, (x / x_max)^α)."""

import math

import numpy as np
import pytest
import torch

from weft.vectors.cooccurrence import cooccurrences
from weft.vectors.corpus import Corpus
from weft.vectors.glove import Factors, choose_x_max, factorise

V, E, WINDOW, X_MAX, ALPHA = 11, 5, 3, 2.0, 0.75


def make_corpus():
    random = np.random.default_rng(3)
    ids = random.integers(0, V, 97).astype(np.int32)
    ends = np.array([13, 31, 32, 67, 97])
    return Corpus(tuple("abcdefghijk"), np.bincount(ids, minlength=V), ids, ends, len(ids))


def count_pairs(corpus):
    """X: 1/distance for every word and every word of its window."""
    X, begin = np.zeros((V, V)), 0
    for end in corpus.ends.tolist():
        for p in range(begin, end):
            for q in range(max(begin, p - WINDOW), min(end, p + WINDOW + 1)):
                if p != q:
                    X[corpus.ids[p], corpus.ids[q]] += 1 / abs(p - q)
        begin = end
    return X


def f(x):
    return (x / X_MAX) ** ALPHA if x < X_MAX else 1.0


def objective(X, w, c, b, d):
    total = 0.0
    for i in range(V):
        for j in range(V):
            if X[i, j] > 0:
                error = w[i] @ c[j] + b[i] + d[j] - math.log(X[i, j])
                total = total + f(X[i, j]) * error**2
    return total


def test_the_cost_is_the_weighted_squared_error_of_the_log_counts():
    corpus = make_corpus()
    X = count_pairs(corpus)
    start = Factors.fresh(V, E, seed=5)
    w, c = (start.vectors[:, side, 0].astype(float) for side in (0, 1))
    b, d = (start.biases[:, side, 0].astype(float) for side in (0, 1))
    costs = []
    factorise(
        cooccurrences(corpus, WINDOW), E, 1, 1e-9, ALPHA, X_MAX, seed=5, threads=1,
        watch=lambda epoch, share, cost: costs.append(cost),
    )  # fmt: skip
    expected = objective(X, w, c, b, d) / (X > 0).sum()
    assert costs[-1] == pytest.approx(expected, rel=1e-5)


def test_a_step_goes_down_the_gradient_of_the_objective(tmp_path):
    """With one pair a step is rate × gradient of ½ J: AdaGrad's sums begin at 1."""
    ids, ends = np.array([3, 7], np.int32), np.array([2])
    corpus = Corpus(tuple("abcdefghijk"), np.bincount(ids, minlength=V), ids, ends, 2)
    start = Factors.fresh(V, E, seed=5)
    tensors = [
        torch.tensor(numbers[:, side, 0].astype(float), requires_grad=True)
        for numbers in (start.vectors, start.biases)
        for side in (0, 1)
    ]
    w, c, b, d = tensors
    (0.5 * objective(count_pairs(corpus), w, c, b, d)).backward()
    after = factorise(cooccurrences(corpus, WINDOW), E, 1, 0.05, ALPHA, X_MAX, seed=5, threads=1)
    moved = [numbers[:, side, 0] for numbers in (after.vectors, after.biases) for side in (0, 1)]
    for ours, before in zip(moved, tensors, strict=True):
        expected = (before - 0.05 * before.grad).detach().numpy()
        np.testing.assert_allclose(ours, expected, atol=1e-6)
        assert before.grad.abs().max() > 1e-4


def test_the_vectors_are_the_sum_of_word_and_context_vectors():
    factors = factorise(cooccurrences(make_corpus(), WINDOW), E, 3, seed=5, threads=1)
    w, c = factors.vectors[:, 0, 0], factors.vectors[:, 1, 0]
    np.testing.assert_allclose(factors.sum, w + c, atol=1e-7)
    np.testing.assert_array_equal(factors.word, w)


@pytest.mark.parametrize(
    ("words", "x_max"), [(1_600_000_000, 100), (17_000_000, 10.3), (10**10, 100), (1000, 1)]
)
def test_x_max_runs_through_the_settings_of_the_authors(words, x_max):
    assert choose_x_max(words) == pytest.approx(x_max, abs=0.05)
