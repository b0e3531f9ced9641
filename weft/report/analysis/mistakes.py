"""Where answers about words go wrong: label by label, what is taken for what, worst sentences."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.compare.sentence_scores import UNITS, judged
from weft.metrics.classify import ClassScores, score_classes
from weft.tasks.annotation import Annotation
from weft.text.example import Example


@dataclass(frozen=True)
class Bad:
    """One sentence with mistakes in it."""

    where: str  # file, line and name of the sentence
    said: Annotation
    gold: Annotation
    wrong: int
    of: int
    asked: str = ""  # the question, where the sentence is a passage


@dataclass
class Mistakes:
    """Counts of every label, right, said and true, in constant memory; the `keep` worst sentences.

    The worst are those with the most mistakes, the shorter before the longer.
    """

    keep: int = 0
    kind: str = ""
    right: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    true: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)  # (true, said)
    _worst: list[tuple[int, int, int, Bad]] = field(default_factory=list)
    _met: int = 0

    def add(self, example: Example, said: Annotation, gold: Annotation) -> None:
        """Count one sentence."""
        found = judged(said, gold)
        self.kind = said.kind
        self.right.update(found.right)
        self.said.update(found.said)
        self.true.update(found.true)
        self.cells.update(found.cells)
        wrong = len(found.true) - len(found.right)
        if said.kind in ("spans", "constituents"):  # one too many is a mistake as well
            wrong += len(found.said) - len(found.right)
        self._met += 1
        if wrong and self.keep:
            asked, where = "", example.sentence
            if example.other is not None:
                asked = example.text
                where = example.where + (f": question '{example.id}'" if example.id else "")
            bad = Bad(where, said, gold, wrong, len(found.true), asked)
            item = (wrong, -len(gold.words), -self._met, bad)
            heapq.heappush(self._worst, item)
            if len(self._worst) > self.keep:
                heapq.heappop(self._worst)

    @property
    def worst(self) -> list[Bad]:
        """The sentences with the most mistakes, the worst first."""
        return [bad for _, _, _, bad in sorted(self._worst, key=lambda item: item[:3])[::-1]]

    @property
    def units(self) -> tuple[str, str]:
        """What is counted, and what its labels are called."""
        return UNITS[self.kind]

    def by_label(self) -> dict[str, ClassScores]:
        """Precision, recall, F1 and support of each label, the most frequent first."""
        names = sorted(self.said | self.true, key=lambda name: (-self.true[name], name))
        counts = [
            np.array([count[name] for name in names], dtype=np.int64)
            for count in (self.right, self.said, self.true)
        ]
        return dict(zip(names, score_classes(*counts), strict=True))

    def confusions(self, most: int) -> list[tuple[str, str, int]]:
        """(true, said, how often) of what is most often taken for something else."""
        wrong = [(a, b, n) for (a, b), n in self.cells.items() if a != b]
        return sorted(wrong, key=lambda cell: (-cell[2], cell[:2]))[:most]


def page(mistakes: Mistakes, figures: dict[str, Any], *, model: str, file: str) -> str:
    """The page of `weft evaluate --report`: figures, labels, confusions, the worst sentences."""
    from weft.report.drawings.draw import drawn
    from weft.report.html import render

    unit, labels = mistakes.units
    return render(
        "mistakes.html",
        model=model,
        file=file,
        figures=figures,
        unit=unit,
        labels=labels,
        rows="questions" if mistakes.kind == "answer" else "sentences",
        by_label=mistakes.by_label(),
        confusions=mistakes.confusions(20),
        worst=[(bad, drawn(bad.said, bad.gold)) for bad in mistakes.worst],
    )
