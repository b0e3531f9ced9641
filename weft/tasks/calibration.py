"""Probabilities from scores: softmax or sigmoid, and the scale that makes margins probabilities.

n texts   C labels
"""

from typing import Literal

import numpy as np

from weft.errors import UserError

# "margin": the strongest wrong label (Crammer and Singer 2001); "margin-sum": every wrong label
# (Weston and Watkins 1999).
LossKind = Literal["cross-entropy", "margin", "margin-sum"]
LOG_SCALES = (-5.0, 5.0)  # searched
BISECTIONS = 30
MAX_ROWS = 5000  # held-out texts that one number is fitted on


def check_loss(where: str, loss: LossKind, smoothing: float = 0.0, several: bool = False) -> None:
    """Raise a UserError if a margin loss is combined with what it does not know."""
    if loss != "cross-entropy" and smoothing:
        raise UserError(
            f"{where}: label_smoothing is for loss = 'cross-entropy', not '{loss}'. Remove one."
        )
    if loss == "margin-sum" and several:
        raise UserError(
            f"{where}: loss = 'margin-sum' compares the right label with every other, so it is for "
            "one label a text. Set task.loss to 'margin': a hinge for each label."
        )


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities (n, C) over labels."""
    raised: np.ndarray = np.exp(scores - scores.max(1, keepdims=True))
    probs: np.ndarray = raised / raised.sum(1, keepdims=True)
    return probs


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Return the probability of each label (n, C)."""
    probs: np.ndarray = np.exp(-np.logaddexp(0, -scores))
    return probs


def fit_scale(scores: np.ndarray, gold: np.ndarray) -> float:
    """Return the factor a with which probabilities of a · scores fit held-out labels best.

    Softmax for labels (n,), a sigmoid each for rows of zeros and ones (n, C): temperature scaling
    (Guo et al. 2017), 1 / a being the temperature. The log-likelihood is concave in a, so its slope
    is bisected.
    """
    step = -(-len(scores) // MAX_ROWS) or 1
    scores, gold = np.asarray(scores[::step], np.float64), np.asarray(gold[::step])
    if not len(scores):
        return 1.0
    several, n, size = gold.ndim == 2, *scores.shape
    one_hot = gold if several else np.eye(size)[gold.astype(np.int64)]  # (n, C)
    # Platt's (1999) targets, (n + 1) / (n + 2) for two labels: if all are right, a stays finite.
    left = 2 / (n + 2)
    wanted = (1 - left) * one_hot + left / (2 if several else size)  # (n, C)
    to_probs = sigmoid if several else softmax
    low, high = LOG_SCALES
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        slope = ((wanted - to_probs(np.exp(middle) * scores)) * scores).sum()
        low, high = (middle, high) if slope > 0 else (low, middle)
    return float(np.exp((low + high) / 2))
