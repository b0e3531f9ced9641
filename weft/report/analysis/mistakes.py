"""Error analysis of word-level tasks: metrics by label, confusions, worst sentences."""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.compare.sentence_scores import SPURIOUS_KINDS, UNITS, score_sentence
from weft.metrics.classify import ClassScores, score_classes
from weft.tasks.annotation import Annotation
from weft.text.example import Example


@dataclass(frozen=True)
class BadSentence:
    """A sentence with errors."""

    where: str  # file, line and name of the sentence
    predicted: Annotation
    gold: Annotation
    wrong: int
    total: int
    question: str = ""  # if the text is a passage


@dataclass
class LabelCounts:
    """Correct, predicted and gold counts by label, in constant memory."""

    keep: int = 0  # errors to show
    kind: str = ""
    correct: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    gold: Counter[str] = field(default_factory=Counter)
    confusions: Counter[tuple[str, str]] = field(default_factory=Counter)  # (gold, predicted)

    @property
    def units(self) -> tuple[str, str]:
        """The unit that is counted, and the name of its labels."""
        return UNITS[self.kind]

    def by_label(self) -> dict[str, ClassScores]:
        """Return precision, recall, F1 and support of each label, most frequent first."""
        names = sorted(self.predicted | self.gold, key=lambda name: (-self.gold[name], name))
        counts = [
            np.array([count[name] for name in names], dtype=np.int64)
            for count in (self.correct, self.predicted, self.gold)
        ]
        return dict(zip(names, score_classes(*counts), strict=True))

    def most_confused(self, most: int) -> list[tuple[str, str, int]]:
        """Return the most frequent confusions as (gold, predicted, count)."""
        wrong = [(a, b, n) for (a, b), n in self.confusions.items() if a != b]
        return sorted(wrong, key=lambda cell: (-cell[2], cell[:2]))[:most]


@dataclass
class LabelErrors(LabelCounts):
    """Counts of word-level labels, and the `keep` worst sentences.

    The worst sentences are those with the most errors, shorter before longer.
    """

    _worst: list[tuple[int, int, int, BadSentence]] = field(default_factory=list)
    _seen: int = 0

    def add(self, example: Example, predicted: Annotation, gold: Annotation) -> None:
        """Count one sentence."""
        counts = score_sentence(predicted, gold)
        self.kind = predicted.kind
        self.correct.update(counts.correct)
        self.predicted.update(counts.predicted)
        self.gold.update(counts.gold)
        self.confusions.update(counts.confusions)
        wrong = len(counts.gold) - len(counts.correct)
        if predicted.kind in SPURIOUS_KINDS:  # a spurious one is an error too
            wrong += len(counts.predicted) - len(counts.correct)
        self._seen += 1
        if wrong and self.keep:
            question, where = "", example.sentence_where
            if example.other is not None:
                question = example.text
                where = example.where + (f": question '{example.id}'" if example.id else "")
            bad = BadSentence(where, predicted, gold, wrong, len(counts.gold), question)
            item = (wrong, -len(gold.words), -self._seen, bad)
            heapq.heappush(self._worst, item)
            if len(self._worst) > self.keep:
                heapq.heappop(self._worst)

    @property
    def worst(self) -> list[BadSentence]:
        """The sentences with the most errors, worst first."""
        return [bad for _, _, _, bad in sorted(self._worst, key=lambda item: item[:3])[::-1]]


def render_page(
    mistakes: LabelErrors, metrics: Mapping[str, object], *, model: str, file: str
) -> str:
    """Render the page of `weft evaluate --report`: metrics, confusions, worst sentences."""
    from weft.report.drawings.draw import draw
    from weft.report.html import render

    unit, labels = mistakes.units
    return render(
        "mistakes.html",
        model=model,
        file=file,
        metrics=metrics,
        unit=unit,
        labels=labels,
        rows="questions" if mistakes.kind == "answer" else "sentences",
        by_label=mistakes.by_label(),
        confusions=mistakes.most_confused(20),
        worst=[(bad, draw(bad.predicted, bad.gold)) for bad in mistakes.worst],
    )
