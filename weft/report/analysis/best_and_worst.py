"""The best and the worst of what a model wrote, kept while it is measured; and their page."""

import heapq
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from weft.compare.format import figure
from weft.report.analysis.generation_samples import Sample, Side, cut, marked, sentence_scores
from weft.tasks.task import Answer
from weft.text.example import Example

Item = tuple[float, int, Sample]


@dataclass
class Sampled:
    """The `keep` best and worst answers, by chrF; of texts that were heard, by perplexity."""

    kind: str  # the task
    keep: int = 0
    _worst: list[Item] = field(default_factory=list)
    _best: list[Item] = field(default_factory=list)
    _met: int = 0

    def add(self, example: Example, answer: Answer) -> None:
        """One more answer."""
        self._met += 1
        if not self.keep:
            return
        made = self._written(example, answer) if self.kind == "seq2seq" else _heard(example, answer)
        good = made.sides[0].score * (1 if self.kind == "seq2seq" else -1)
        for heap, key in ((self._worst, -good), (self._best, good)):
            push = heapq.heappush if len(heap) < self.keep else heapq.heappushpop
            push(heap, (key, -self._met, made))

    def _written(self, example: Example, answer: Answer) -> Sample:
        label = example.label
        right = [str(one) for one in label] if isinstance(label, tuple) else [str(label)]
        score = float(sentence_scores([answer.value], [right])[0])
        side = Side("answer", score, figure(score, "chrf"), marked(answer.value, right[0]))
        return Sample(cut(example.text), cut(right[0]), (side,), example.where, answer.value)

    @property
    def worst(self) -> list[Sample]:
        """The worst first; what is wholly right is not among them."""
        found = [one for _, _, one in sorted(self._worst, key=lambda item: item[:2], reverse=True)]
        return [one for one in found if self.kind != "seq2seq" or one.sides[0].score < 100 - 1e-6]

    @property
    def best(self) -> list[Sample]:
        """The best first."""
        return [one for _, _, one in sorted(self._best, key=lambda item: item[:2], reverse=True)]


def _heard(example: Example, answer: Answer) -> Sample:
    value = float(answer.value)
    side = Side("text", value, figure(value, "perplexity"), Markup(""))
    return Sample(cut(example.text), "", (side,), example.where)


def page(
    found: Sampled, figures: dict[str, Any], signatures: list[str], *, model: str, file: str
) -> str:
    """The page of `weft evaluate --report` for a model that writes."""
    from weft.report.html import render

    return render(
        "sampled.html",
        model=model,
        file=file,
        figures=figures,
        signatures=signatures,
        kind=found.kind,
        worst=found.worst,
        best=found.best,
    )
