"""Error analysis of classifiers: metrics by label, confusion matrix, most confident errors."""

import heapq
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from weft.metrics.calibration import CalibrationBins, RiskCoverage, risk_coverage
from weft.metrics.classify import ClassScores
from weft.report.analysis.confusion import build_matrix, most_confused_pairs
from weft.report.analysis.generation_samples import truncate
from weft.report.analysis.mistakes import LabelCounts
from weft.report.drawings.label_tree import draw_label_tree, recall_rows
from weft.tasks.task import Answer
from weft.text.example import Example, join_pair, sentence_label
from weft.text.label_tree import LabelTree


@dataclass(frozen=True)
class WrongAnswer:
    """A wrongly classified text."""

    where: str  # file and line
    text: str
    label: str
    predicted: str
    score: float  # the probability of the prediction


@dataclass
class ClassificationErrors(LabelCounts):
    """Label counts, and the `keep` most confident errors.

    A text with several labels counts for each of them; confusions are counted only for one label
    per text.
    """

    tree: LabelTree | None = None  # of labels that are paths
    n: int = 0
    wrong: int = 0
    # Returns the score of an answer before calibration; None if it is the same.
    uncalibrated_score: Callable[[Answer], float | None] = field(default=lambda answer: None)
    bins: CalibrationBins = field(default_factory=CalibrationBins)
    before: CalibrationBins = field(default_factory=CalibrationBins)
    is_calibrated: bool = False
    _scores: "array[float]" = field(default_factory=lambda: array("d"))
    _right: "array[int]" = field(default_factory=lambda: array("b"))
    _errors: list[tuple[float, int, WrongAnswer]] = field(default_factory=list)

    def add(self, example: Example, answer: Answer) -> None:
        """Count one text."""
        label, value = _label_names(sentence_label(example.label)), _label_names(answer.value)
        is_set = isinstance(answer.value, (tuple, list))
        self.kind = "sets" if is_set else "classes"
        self.n += 1
        self.gold.update(label)
        self.predicted.update(value)
        self.correct.update(set(label) & set(value))
        self._count_confidence(answer, set(label) == set(value), is_set)
        if not is_set:
            self.confusions[label[0], value[0]] += 1
        if set(label) == set(value):
            return
        self.wrong += 1
        if self.keep:
            text = example.text if example.other is None else join_pair(example.text, example.other)
            error = WrongAnswer(
                example.where, truncate(text), _join(label), _join(value), answer.score
            )
            push = heapq.heappush if len(self._errors) < self.keep else heapq.heappushpop
            push(self._errors, (answer.score, -self.n, error))

    def _count_confidence(self, answer: Answer, right: bool, is_set: bool) -> None:
        self._scores.append(answer.score)
        self._right.append(right)
        if not is_set:
            before = self.uncalibrated_score(answer)
            self.is_calibrated = self.is_calibrated or before is not None
            self.bins.add(answer.score, right)
            self.before.add(answer.score if before is None else before, right)

    @property
    def curve(self) -> RiskCoverage:
        """The risk-coverage curve of the answers."""
        return risk_coverage(np.array(self._scores), np.array(self._right, dtype=bool))

    @property
    def errors(self) -> list[WrongAnswer]:
        """The wrong predictions, most confident first."""
        return [one for *_, one in sorted(self._errors, key=lambda item: item[:2], reverse=True)]

    @property
    def units(self) -> tuple[str, str]:
        return "texts", "labels"

    def averages(self) -> dict[str, ClassScores]:
        """Return the macro average over labels and the average weighted by support."""
        scores = list(self.by_label().values())
        support = sum(one.support for one in scores)
        weights = {
            "macro average": [1 / max(len(scores), 1)] * len(scores),
            "weighted average": [one.support / max(support, 1) for one in scores],
        }

        def mean(each: list[float], field: str) -> float:
            values = (float(getattr(one, field)) for one in scores)
            return sum(weight * value for weight, value in zip(each, values, strict=True))

        return {
            name: ClassScores(
                mean(each, "precision"), mean(each, "recall"), mean(each, "f1"), support
            )
            for name, each in weights.items()
        }


def render_page(
    errors: ClassificationErrors, metrics: Mapping[str, object], *, model: str, file: str
) -> str:
    """Return the page of `weft evaluate --report` for a classifier."""
    from weft.report.charts.histograms import plot_reliability, plot_risk_coverage
    from weft.report.html import render

    calibration = errors.bins.calibration() if errors.kind == "classes" else None
    before = errors.before.calibration() if errors.is_calibrated else None
    return render(
        "classification.html",
        model=model,
        file=file,
        metrics=metrics,
        errors=errors,
        by_label=errors.by_label(),
        averages=errors.averages(),
        matrix=build_matrix(errors.confusions),
        pairs=most_confused_pairs(errors.confusions),
        worst=errors.errors,
        tree=_draw_tree(errors),
        calibration=calibration,
        uncalibrated=before,
        reliability=Markup(plot_reliability(calibration, before)) if calibration else "",
        curve=errors.curve,
        risk_coverage=Markup(plot_risk_coverage(errors.curve)),
    )


def _draw_tree(errors: ClassificationErrors) -> Markup | None:
    """Draw the tree of the labels with the recall of each node, if there is a tree."""
    if errors.tree is None:
        return None
    return draw_label_tree(recall_rows(errors.tree, errors.confusions))


def _label_names(label: object) -> tuple[str, ...]:
    return tuple(map(str, label)) if isinstance(label, (tuple, list)) else (str(label),)


def _join(labels: tuple[str, ...]) -> str:
    return ", ".join(sorted(labels)) or "(none)"
