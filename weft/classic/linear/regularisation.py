"""Choose how closely a linear model follows its training data, on rows that it did not see.

n texts   V features   C scores   K weight columns: C, or 1 for two classes
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.classic.linear.sklearn_fit import NEVER, Weights, fit_classes, fit_number, fit_sets
from weft.errors import unknown_name
from weft.metrics.value import lower_is_better
from weft.protocols import LabelSpace
from weft.tasks.regress import LabelScale
from weft.tasks.task import AnyTask, compute_metrics

GRIDS = {
    "logistic": (3.0, 10.0, 30.0, 100.0),
    "svm": (0.03, 0.1, 0.3, 1.0, 3.0),
    "bayes": (1.0, 3.0, 10.0, 30.0, 100.0),
    "ridge": (0.1, 0.3, 1.0, 3.0, 10.0),
}
SHARE = 10  # without a dev part, every tenth row of the training part is held out
MIN_ROWS_TO_HOLD_OUT = (
    50  # rows, below which none of them are held out: the strength in the middle is taken
)
WORSE = 2  # strengths in a row without a better figure, after which stronger ones are not tried

# One over the temperature of probabilities; 1 comes first, and wins where none is better.
SCALES = (1.0, *np.geomspace(0.1, 4, 60).tolist())

Rows = Any  # (n, V), a numpy array or a csr_matrix
Held = tuple[Rows, np.ndarray]  # rows and their targets
Fit = Callable[[Rows, np.ndarray, Sequence[float]], Iterator[Weights]]


@dataclass(frozen=True)
class Chosen:
    """The weights of the best strength, and how good it was on held-out rows."""

    strength: float
    weights: Weights
    metric: str = ""
    quality: float = math.nan
    scale: float = 1.0  # one over the temperature of its probabilities; the weights have it

    def __str__(self) -> str:
        if not self.metric:
            return f"strength {self.strength:g}: too few texts to choose one"
        return f"strength {self.strength:g}, chosen on dev ({self.metric} {self.quality:.4f})"


def fit_for(classifier: str, task: AnyTask, space: LabelSpace, seed: int, balanced: bool) -> Fit:
    """Return what fits this task at each of several strengths."""
    if isinstance(space, LabelScale):
        return fit_number

    def fit(rows: Rows, targets: np.ndarray, strengths: Sequence[float]) -> Iterator[Weights]:
        if task.multi_label:
            return fit_sets(classifier, rows, targets, strengths, seed, balanced)
        assert isinstance(space.size, int), "the labels of texts are counted"
        return fit_classes(classifier, rows, targets, space.size, strengths, seed, balanced)

    return fit


def choose(
    fit: Fit,
    rows: Rows,
    targets: np.ndarray,
    held: Held | None,
    strengths: Sequence[float],
    task: AnyTask,
    space: LabelSpace,
    metric: str = "",
) -> Chosen:
    """Fit on the rows at each strength and keep the weights with the best figure on `held`.

    The figure is `metric`; without one, the mean of accuracy and macro-F1 where a text has one
    label (a rare label alone should not decide), or the task's own. No weight is fitted on the
    held-out rows. Without any, every tenth row is held out to choose, and the model is then fitted
    on all rows. Of strengths that are equally good, the one in the middle wins.
    """
    if held is None:
        last = np.arange(len(targets)) % SHARE == SHARE - 1
        if len(targets) < MIN_ROWS_TO_HOLD_OUT or len(np.unique(targets[~last], axis=0)) < 2:
            usual = strengths[(len(strengths) - 1) // 2]
            (weights,) = fit(rows, targets, [usual])
            return Chosen(usual, weights)
        some = choose(
            fit, rows[~last], targets[~last], (rows[last], targets[last]), strengths, task, space,
            metric,
        )  # fmt: skip
        tried = strengths[: strengths.index(some.strength) + 1]
        *_, weights = fit(rows, targets, tried)
        return replace(some, weights=_scale_logits(weights, some.scale))
    middle = math.log(strengths[(len(strengths) - 1) // 2])
    best: Chosen | None = None
    order, stale = (-math.inf, -math.inf), 0
    for strength, weights in zip(strengths, fit(rows, targets, strengths), strict=True):
        name, quality = _quality(scores(held[0], weights), held[1], task, space, metric)
        now = (quality, -abs(math.log(strength) - middle))
        if best is None or now > order:
            stale = 0 if quality > order[0] else stale + 1
            best, order = Chosen(strength, _round_to_grid(weights), name, quality), now
        else:
            stale += 1
        if stale >= WORSE:
            break
    assert best is not None
    scale = _scale(best.weights, held, task, space)
    return replace(best, weights=_scale_logits(best.weights, scale), scale=scale)


def _scale(weights: Weights, held: Held, task: AnyTask, space: LabelSpace) -> float:
    """Return one over the temperature that suits the held-out rows best (Guo et al. 2017).

    It changes how probable the best label is, which C = 100 makes too sure of, and never which one
    it is. Numbers, and sets of labels, whose threshold is tuned, have none.
    """
    if isinstance(space, LabelScale) or task.multi_label:
        return 1.0
    found = scores(held[0], weights).astype(np.float64)
    found -= found.max(1, keepdims=True)
    own = found[np.arange(len(found)), held[1].astype(np.int64)]
    known = own > NEVER / 2  # of a label without training texts nothing can be learned
    if not known.any():
        return 1.0
    found, own = found[known], own[known]

    def surprise(scale: float) -> float:
        return float((np.log(np.exp(scale * found).sum(1)) - scale * own).mean())

    return min(SCALES, key=surprise)


def _scale_logits(weights: Weights, scale: float) -> Weights:
    return weights[0] * np.float32(scale), weights[1] * np.float32(scale)


def scores(rows: Rows, weights: Weights) -> np.ndarray:
    """Return the scores (n, C) of a linear model."""
    found = rows @ weights[0]  # (n, K)
    if found.shape[1] < len(weights[1]):  # two classes: the first is where the scale begins
        found = np.concatenate([np.zeros_like(found), found], axis=1)
    return found + weights[1]


def _quality(
    found: np.ndarray, targets: np.ndarray, task: AnyTask, space: LabelSpace, metric: str
) -> tuple[str, float]:
    """Return the name of the figure that is looked at and its value, higher being better."""
    known = compute_metrics(task, space, found, targets)
    if not metric and task.metric == "accuracy" and "macro_f1" in known:
        return "mean of accuracy and macro_f1", (known["accuracy"] + known["macro_f1"]) / 2
    name = metric or task.metric
    if name not in known:
        raise unknown_name("metric", name, known, "train.metric")
    value = -known[name] if lower_is_better(name) else known[name]
    return name, value if math.isfinite(value) else -math.inf


def _round_to_grid(weights: Weights) -> Weights:
    """Copy to float32: what comes next on the path may reuse the arrays."""
    return weights[0].astype(np.float32), weights[1].astype(np.float32)
