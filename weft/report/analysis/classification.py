"""Where answers about whole texts go wrong: label by label, what is taken for what, the errors."""

import heapq
from dataclasses import dataclass, field
from typing import Any

from weft.metrics.classify import ClassScores
from weft.report.analysis.confusion import matrix, pairs
from weft.report.analysis.generation_samples import cut
from weft.report.analysis.mistakes import Mistakes
from weft.tasks.task import Answer
from weft.text.example import Example, join_pair


@dataclass(frozen=True)
class Wrong:
    """A text that got a wrong answer."""

    where: str  # file and line
    text: str
    label: str
    said: str
    score: float  # the probability of what was said


@dataclass
class Classified(Mistakes):
    """Counts of labels, and the `keep` errors of which the model was surest.

    A text with several labels counts for each of them; what is taken for what is known only where
    there is one.
    """

    n: int = 0
    wrong: int = 0
    _errors: list[tuple[float, int, Wrong]] = field(default_factory=list)

    def add(self, example: Example, answer: Answer) -> None:  # type: ignore[override]
        """Count one text."""
        label, value = _names(example.label), _names(answer.value)
        several = isinstance(answer.value, (tuple, list))
        self.kind = "sets" if several else "classes"
        self.n += 1
        self.true.update(label)
        self.said.update(value)
        self.right.update(set(label) & set(value))
        if not several:
            self.cells[label[0], value[0]] += 1
        if set(label) == set(value):
            return
        self.wrong += 1
        if self.keep:
            text = example.text if example.other is None else join_pair(example.text, example.other)
            error = Wrong(example.where, cut(text), _joined(label), _joined(value), answer.score)
            push = heapq.heappush if len(self._errors) < self.keep else heapq.heappushpop
            push(self._errors, (answer.score, -self.n, error))

    @property
    def errors(self) -> list[Wrong]:
        """The wrong answers, the surest first."""
        return [one for *_, one in sorted(self._errors, key=lambda item: item[:2], reverse=True)]

    @property
    def units(self) -> tuple[str, str]:
        return "texts", "labels"

    def averages(self) -> dict[str, ClassScores]:
        """The plain mean over labels, and the mean weighted by their texts."""
        found = list(self.by_label().values())
        support = sum(one.support for one in found)
        shares = {
            "macro average": [1 / max(len(found), 1)] * len(found),
            "weighted average": [one.support / max(support, 1) for one in found],
        }

        def mean(each: list[float], of: str) -> float:
            return sum(part * getattr(one, of) for part, one in zip(each, found, strict=True))

        return {
            name: ClassScores(
                mean(each, "precision"), mean(each, "recall"), mean(each, "f1"), support
            )
            for name, each in shares.items()
        }


def page(found: Classified, figures: dict[str, Any], *, model: str, file: str) -> str:
    """Return the page of `weft evaluate --report` for a classifier."""
    from weft.report.html import render

    return render(
        "classified.html",
        model=model,
        file=file,
        figures=figures,
        found=found,
        by_label=found.by_label(),
        averages=found.averages(),
        matrix=matrix(found.cells),
        pairs=pairs(found.cells),
        errors=found.errors,
    )


def _names(label: Any) -> tuple[str, ...]:
    return tuple(map(str, label)) if isinstance(label, (tuple, list)) else (str(label),)


def _joined(labels: tuple[str, ...]) -> str:
    return ", ".join(sorted(labels)) or "(none)"
