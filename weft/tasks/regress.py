"""Regression: one number a text, learned on a standardised scale."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics import RegressionMetric
from weft.protocols import LabelSpace, Saved, Task
from weft.registry import register
from weft.tasks.task import (
    Answer,
    LabelCheck,
    Loss,
    add_auxiliary_loss,
    check_auxiliary,
    without_auxiliary,
)
from weft.text.example import Example, SkipCounter
from weft.text.line_source import SKIP_HINT

if TYPE_CHECKING:
    from torch import Tensor

    from weft.batch import LabelledBatch
    from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM


@dataclass(frozen=True)
class LabelScale(LabelSpace):
    """Mean and (population) standard deviation of the training labels."""

    mean: float
    deviation: float = field()

    @property
    def size(self) -> int:
        return 1

    def to_json(self) -> JsonObject:
        return {"mean": self.mean, "deviation": self.deviation}


@register("task", "regress")
class Regress(Task[LabelScale]):
    """One number a text: squared error on the standardised scale, answers in the user's unit.

    `auxiliary` weighs the loss of the language model that it starts from, as in 'classify'.
    """

    head = "linear"
    metric = "pearson"
    can_average = True

    def __init__(self, auxiliary: float = 0.0) -> None:
        self.auxiliary = check_auxiliary(auxiliary)

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example, or raise a UserError if its label is not a number."""
        if example.label not in (None, ""):
            parse_number(example)
        return example

    def space(self, examples: Iterable[Example]) -> LabelScale:
        """Return mean and deviation, computed in one pass (Welford 1962)."""
        seen = LabelCheck("number")
        count, mean, squares = 0, 0.0, 0.0
        for example in examples:
            if seen.count(example):
                value = parse_number(example)
                count += 1
                step = value - mean
                mean += step / count
                squares += step * (value - mean)
        seen.check()
        if not math.isfinite(squares):
            raise UserError(f"{seen.file}: the labels are too large to average; rescale them.")
        deviation = math.sqrt(squares / count)
        if deviation <= 1e-12 * abs(mean):  # rounding, not variation
            raise UserError(
                f"{seen.file}: every example has the label {mean:g}; there is nothing to learn. "
                "Add examples with other numbers, or pass --label with another column."
            )
        return LabelScale(mean, deviation)

    def load_space(self, saved: Saved) -> LabelScale:
        try:
            space = LabelScale(float(saved["mean"]), float(saved["deviation"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The saved scale is damaged: {error!r}. Train again.") from error
        if not (math.isfinite(space.mean) and 0 < space.deviation < math.inf):
            raise UserError(f"The saved scale is damaged: {space}. Train again.")
        return space

    def target(self, example: Example, space: LabelScale) -> float:
        """Return the label in standard deviations from the mean."""
        return (parse_number(example) - space.mean) / space.deviation

    def loss(self, scores: "Tensor | WithAuxiliaryLM", batch: "LabelledBatch") -> Loss:
        """Return the sum of squared errors on the standardised scale, and the texts."""
        predicted = without_auxiliary(scores).float().squeeze(-1)
        error = predicted - batch.target.float()  # (n,)
        return add_auxiliary_loss(Loss(error.square().sum(), len(error)), scores, self.auxiliary)

    def answers(self, scores: np.ndarray, space: LabelScale) -> list[Answer]:
        """Return the number in the user's unit, as value and as score."""
        values = self.predict_targets(scores, space) * space.deviation + space.mean
        return [Answer(value, value) for value in values.tolist()]

    def predict_targets(self, scores: np.ndarray, space: LabelScale) -> np.ndarray:
        """Return standardised numbers (n,), like the targets; the metric converts the unit."""
        return np.asarray(scores, dtype=np.float64).reshape(len(scores))

    def average(
        self,
        scores: Sequence[np.ndarray],
        spaces: Sequence[LabelScale],
        weights: np.ndarray,
        space: LabelScale,
    ) -> np.ndarray:
        """Return Σ w_m y_m of the members' numbers, on the scale of `space`."""
        total = np.zeros(np.shape(scores[0]))
        for own, scale, weight in zip(scores, spaces, weights.tolist(), strict=True):
            total += weight * (np.asarray(own, np.float64) * scale.deviation + scale.mean)
        return (total - space.mean) / space.deviation

    def build_metric(self, space: LabelScale) -> RegressionMetric:
        return RegressionMetric(unit=space.deviation)


def parse_number(example: Example) -> float:
    """Return the label as a finite number, or raise a UserError with file and line."""
    label = example.label
    if label is None or label == "":
        raise LabelCheck("number").missing(example)
    try:
        value = float(label) if isinstance(label, (str, float)) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(
            f"{example.where}: label {label!r} is not a finite number. Correct it, or {SKIP_HINT}; "
            "or pass --label with another column. Classes want --set task.kind=classify, or "
            "pair-classify for two texts."
        )
    return value
