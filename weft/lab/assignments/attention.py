"""Assignment: masked scaled dot-product attention with several heads."""

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
$$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d}}\right) V$$

(Vaswani et al. 2017). A mask says which keys a query may look at; the weights of the others are
exactly zero. A query that may look at nothing gets zero weights everywhere, and a zero vector.
"""


def masked_softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis among the allowed entries; 0 elsewhere.

    `scores` (..., S) may be as large as 1000, `allowed` is boolean and of the same shape. A row
    without any allowed entry is all zero.
    """
    highest = np.where(allowed, scores, -np.inf).max(-1, keepdims=True)
    shifted = np.where(allowed, scores - np.where(np.isfinite(highest), highest, 0), 0)
    powers = np.where(allowed, np.exp(shifted), 0)
    totals = powers.sum(-1, keepdims=True)
    return powers / np.where(totals > 0, totals, 1)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the summaries (T, M) and the weights (T, S).

    `q` (T, d), `k` (S, d), `v` (S, M), `allowed` (T, S) boolean.
    """
    weights = masked_softmax(q @ k.T / np.sqrt(q.shape[1]), allowed)
    return weights @ v, weights


def causal_mask(steps: int, real: int) -> np.ndarray:
    """Return a boolean mask (T, T): a step may look at itself and at earlier real steps.

    Only the first `real` of the `steps` steps are real, the rest is padding. No one may look at
    padding, and padding looks at nothing.
    """
    mask = np.tril(np.ones((steps, steps), dtype=bool))
    mask[:, real:] = False
    mask[real:] = False
    return mask


def multi_head_attention(
    x: np.ndarray,
    w_q: np.ndarray,
    w_k: np.ndarray,
    w_v: np.ndarray,
    w_o: np.ndarray,
    heads: int,
    allowed: np.ndarray,
) -> np.ndarray:
    """Return the output (T, H) of self-attention with several heads.

    `x` (T, H); every matrix is (H, H) and applied as x @ w. Head n has the columns
    n·H/heads … (n + 1)·H/heads of queries, keys and values; the heads' summaries, side by side in
    this order, are multiplied by `w_o`.
    """
    q, k, v = (np.split(x @ w, heads, axis=1) for w in (w_q, w_k, w_v))
    found = [attention(a, b, c, allowed)[0] for a, b, c in zip(q, k, v, strict=True)]
    return np.concatenate(found, axis=1) @ w_o


def _draw_scores(rng: np.random.Generator) -> Arguments:
    shape = tuple(rng.integers(1, 6, int(rng.integers(1, 4))))
    scale = float(rng.choice([1.0, 500.0]))
    return [scale * rng.normal(size=shape), rng.random(shape) < 0.6]


def _draw_attention(rng: np.random.Generator) -> Arguments:
    steps, keys, width, out = (int(n) for n in rng.integers(1, 7, 4))
    shapes = ((steps, width), (keys, width), (keys, out))
    return [*(rng.normal(size=shape) for shape in shapes), rng.random((steps, keys)) < 0.7]


def _draw_mask(rng: np.random.Generator) -> Arguments:
    steps = int(rng.integers(1, 8))
    return [steps, int(rng.integers(0, steps + 1))]


def _draw_heads(rng: np.random.Generator) -> Arguments:
    heads, width, steps = (int(n) for n in rng.integers(1, 5, 3))
    hidden = heads * width
    weights = [rng.normal(size=(hidden, hidden)) for _ in range(4)]
    return [rng.normal(size=(steps, hidden)), *weights, heads, causal_mask(steps, steps)]


_TWO = np.array([[1.0, 0.0], [0.0, 1.0]])
ASSIGNMENT = Assignment(
    "attention",
    "Scaled dot-product attention with a mask",
    ("000", "001", "003", "004"),
    TEXT,
    (
        Part(masked_softmax, 3, _draw_scores, (
            [np.array([[1.0, 2.0, 1000.0], [1.0, 2.0, 3.0]]),
             np.array([[True, True, False], [False, False, False]])],
        )),
        Part(attention, 2, _draw_attention, (
            [_TWO, _TWO, np.array([[1.0], [2.0]]), np.array([[True, True], [False, True]])],
        )),
        Part(causal_mask, 2, _draw_mask, ([3, 3], [3, 2])),
        Part(multi_head_attention, 3, _draw_heads, (
            [np.array([[1.0, 2.0], [3.0, 4.0]]), _TWO, _TWO[::-1].copy(), _TWO, 2 * _TWO, 2,
             causal_mask(2, 2)],
        )),
    ),
)  # fmt: skip
