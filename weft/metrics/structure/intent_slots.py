"""Counts for an intent and slots of each sentence: their accuracy, span F1, and both together.

R resamples   P distinct outcomes of a sentence
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from weft.metrics.bootstrap import bootstrap_statistics, safe_divide
from weft.metrics.structure.chunks import Span
from weft.metrics.value import MetricRepr, MetricValue


class IntentSlotMetric(MetricRepr):
    """Intent accuracy, slot F1 and exact match.

    Slots are spans, right if label and both borders are, pooled over all types as in conlleval. A
    sentence matches exactly if its intent and all its slots are right, and no slot is too many: the
    semantic frame accuracy of Goo et al. (2018). The intervals are over sentences.
    """

    def __init__(self) -> None:
        # (intent right; spans right, predicted, true) of a sentence -> sentences
        self.sentences: Counter[tuple[int, ...]] = Counter()

    def add_sentence(
        self, intents: tuple[str, str], predicted: Sequence[Span], gold: Sequence[Span]
    ) -> None:
        """Count one sentence: its predicted and its gold intent, and the spans of both."""
        ours, theirs = set(predicted), set(gold)  # a span that is given twice is one span
        right = intents[0] == intents[1]
        self.sentences[int(right), len(ours & theirs), len(ours), len(theirs)] += 1

    def merge(self, other: "IntentSlotMetric") -> None:
        self.sentences.update(other.sentences)

    @property
    def n(self) -> int:
        return self.sentences.total()

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        outcomes = sorted(self.sentences)  # so that figures do not depend on the order of adding
        table = np.array(outcomes, dtype=np.float64).reshape(-1, 4)  # (P, 4)
        counts = np.array([self.sentences[outcome] for outcome in outcomes], dtype=np.int64)
        intent, right, predicted, true = table.T
        exact = intent * (right == predicted) * (right == true)
        one = np.ones_like(intent)
        statistics: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "exact_match": lambda block: safe_divide(block @ exact, block @ one),
            "intent_accuracy": lambda block: safe_divide(block @ intent, block @ one),
            "slot_f1": lambda block: safe_divide(block @ (2 * right), block @ (predicted + true)),
            "slot_precision": lambda block: safe_divide(block @ right, block @ predicted),
            "slot_recall": lambda block: safe_divide(block @ right, block @ true),
        }
        return bootstrap_statistics(statistics, counts, resamples, seed, level)
