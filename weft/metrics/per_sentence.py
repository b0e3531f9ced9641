"""Numbers of each sentence in the order they came, so that two systems can also be paired.

R resamples   P distinct rows   K numbers a sentence   n sentences
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import UserError, unknown_name
from weft.metrics.bootstrap import draw_resamples, percentile_interval
from weft.metrics.sentence_counts import Statistic
from weft.metrics.value import MetricRepr, MetricValue


class SentenceMetric(MetricRepr):
    """K numbers a sentence; every figure is a statistic of their sums, and so is its interval.

    Unlike `SentenceCounts` the rows may be fractions and keep their order. What is measured
    under other settings cannot be merged.
    """

    def __init__(self, width: int, *settings: object) -> None:
        self.width = width
        self.settings = settings
        self.rows: list[tuple[float, ...]] = []

    def add(self, predicted: Any, gold: Any) -> None:
        """Count one batch of answers."""
        raise NotImplementedError

    def statistics(self) -> Mapping[str, Statistic]:
        """Return every statistic by name, of sums (R, K) with the number of sentences last."""
        raise NotImplementedError

    @property
    def signature(self) -> str:
        """The settings in the form that others cite, or ""."""
        return ""

    def add_row(self, row: Sequence[float]) -> None:
        assert len(row) == self.width
        self.rows.append(tuple(row))

    def merge(self, other: Any) -> None:
        assert (type(self), self.settings) == (type(other), other.settings)
        self.rows.extend(other.rows)

    @property
    def n(self) -> int:
        return len(self.rows)

    def table(self) -> np.ndarray:
        """(n, K) numbers of each sentence, in the order of adding."""
        return np.array(self.rows, dtype=float).reshape(-1, self.width)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        statistics = self.statistics()
        if not self.n:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in statistics}
        whole, resampled = _resample_sums(self.table(), resamples, seed)
        return {
            name: percentile_interval(statistic(whole)[0], statistic(resampled), self.n, level)
            for name, statistic in statistics.items()
        }


class CombinedMetric(SentenceMetric):
    """Several metrics of the same answers, resampled together."""

    def __init__(self, *measures: SentenceMetric) -> None:
        super().__init__(sum(each.width for each in measures))
        self.metrics = measures

    def add(self, predicted: Any, gold: Any) -> None:
        """Count one batch of answers with every measure."""
        for each in self.metrics:
            each.add(predicted, gold)

    def merge(self, other: "CombinedMetric") -> None:
        for mine, theirs in zip(self.metrics, other.metrics, strict=True):
            mine.merge(theirs)

    @property
    def n(self) -> int:
        return self.metrics[0].n

    def table(self) -> np.ndarray:
        return np.hstack([each.table() for each in self.metrics])

    def statistics(self) -> Mapping[str, Statistic]:
        statistics: dict[str, Statistic] = {}
        start = 0
        for each in self.metrics:
            columns = [*range(start, start + each.width), -1]
            for name, statistic in each.statistics().items():
                assert name not in statistics, f"two measures have a figure '{name}'"
                statistics[name] = _select_columns(statistic, columns)
            start += each.width
        return statistics


@dataclass(frozen=True)
class PairedComparison:
    """Two systems on the same sentences: their figures, the difference, and how likely by chance.

    `p` is two-sided, from the paired bootstrap of `weft.metrics.paired`.
    """

    first: float
    second: float
    difference: MetricValue
    p: float


def compare_paired(
    first: SentenceMetric,
    second: SentenceMetric,
    name: str,
    resamples: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
) -> PairedComparison:
    """Compare one metric of two systems by the paired bootstrap (Koehn 2004).

    Sentences are resampled together and the figure computed anew for both systems, which a corpus
    BLEU needs: it is no mean over sentences. The resampled difference is centred on zero, and the
    observed sample counts as one resample, as in `weft.metrics.paired`. Both tails count: the p
    of sacrebleu's bootstrap is about half of this, that of its randomisation test the same.
    """
    if first.n != second.n:
        raise UserError(
            f"Two systems can be compared on the same sentences only: one has {first.n} answers, "
            f"the other {second.n}."
        )
    mine, theirs = first.statistics(), second.statistics()
    if name not in mine or name not in theirs:
        raise unknown_name("figure", name, set(mine) & set(theirs))
    if not first.n:
        return PairedComparison(0.0, 0.0, MetricValue(0.0, 0.0, 0.0, 0), 1.0)
    whole, resampled = _resample_sums(np.hstack([first.table(), second.table()]), resamples, seed)
    one = _select_columns(mine[name], [*range(first.width), -1])
    other = _select_columns(theirs[name], [*range(first.width, first.width + second.width), -1])
    a, b = one(whole), other(whole)
    observed, gaps = float(a[0] - b[0]), one(resampled) - other(resampled)
    slack = 1e-12 * max(1.0, abs(float(a[0])), abs(float(b[0])))
    reached = int((np.abs(gaps - observed) >= abs(observed) - slack).sum())
    difference = percentile_interval(observed, gaps, first.n, level)
    return PairedComparison(float(a[0]), float(b[0]), difference, (1 + reached) / (1 + resamples))


def as_reference_lists(gold: Sequence[str | Sequence[str]]) -> list[list[str]]:
    """The references of each answer as a list, where one may have come as a plain string."""
    listed = [[each] if isinstance(each, str) else list(each) for each in gold]
    for number, each in enumerate(listed, 1):
        if not each:
            raise UserError(f"Answer {number} has no reference to be compared with.")
    return listed


def mean_of_column(column: int) -> Statistic:
    """The mean over sentences of one column of the rows."""
    return lambda sums: sums[:, column] / np.maximum(sums[:, -1], 1)


def _select_columns(statistic: Statistic, columns: list[int]) -> Statistic:
    return lambda sums: statistic(sums[:, columns])


def _resample_sums(table: np.ndarray, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums over all sentences (1, K + 1) and over resamples of them (R, K + 1), their number last.

    Distinct rows come sorted, so that figures do not depend on the order of adding.
    """
    rows, counts = np.unique(table, axis=0, return_counts=True)  # (P, K)
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    blocks = [block @ rows for block in draw_resamples(counts, resamples, seed)]
    return (counts @ rows)[None], np.concatenate([*blocks, np.zeros((0, rows.shape[1]))])
