"""Assignment: n-gram language models and their smoothing."""

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
A bigram model estimates $P(w \mid v) = c(v, w) / c(v)$ and gives probability zero to what it has
not seen. Smoothing moves probability to unseen events: add-k by pretending that everything was seen
$k$ times more, interpolation by mixing with a model of shorter context, with weights fitted by EM
on held-out text.

Words are numbers $0, \dots, V - 1$. A text is a list of sentences, a sentence a list of words;
there are no marks for beginning and end.
"""


def count_bigrams(sentences: list[list[int]], vocabulary: int) -> np.ndarray:
    """Return the counts (V, V): how often the second word follows the first in a sentence."""
    counts = np.zeros((vocabulary, vocabulary), dtype=int)
    for sentence in sentences:
        np.add.at(counts, (sentence[:-1], sentence[1:]), 1)
    return counts


def add_k(counts: np.ndarray, k: float) -> np.ndarray:
    """Return P(w | v) as (V, V) with add-k smoothing; each row v sums to 1.

    For k = 0 a row without any count is uniform.
    """
    smoothed = counts + float(k)
    totals = smoothed.sum(1, keepdims=True)
    uniform = np.full(counts.shape, 1 / len(counts))
    return np.divide(smoothed, totals, out=uniform, where=totals > 0)


def em_step(models: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weights after one step of EM.

    `models` (M, n) holds the probability that each model gives to each word of held-out text,
    `weights` (M,) the interpolation weights before. A new weight is the mean responsibility of
    its model: how much of the mixture's probability of a word it contributes.
    """
    parts = weights[:, None] * models
    return (parts / parts.sum(0)).mean(1)


def perplexity(probabilities: np.ndarray) -> float:
    """Return the perplexity of words with these probabilities (n,); infinite if one is zero."""
    if (probabilities <= 0).any():
        return float("inf")
    return float(np.exp(-np.log(probabilities).mean()))


def _draw_text(rng: np.random.Generator) -> Arguments:
    size = int(rng.integers(2, 9))
    lengths = rng.integers(0, 8, int(rng.integers(1, 6)))
    return [[rng.integers(0, size, n).tolist() for n in lengths], size]


def _draw_counts(rng: np.random.Generator) -> Arguments:
    size = int(rng.integers(2, 7))
    return [rng.integers(0, 3, (size, size)), float(rng.choice([0.0, 0.1, 1.0]))]


def _draw_models(rng: np.random.Generator) -> Arguments:
    count = int(rng.integers(2, 5))
    models = rng.uniform(0.01, 1, (count, int(rng.integers(1, 9))))
    return [models, rng.dirichlet(np.ones(count))]


def _draw_probabilities(rng: np.random.Generator) -> Arguments:
    found = rng.uniform(0, 1, int(rng.integers(1, 9)))
    return [np.where(rng.random(len(found)) < 0.05, 0.0, found)]


ASSIGNMENT = Assignment(
    "ngram-smoothing",
    "N-grams and smoothing",
    ("001",),
    TEXT,
    (
        Part(count_bigrams, 2, _draw_text, ([[[0, 1, 2, 1, 2], [2], []], 3],)),
        Part(add_k, 2, _draw_counts, (
            [np.array([[3, 1], [0, 0]]), 1.0], [np.array([[3, 1], [0, 0]]), 0.0],
        )),
        Part(em_step, 3, _draw_models, (
            [np.array([[0.5, 0.1], [0.1, 0.3]]), np.array([0.5, 0.5])],
        )),
        Part(perplexity, 1, _draw_probabilities, ([np.array([0.25, 0.25])], [np.array([0.5, 0])])),
    ),
)  # fmt: skip
