"""Counts of words with the right tag, in one column of tags or several at once.

R resamples   P distinct outcomes of a sentence   K columns
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from weft.metrics.bootstrap import bootstrap_statistics, safe_divide
from weft.metrics.value import MetricValue, lower_is_better

Columns = Sequence[Sequence[str]]  # of a sentence: for each column, the tags of the words


def metric_name(column: str) -> str:
    """Return the name of a column's accuracy: the column's, unless that is an error's ("wrong").

    Metrics are ranked by name (`lower_is_better`), and accuracy must never rank as an error.
    """
    return f"{column}_accuracy" if lower_is_better(column) else column


class TagAccuracy:
    """A tag for every word in each column: how many words and how many whole sentences are right.

    The figures are `NAME` (words) and `NAME_sentences` for each column, `NAME_unknown` (words that
    training never saw) once `add` was given those, and, with several columns, `all` and
    `all_sentences` for words right in every one. The intervals are over sentences.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        assert columns
        self.columns = tuple(columns)
        self.has_unknown = False  # which words are unknown
        # (words, unknown words, those right in each column, unknown ones right) -> sentences
        self.sentences: Counter[tuple[int, ...]] = Counter()
        self.confusions: list[Counter[tuple[str, str]]] = [Counter() for _ in columns]

    def add(
        self,
        predicted: Sequence[Columns],
        gold: Sequence[Columns],
        unknown: Sequence[Sequence[bool]] | None = None,
    ) -> None:
        """Count some sentences, and which of their words are unknown."""
        assert len(predicted) == len(gold)
        self.has_unknown = self.has_unknown or unknown is not None
        for i, (prediction, true) in enumerate(zip(predicted, gold, strict=True)):
            right = [
                np.array([a == b for a, b in zip(ours, theirs, strict=True)], bool)
                for ours, theirs in zip(prediction, true, strict=True)
            ]
            assert len(right) == len(self.columns)
            for count, ours, theirs in zip(self.confusions, prediction, true, strict=True):
                count.update(zip(theirs, ours, strict=True))
            words = len(right[0])
            new = np.zeros(words, bool) if unknown is None else np.array(unknown[i], bool)
            assert all(len(each) == words for each in (*right, new))
            if words:
                right = [*right, np.logical_and.reduce(right)]
                outcome = [words, new.sum(), *(r.sum() for r in right)]
                self.sentences[tuple(map(int, [*outcome, *((r & new).sum() for r in right)]))] += 1

    def merge(self, other: "TagAccuracy") -> None:
        assert self.columns == other.columns
        self.has_unknown = self.has_unknown or other.has_unknown
        self.sentences.update(other.sentences)
        for mine, theirs in zip(self.confusions, other.confusions, strict=True):
            mine.update(theirs)

    @property
    def n(self) -> int:
        return self.sentences.total()

    def confusion(self, column: str) -> Counter[tuple[str, str]]:
        """(gold, predicted) -> words, of one column."""
        return Counter(self.confusions[self.columns.index(column)])

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        outcomes = sorted(self.sentences)  # so that figures do not depend on the order of adding
        width = len(self.columns) + 1
        table = np.array(outcomes, dtype=np.float64).reshape(-1, 2 + 2 * width).T  # (2+2*K+2, P)
        counts = np.array([self.sentences[outcome] for outcome in outcomes], dtype=np.int64)
        words, new, right, right_new = table[0], table[1], table[2 : 2 + width], table[2 + width :]
        statistics: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
        names = [metric_name(column) for column in self.columns]
        names += ["all"] if len(self.columns) > 1 else []
        for name, good, good_new in zip(names, right, right_new, strict=False):
            statistics[name] = _fraction(good, words)
            statistics[f"{name}_sentences"] = _fraction(good == words, np.ones_like(words))
            if self.has_unknown:
                statistics[f"{name}_unknown"] = _fraction(good_new, new)
        return bootstrap_statistics(statistics, counts, resamples, seed, level)


def _fraction(part: np.ndarray, whole: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The quotient of two sums over sentences, of (R, P) counts."""
    return lambda block: safe_divide(block @ part.astype(np.float64), block @ whole)
