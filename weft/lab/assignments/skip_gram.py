"""Assignment: skip-gram with negative sampling."""

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
Skip-gram with negative sampling (Mikolov et al. 2013) has an input vector $v_i$ and an output
vector $v'_o$ of every word. For a word $i$, a word $o$ of its context and $K$ noise words the loss
is

$$-\log \sigma(v'_o \cdot v_i) - \sum_{k=1}^{K} \log \sigma(-v'_k \cdot v_i)$$

Derive its gradients on paper first. A noise word may be drawn twice.
"""


def noise_distribution(counts: np.ndarray, power: float) -> np.ndarray:
    """Return the probabilities (V,) of noise words: counts (V,) to a power, normalised."""
    raised = counts.astype(float) ** power
    return raised / raised.sum()


def keep_probability(counts: np.ndarray, sample: float) -> np.ndarray:
    """Return the probability (V,) that an occurrence of each word is kept by sub-sampling.

    With the relative frequency f of a word it is min(1, sqrt(t / f) + t / f), where t is `sample`.
    Every count is greater than 0.
    """
    ratio = sample / (counts / counts.sum())
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


def negative_sampling_loss(word: np.ndarray, context: np.ndarray, noise: np.ndarray) -> float:
    """Return the loss of one pair.

    `word` is v_i (E,), `context` v'_o (E,) and `noise` the output vectors (K, E). The scores may
    be as large as 800 in size: log σ must not overflow.
    """
    scores = np.concatenate([[context @ word], -(noise @ word)])
    return float(np.logaddexp(0, -scores).sum())


def negative_sampling_gradient(
    word: np.ndarray, context: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of the loss by `word` (E,), `context` (E,) and `noise` (K, E)."""
    vectors = np.concatenate([context[None], noise])
    errors = np.exp(-np.logaddexp(0, -(vectors @ word)))  # σ, without overflow
    errors[0] -= 1
    by_output = errors[:, None] * word
    return errors @ vectors, by_output[0], by_output[1:]


def update(
    inputs: np.ndarray, outputs: np.ndarray, pair: np.ndarray, noise: np.ndarray, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return both tables (V, E) after one step of gradient descent.

    `pair` (2,) holds the numbers of the word and of its context word, `noise` (K,) those of the
    noise words. A word that is there twice is moved by the sum of its gradients. The arguments are
    not changed.
    """
    rows = np.concatenate([pair[1:], noise])
    by_word, by_context, by_noise = negative_sampling_gradient(
        inputs[pair[0]], outputs[pair[1]], outputs[noise]
    )
    new_inputs, new_outputs = inputs.copy(), outputs.copy()
    new_inputs[pair[0]] -= rate * by_word
    np.subtract.at(new_outputs, rows, rate * np.concatenate([by_context[None], by_noise]))
    return new_inputs, new_outputs


def _draw_counts(rng: np.random.Generator) -> Arguments:
    return [rng.integers(1, 1000, int(rng.integers(2, 9))), float(rng.choice([0.0, 0.75, 1.0]))]


def _draw_frequent(rng: np.random.Generator) -> Arguments:
    return [rng.integers(1, 1000, int(rng.integers(2, 9))), float(rng.choice([1e-3, 0.05, 0.5]))]


def _draw_vectors(rng: np.random.Generator) -> Arguments:
    width, noise = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    scale = float(rng.choice([0.1, 1.0, 15.0]))
    return [scale * rng.normal(size=shape) for shape in ((width,), (width,), (noise, width))]


def _draw_tables(rng: np.random.Generator) -> Arguments:
    tables = [rng.normal(size=(5, 3)) for _ in range(2)]
    return [*tables, rng.integers(0, 5, 2), rng.integers(0, 5, int(rng.integers(1, 6))), 0.1]


_PAIR: Arguments = [np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([[1.0, 0.0], [0.0, 2.0]])]
_TABLES: Arguments = [
    np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([[0.5, 0.5], [1.0, -1.0], [0.0, 1.0]]),
    np.array([0, 1]), np.array([2, 2]), 0.1,
]  # fmt: skip
ASSIGNMENT = Assignment(
    "skip-gram",
    "Skip-gram with negative sampling",
    ("001",),
    TEXT,
    (
        Part(noise_distribution, 1, _draw_counts, ([np.array([16, 81, 1]), 0.75],)),
        Part(keep_probability, 1, _draw_frequent, ([np.array([90, 9, 1]), 0.01],)),
        Part(negative_sampling_loss, 2, _draw_vectors, (_PAIR,)),
        Part(negative_sampling_gradient, 4, _draw_vectors, (_PAIR,)),
        Part(update, 2, _draw_tables, (_TABLES,)),
    ),
)
