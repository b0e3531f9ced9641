"""The best and worst outputs of a generation model, kept during evaluation; and their page."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from weft.compare.format import format_metric
from weft.report.analysis.generation_samples import (
    GenerationSample,
    SystemOutput,
    diff_markup,
    sentence_chrf,
    truncate,
)
from weft.tasks.task import Answer
from weft.text.example import Example

HeapItem = tuple[float, int, GenerationSample]


@dataclass
class BestAndWorst:
    """The `keep` best and worst outputs by chrF, or texts by perplexity for a language model."""

    kind: str  # the task
    keep: int = 0
    _worst: list[HeapItem] = field(default_factory=list)
    _best: list[HeapItem] = field(default_factory=list)
    _seen: int = 0

    def add(self, example: Example, answer: Answer) -> None:
        """Add one output."""
        self._seen += 1
        if not self.keep:
            return
        sample = (
            self._generated_text(example, answer)
            if self.kind == "seq2seq"
            else _scored_text(example, answer)
        )
        goodness = sample.outputs[0].score * (1 if self.kind == "seq2seq" else -1)
        for heap, key in ((self._worst, -goodness), (self._best, goodness)):
            push = heapq.heappush if len(heap) < self.keep else heapq.heappushpop
            push(heap, (key, -self._seen, sample))

    def _generated_text(self, example: Example, answer: Answer) -> GenerationSample:
        label = example.label
        references = [str(one) for one in label] if isinstance(label, tuple) else [str(label)]
        score = float(sentence_chrf([answer.value], [references])[0])
        output = SystemOutput(
            "answer", score, format_metric(score, "chrf"), diff_markup(answer.value, references[0])
        )
        return GenerationSample(
            truncate(example.text), truncate(references[0]), (output,), example.where, answer.value
        )

    @property
    def worst(self) -> list[GenerationSample]:
        """The worst outputs, worst first, without perfect ones."""
        samples = [
            one for _, _, one in sorted(self._worst, key=lambda item: item[:2], reverse=True)
        ]
        return [
            one for one in samples if self.kind != "seq2seq" or one.outputs[0].score < 100 - 1e-6
        ]

    @property
    def best(self) -> list[GenerationSample]:
        """The best outputs, best first."""
        return [one for _, _, one in sorted(self._best, key=lambda item: item[:2], reverse=True)]


def _scored_text(example: Example, answer: Answer) -> GenerationSample:
    value = float(answer.value)
    output = SystemOutput("text", value, format_metric(value, "perplexity"), Markup(""))
    return GenerationSample(truncate(example.text), "", (output,), example.where)


def render_page(
    outputs: BestAndWorst,
    metrics: Mapping[str, object],
    signatures: list[str],
    *,
    model: str,
    file: str,
) -> str:
    """Render the page of `weft evaluate --report` for generation and language models."""
    from weft.report.html import render

    return render(
        "best_and_worst.html",
        model=model,
        file=file,
        metrics=metrics,
        signatures=signatures,
        kind=outputs.kind,
        worst=outputs.worst,
        best=outputs.best,
    )
