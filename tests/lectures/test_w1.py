"""W1: bag of words and TF-IDF under naive Bayes, SVM and logistic regression; the symbolic CRF."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from weft.classic.crf.model import LinearCRF
from weft.classic.linear.tfidf import TfIdf
from weft.classic.linear.tfidf_vectorizer import Grams, word_grams
from weft.tasks.classify import Classify, ClassSpace

TEXTS = (
    *("good film good", "fine book", "bad film", "poor plot bad bad", "good plot", "a bad book"),
    *("fine good film", "a poor film", "good book", "bad"),
)
LABELS = np.array([1, 1, 0, 0, 1, 0, 1, 0, 1, 0])
SPACE = ClassSpace(("no", "yes"))


def tfidf_table():
    """tf-idf(t, d) = tf(t, d) · (log((1 + n) / (1 + df(t))) + 1), rows of length 1."""
    counts = [Counter(text.split()) for text in TEXTS]
    terms = sorted({term for row in counts for term in row})
    n = len(TEXTS)
    table = np.zeros((n, len(terms)))
    for d, row in enumerate(counts):
        for t, term in enumerate(terms):
            df = sum(term in other for other in counts)
            table[d, t] = row[term] * (math.log((1 + n) / (1 + df)) + 1)
        table[d] /= math.sqrt((table[d] ** 2).sum())
    return terms, table


def fitted(classifier, C=1.0):
    model = TfIdf(words=[1, 1], characters=[], sublinear=False, C=C, classifier=classifier)
    model.fit(TEXTS, LABELS, Classify(), SPACE, seed=0)
    return model


def test_tfidf_is_term_frequency_times_inverse_document_frequency():
    terms, table = tfidf_table()
    grams = Grams(word_grams, (1, 1), lowercase=True, sublinear=False)
    rows = grams.learn(TEXTS, minimum=1, size=0)
    assert list(grams.index) == terms
    np.testing.assert_allclose(rows.toarray(), table, atol=1e-6)


def test_naive_bayes_is_prior_times_smoothed_likelihoods():
    """log P(y) + Σ_t x_t log P(t | y), P(t | y) = (Σ x_t + α) / (Σ_t Σ x_t + α V)."""
    _, table = tfidf_table()
    alpha, size = 1.0, table.shape[1]
    joint = np.zeros((len(TEXTS), 2))
    for y in (0, 1):
        own = table[y == LABELS].sum(0)
        likelihood = (own + alpha) / (own.sum() + alpha * size)
        joint[:, y] = math.log((y == LABELS).mean()) + table @ np.log(likelihood)
    right = np.exp(joint) / np.exp(joint).sum(1, keepdims=True)
    scores = fitted("bayes", C=1 / alpha).predict(TEXTS)
    probs = Classify().probabilities(scores, SPACE)
    np.testing.assert_allclose(probs, right, atol=1e-5)


def optimum(objective, size):
    """Return the smallest value of a smooth convex objective of weights and bias."""
    return minimize(objective, np.zeros(size + 1), method="BFGS", tol=1e-8).fun


def value(model, objective):
    weights = model.weights[:, -1].astype(np.float64)
    bias = float(model.bias[-1] - model.bias[0])
    return objective(np.append(weights, bias))


@pytest.mark.parametrize("classifier", ["logistic", "svm"])
def test_linear_models_minimise_their_objectives(classifier):
    """½ |w|² + C Σ log(1 + exp(−y (w · x + b))), or with max(0, 1 − y (w · x + b))² and ½ b²."""
    _, table = tfidf_table()
    C, y = 0.3, 2 * LABELS - 1

    def objective(theta):
        weights, bias = theta[:-1], theta[-1]
        margin = y * (table @ weights + bias)
        if classifier == "logistic":
            return weights @ weights / 2 + C * np.log1p(np.exp(-margin)).sum()
        return (weights @ weights + bias**2) / 2 + C * np.square(np.maximum(0, 1 - margin)).sum()

    best = optimum(objective, table.shape[1])
    assert value(fitted(classifier, C), objective) == pytest.approx(best, abs=1e-5)
    assert objective(np.zeros(table.shape[1] + 1)) > best + 0.1


def test_crf_scores_a_sequence_by_its_features_and_transitions():
    """P(y | x) = exp(Σ_t Σ_f w_{f, y_t} + Σ_t A_{y_{t-1}, y_t}) / Z, by enumeration."""
    draw = np.random.default_rng(3)
    weights, moves = draw.normal(size=(5, 3)), draw.normal(size=(3, 3))
    model = LinearCRF()
    model.labels = ["A", "B", "C"]
    model.features = {f"f{i}": i for i in range(5)}
    model.table = csr_matrix(weights.astype(np.float32))
    model.transitions = moves.astype(np.float32)
    model.rules = np.ones((5, 3), bool)
    sentence = [["f0", "f3"], ["f1"], ["f2", "f4"], ["unknown"]]
    scores = {}
    for path in itertools.product(range(3), repeat=4):
        score = sum(
            weights[int(f[1:]), y]
            for word, y in zip(sentence, path, strict=True)
            for f in word
            if f != "unknown"
        )
        scores[path] = score + sum(moves[a, b] for a, b in itertools.pairwise(path))
    Z = sum(map(math.exp, scores.values()))
    marginals = np.zeros((4, 3))
    for path, score in scores.items():
        marginals[range(4), path] += math.exp(score) / Z
    (found,) = model.marginals([sentence])
    np.testing.assert_allclose(found, marginals, atol=1e-5)
    best = max(scores, key=scores.get)
    assert model.predict([sentence]) == [[model.labels[y] for y in best]]
