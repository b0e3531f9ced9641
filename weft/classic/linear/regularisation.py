"""Choose how closely a linear model follows its training data, on rows that it did not see.

n texts   V features   C scores   K weight columns: C, or 1 for two classes
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from weft.classic.linear.lone_columns import merge_lone_columns
from weft.classic.linear.sklearn_fit import NEVER, Weights, fit_classes, fit_number, fit_sets
from weft.errors import unknown_name
from weft.metrics.value import lower_is_better
from weft.protocols import LabelSpace
from weft.tasks.confidence.calibration import fit_scale
from weft.tasks.regress import LabelScale
from weft.tasks.task import AnyTask, class_groups, compute_metrics
from weft.text.class_balance import Balance, sample_balanced

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

Rows = Any  # (n, V), a numpy array or a csr_matrix
Held = tuple[Rows, np.ndarray]  # rows and their targets
RowWeights = np.ndarray | None  # (n,) of the losses; None: all are 1


class Fit(Protocol):
    """Fits a linear model to rows (n, V) and targets at each strength."""

    def __call__(
        self,
        rows: Rows,
        targets: np.ndarray,
        strengths: Sequence[float],
        row_weights: RowWeights = None,
    ) -> Iterator[Weights]: ...


@dataclass(frozen=True)
class Chosen:
    """The weights of the best strength, and how good it was on held-out rows."""

    strength: float
    weights: Weights
    metric: str = ""
    quality: float = math.nan

    def __str__(self) -> str:
        if not self.metric:
            return f"strength {self.strength:g}: too few texts to choose one"
        return f"strength {self.strength:g}, chosen on dev ({self.metric} {self.quality:.4f})"


def fit_for(
    classifier: str, task: AnyTask, space: LabelSpace, seed: int, balance: Balance | None = None
) -> Fit:
    """Return what fits this task at each of several strengths.

    The rows that it is given are sampled, not those before: a held-out row must not be a copy of
    one that is fitted.
    """
    if isinstance(space, LabelScale):
        return _with_merged_columns(fit_number)
    way = balance.kind if balance else "none"
    assert way != "focal", "refused before"
    balanced = way == "weights"

    def fit(
        rows: Rows, targets: np.ndarray, strengths: Sequence[float], row_weights: RowWeights = None
    ) -> Iterator[Weights]:
        if way == "sampling":
            groups = class_groups(targets, task, space)
            order = sample_balanced(groups, len(targets), np.random.default_rng(seed % 2**63))
            rows, targets = rows[order], targets[order]
            row_weights = None if row_weights is None else row_weights[order]
        how = (strengths, seed, balanced, row_weights)
        if task.multi_label:
            return fit_sets(classifier, rows, targets, *how)
        assert isinstance(space.size, int), "the labels of texts are counted"
        return fit_classes(classifier, rows, targets, space.size, *how)

    return fit if classifier == "bayes" else _with_merged_columns(fit)


def _with_merged_columns(fit: Fit) -> Fit:
    """Fit on merged columns; every model here but naive Bayes has an L2 penalty."""

    def fit_merged(
        rows: Rows, targets: np.ndarray, strengths: Sequence[float], row_weights: RowWeights = None
    ) -> Iterator[Weights]:
        merged = None if isinstance(rows, np.ndarray) else merge_lone_columns(rows)
        if merged is None:
            yield from fit(rows, targets, strengths, row_weights)
        else:
            for weights in fit(merged.rows, targets, strengths, row_weights):
                yield merged.restore(weights)

    return fit_merged


def choose(
    fit: Fit,
    rows: Rows,
    targets: np.ndarray,
    held: Held | None,
    strengths: Sequence[float],
    task: AnyTask,
    space: LabelSpace,
    metric: str = "",
    row_weights: RowWeights = None,
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
            (weights,) = fit(rows, targets, [usual], row_weights)
            return Chosen(usual, weights)
        held = rows[last], targets[last]
        some = choose(
            fit, rows[~last], targets[~last], held, strengths, task, space, metric,
            None if row_weights is None else row_weights[~last],
        )  # fmt: skip
        scale = _scale(some.weights, held, task, space)
        tried = strengths[: strengths.index(some.strength) + 1]
        *_, weights = fit(rows, targets, tried, row_weights)
        return replace(some, weights=_scale_logits(weights, scale))
    middle = math.log(strengths[(len(strengths) - 1) // 2])
    best: Chosen | None = None
    order, stale = (-math.inf, -math.inf), 0
    fitted = fit(rows, targets, strengths, row_weights)
    for strength, weights in zip(strengths, fitted, strict=True):
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
    return best


def _scale(weights: Weights, held: Held, task: AnyTask, space: LabelSpace) -> float:
    """Return one over the temperature of held-out rows; on dev, `Task.calibrate` fits it.

    Numbers, and sets of labels, whose threshold is tuned, have none.
    """
    if isinstance(space, LabelScale) or task.multi_label:
        return 1.0
    found = scores(held[0], weights).astype(np.float64)
    own = found[np.arange(len(found)), held[1].astype(np.int64)]
    known = own > NEVER / 2  # of a label without training texts nothing can be learned
    return fit_scale(found[known], held[1][known])


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
