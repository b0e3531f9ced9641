"""Probabilities from scores: softmax or sigmoid, and the scale that makes margins probabilities.

n texts   C labels
"""

from typing import Literal

import numpy as np

from weft.errors import UserError
from weft.metrics.calibration import expected_calibration_error

# "margin": the strongest wrong label (Crammer and Singer 2001); "margin-sum": every wrong label
# (Weston and Watkins 1999).
LossKind = Literal["cross-entropy", "margin", "margin-sum"]
LOG_SCALES = (-5.0, 5.0)  # searched
BISECTIONS = 30
MAX_ROWS = 5000  # held-out texts that one number is fitted on
MAX_SCORES = 2_000_000  # of all labels of those texts
MIN_ROWS = 50  # held-out texts without which probabilities stay as they are
FOLDS = 5  # of the held-out texts, to see whether a temperature generalises


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
    is bisected. If every label is right it rises for ever; then Platt's (1999) targets,
    (n + 1) / (n + 2) for two labels, keep a finite.
    """
    scores, gold = _subsample(scores, gold)
    if not len(scores):
        return 1.0
    several, n, size = gold.ndim == 2, *scores.shape
    one_hot = gold if several else np.eye(size)[gold.astype(np.int64)]  # (n, C)
    to_probs = sigmoid if several else softmax
    low, high = LOG_SCALES

    def slope(log_scale: float, wanted: np.ndarray) -> float:
        return float(((wanted - to_probs(np.exp(log_scale) * scores)) * scores).sum())

    wanted = one_hot
    own, most = (
        (scores * (2 * gold - 1), 0) if several else ((scores * one_hot).sum(1), scores.max(1))
    )
    if (own >= most).all():
        left = 2 / (n + 2)
        wanted = (1 - left) * one_hot + left / (2 if several else size)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle, wanted) > 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def fit_temperature(scores: np.ndarray, gold: np.ndarray) -> float:
    """Return `fit_scale` of logits, or 1 if a scale fitted on some rows is no better on others.

    Every row is scored once with a scale that was fitted without it. The scale is kept if that
    lowers the negative log-likelihood and does not raise the expected calibration error.
    """
    scores, gold = _subsample(scores, gold)
    if len(scores) < MIN_ROWS:
        return 1.0
    fold = np.arange(len(scores)) % FOLDS
    scales = np.empty(len(scores))
    for one in range(FOLDS):
        scales[fold == one] = fit_scale(scores[fold != one], gold[fold != one])
    before = negative_log_likelihood(scores, gold), calibration_error(scores, gold)
    scaled = scores * scales[:, None]
    after = negative_log_likelihood(scaled, gold), calibration_error(scaled, gold)
    better = after[0] < before[0] and after[1] <= before[1]
    return fit_scale(scores, gold) if better else 1.0


def negative_log_likelihood(scores: np.ndarray, gold: np.ndarray) -> float:
    """Return the mean over texts of −log p(gold), summed over labels if a text has several."""
    if gold.ndim == 2:
        margins = np.where(gold > 0, scores, -scores)
        return float(np.logaddexp(0, -margins).sum(1).mean())
    shifted = scores - scores.max(1, keepdims=True)
    own = shifted[np.arange(len(gold)), gold.astype(np.int64)]
    return float((np.log(np.exp(shifted).sum(1)) - own).mean())


def calibration_error(scores: np.ndarray, gold: np.ndarray) -> float:
    """Return the ECE of the best label, or, of several, that of all decisions at 0.5."""
    if gold.ndim == 2:
        probs = sigmoid(scores).ravel()
        right = (probs >= 0.5) == (gold.ravel() > 0)
        return expected_calibration_error(np.maximum(probs, 1 - probs), right)
    return expected_calibration_error(softmax(scores).max(1), scores.argmax(1) == gold)


def uncalibrate(probs: np.ndarray, scale: float) -> np.ndarray:
    """Return the probabilities (n, C) over labels that scaled ones would have without the scale."""
    with np.errstate(divide="ignore"):
        return softmax(np.log(probs) / scale)


def _subsample(scores: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return evenly spaced rows, few enough to fit one number on."""
    rows = min(MAX_ROWS, max(MIN_ROWS, MAX_SCORES // max(scores.shape[1], 1)))
    step = -(-len(scores) // rows) or 1
    return np.asarray(scores[::step], np.float64), np.asarray(gold[::step])
