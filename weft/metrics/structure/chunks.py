"""Counts of labelled spans found exactly: precision, recall and F1 as the CoNLL tasks define them.

R resamples   P distinct outcomes of a sentence
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.metrics.bootstrap import bootstrap_statistics, safe_divide
from weft.metrics.classify import ClassScores, score_labels
from weft.metrics.value import MetricValue

Span = tuple[str, int, int]  # label, first word, the word after the last


class SpanF1:
    """Spans, right when label and both borders are: conlleval's counts, pooled over all types.

    Token accuracy is included once `add` was given the number of correctly tagged words. The
    intervals are over sentences.
    """

    def __init__(self) -> None:
        # (spans right, predicted, true; words right, words) of a sentence -> sentences
        self.sentences: Counter[tuple[int, ...]] = Counter()
        self.correct: Counter[str] = Counter()  # by label
        self.predicted: Counter[str] = Counter()
        self.gold: Counter[str] = Counter()

    def add(
        self,
        predicted: Sequence[Sequence[Span]],
        gold: Sequence[Sequence[Span]],
        tags: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Count the spans of some sentences, and of each (words with the right tag, words)."""
        assert len(predicted) == len(gold)
        assert not tags or len(tags) == len(gold)
        known = tags or [(0, 0)] * len(gold)
        for prediction, true, words in zip(predicted, gold, known, strict=True):
            # As sets: a span that is given twice is one span.
            ours, theirs = set(prediction), set(true)
            both = ours & theirs
            outcome = (len(both), len(ours), len(theirs), *words)
            self.sentences[outcome] += 1
            for count, spans in ((self.correct, both), (self.predicted, ours), (self.gold, theirs)):
                count.update(label for label, _, _ in spans)

    def merge(self, other: "SpanF1") -> None:
        self.sentences.update(other.sentences)
        self.correct.update(other.correct)
        self.predicted.update(other.predicted)
        self.gold.update(other.gold)

    @property
    def n(self) -> int:
        return self.sentences.total()

    def per_class(self) -> dict[str, ClassScores]:
        """Precision, recall, F1 and support of each type of span, by name."""
        return score_labels(self.correct, self.predicted, self.gold)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        outcomes = sorted(self.sentences)  # so that figures do not depend on the order of adding
        table = np.array(outcomes, dtype=np.float64).reshape(-1, 5)  # (P, 5)
        counts = np.array([self.sentences[outcome] for outcome in outcomes], dtype=np.int64)
        right, predicted, true, good, words = table.T
        statistics = {
            "f1": lambda block: safe_divide(block @ (2 * right), block @ (predicted + true)),
            "precision": lambda block: safe_divide(block @ right, block @ predicted),
            "recall": lambda block: safe_divide(block @ right, block @ true),
        }
        if words.any():
            statistics["accuracy"] = lambda block: safe_divide(block @ good, block @ words)
        return bootstrap_statistics(statistics, counts, resamples, seed, level)
