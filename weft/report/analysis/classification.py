"""Error analysis of classifiers: metrics by label, confusion matrix, most confident errors."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.metrics.classify import ClassScores
from weft.report.analysis.confusion import build_matrix, most_confused_pairs
from weft.report.analysis.generation_samples import truncate
from weft.report.analysis.mistakes import LabelCounts
from weft.tasks.task import Answer
from weft.text.example import Example, join_pair


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

    n: int = 0
    wrong: int = 0
    _errors: list[tuple[float, int, WrongAnswer]] = field(default_factory=list)

    def add(self, example: Example, answer: Answer) -> None:
        """Count one text."""
        label, value = _label_names(example.label), _label_names(answer.value)
        is_set = isinstance(answer.value, (tuple, list))
        self.kind = "sets" if is_set else "classes"
        self.n += 1
        self.gold.update(label)
        self.predicted.update(value)
        self.correct.update(set(label) & set(value))
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
    from weft.report.html import render

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
    )


def _label_names(label: object) -> tuple[str, ...]:
    return tuple(map(str, label)) if isinstance(label, (tuple, list)) else (str(label),)


def _join(labels: tuple[str, ...]) -> str:
    return ", ".join(sorted(labels)) or "(none)"
