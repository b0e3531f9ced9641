"""Regression: a number a text, or several, learned on a standardised scale.

n texts   K numbers of a text
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics import RegressionMetric, VectorRegressionMetric
from weft.protocols import LabelSpace, Saved, Section, Task
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

INSPECTED_EXAMPLES = 1000  # examples from which `dimensions` is inferred
MAX_DIMENSIONS = 100_000  # numbers of a text

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


@dataclass(frozen=True)
class VectorScale(LabelScale):
    """Mean and deviation of each number of a text; the base class has those of all together."""

    means: tuple[float, ...] = ()  # (K,)
    deviations: tuple[float, ...] = ()  # (K,)

    @property
    def size(self) -> int:
        return len(self.means)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the numbers, counted from 1."""
        return tuple(str(k + 1) for k in range(self.size))

    def to_json(self) -> JsonObject:
        return {"means": list(self.means), "deviations": list(self.deviations)}


@register("task", "regress")
class Regress(Task[LabelScale]):
    """One number a text, or `dimensions` of them: squared error on the standardised scale.

    Answers are in the user's unit. `dimensions` is inferred: several columns of labels, or a list,
    are a vector. `auxiliary` weighs the loss of the language model that it starts from, as in
    'classify'.
    """

    head = "linear"
    metric = "pearson"
    can_average = True
    takes_weights = True

    def __init__(self, auxiliary: float = 0.0, dimensions: int = 1) -> None:
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise UserError(
                f"task.dimensions should be from 1 to {MAX_DIMENSIONS:,}, got {dimensions}."
            )
        self.auxiliary, self.dimensions = check_auxiliary(auxiliary), dimensions

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer several numbers a text from the first label that is there, unless configured."""
        if "dimensions" in settings:
            return {}
        labels = (e.label for e in islice(examples, INSPECTED_EXAMPLES))
        first = next((label for label in labels if label not in (None, "")), None)
        return {"dimensions": len(first)} if isinstance(first, tuple) and len(first) > 1 else {}

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example, or raise a UserError if its label is not a number."""
        if example.label not in (None, ""):
            parse_numbers(example, self.dimensions)
        return example

    def space(self, examples: Iterable[Example]) -> LabelScale:
        """Return weighted mean and deviation, computed in one pass (Welford 1962; West 1979)."""
        seen = LabelCheck("number")
        count, mean, squares = 0.0, np.zeros(self.dimensions), np.zeros(self.dimensions)
        with np.errstate(over="ignore", invalid="ignore"):
            for example in examples:
                if seen.count(example):
                    values = np.array(parse_numbers(example, self.dimensions))  # (K,)
                    count += example.weight
                    step = (values - mean) * example.weight
                    mean = mean + step / count
                    squares = squares + step * (values - mean)
        seen.check()
        if not np.isfinite(squares).all():
            raise UserError(f"{seen.file}: the labels are too large to average; rescale them.")
        deviation = np.sqrt(squares / count)
        constant = np.flatnonzero(deviation <= 1e-12 * np.abs(mean))  # rounding, not variation
        if len(constant):
            k = int(constant[0])
            which = f" as number {k + 1}" if self.dimensions > 1 else ""
            raise UserError(
                f"{seen.file}: every example has the label {mean[k]:g}{which}; there is nothing to "
                "learn. Add examples with other numbers, or pass --label with another column."
            )
        if self.dimensions == 1:
            return LabelScale(float(mean[0]), float(deviation[0]))
        return _make_vector_scale(mean.tolist(), deviation.tolist())

    def load_space(self, saved: Saved) -> LabelScale:
        try:
            space = (
                LabelScale(float(saved["mean"]), float(saved["deviation"]))
                if self.dimensions == 1
                else _make_vector_scale(
                    *([float(x) for x in saved[name]] for name in ("means", "deviations"))
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The saved scale is damaged: {error!r}. Train again.") from error
        means, deviations = _mean_and_deviation(space)
        whole = len(means) == len(deviations) == self.dimensions and np.isfinite(means).all()
        if not whole or not ((deviations > 0) & np.isfinite(deviations)).all():
            raise UserError(f"The saved scale is damaged: {space}. Train again.")
        return space

    def target(self, example: Example, space: LabelScale) -> float | np.ndarray:
        """Return the label in standard deviations from the mean: a number, or (K,) of them."""
        if not isinstance(space, VectorScale):
            (value,) = parse_numbers(example, 1)
            return (value - space.mean) / space.deviation
        mean, deviation = _mean_and_deviation(space)
        numbers: np.ndarray = (np.array(parse_numbers(example, space.size)) - mean) / deviation
        return numbers.astype(np.float32)

    def loss(self, scores: "Tensor | WithAuxiliaryLM", batch: "LabelledBatch") -> Loss:
        """Return the sum of squared errors on the standardised scale, and the texts."""
        from weft.decode.label_losses import weighted_sum

        predicted = without_auxiliary(scores).float()
        predicted = predicted.squeeze(-1) if self.dimensions == 1 else predicted
        error = predicted - batch.target.float()  # (n,) or (n, K)
        weights = batch.row_weights
        count = len(error) if weights is None else batch.count
        loss = Loss(weighted_sum(error.square(), weights), count)
        return add_auxiliary_loss(loss, scores, self.auxiliary, weights)

    def answers(self, scores: np.ndarray, space: LabelScale) -> list[Answer]:
        """Return the number in the user's unit, as value and as score.

        A vector is a tuple; its score is the mean of its numbers.
        """
        found = self.predict_targets(scores, space)
        if not isinstance(space, VectorScale):
            values = found * space.deviation + space.mean
            return [Answer(value, value) for value in values.tolist()]
        mean, deviation = _mean_and_deviation(space)
        rows = (found * deviation + mean).tolist()
        return [Answer(tuple(row), math.fsum(row) / len(row)) for row in rows]

    def predict_targets(self, scores: np.ndarray, space: LabelScale) -> np.ndarray:
        """Return standardised numbers (n,) or (n, K), like the targets."""
        numbers = np.asarray(scores, dtype=np.float64)
        return numbers if isinstance(space, VectorScale) else numbers.reshape(len(scores))

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
            mean, deviation = _mean_and_deviation(scale)
            total += weight * (np.asarray(own, np.float64) * deviation + mean)
        mean, deviation = _mean_and_deviation(space)
        averaged: np.ndarray = (total - mean) / deviation
        return averaged

    def build_metric(self, space: LabelScale) -> RegressionMetric | VectorRegressionMetric:
        if isinstance(space, VectorScale):
            return VectorRegressionMetric(space.deviations)
        return RegressionMetric(unit=space.deviation)


def _make_vector_scale(means: list[float], deviations: list[float]) -> VectorScale:
    mean, deviation = math.fsum(means) / max(1, len(means)), max(deviations, default=0.0)
    return VectorScale(mean, deviation, tuple(means), tuple(deviations))


def _mean_and_deviation(space: LabelScale) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (K,) and deviation (K,) of each number."""
    if isinstance(space, VectorScale):
        return np.array(space.means), np.array(space.deviations)
    return np.array([space.mean]), np.array([space.deviation])


def parse_numbers(example: Example, count: int) -> list[float]:
    """Return the label as `count` finite numbers, or raise a UserError with file and line."""
    label = example.label
    if label is None or label == "":
        raise LabelCheck("number").missing(example)
    parts = label if isinstance(label, tuple) else (label,)
    if len(parts) != count and (count > 1 or isinstance(label, tuple)):
        raise UserError(
            f"{example.where}: {len(parts)} numbers {list(parts)!r:.60} where {count} "
            f"{'is' if count == 1 else 'are'} expected. Correct the row, or {SKIP_HINT}; "
            "task.dimensions is how many there are."
        )
    return [_parse_number(part, example) for part in parts]


def _parse_number(label: object, example: Example) -> float:
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
