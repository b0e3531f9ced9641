"""Counts of each sentence, summed and resampled by sentence.

R resamples   P distinct rows of counts   K counts
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from weft.metrics.bootstrap import draw_resamples, percentile_interval
from weft.metrics.value import MetricValue

Statistic = Callable[[np.ndarray], np.ndarray]  # sums (R, K), and sentences last -> (R,)


class SentenceCounts:
    """K counts a sentence; any figure that is made of their sums gets its interval here."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: Counter[tuple[float, ...]] = Counter()  # counts of a sentence -> sentences

    def add(self, row: tuple[float, ...]) -> None:
        assert len(row) == self.width
        self.rows[row] += 1

    def merge(self, other: "SentenceCounts") -> None:
        assert self.width == other.width
        self.rows.update(other.rows)

    @property
    def n(self) -> int:
        return self.rows.total()

    def compute(
        self, statistics: Mapping[str, Statistic], resamples: int, seed: int, level: float
    ) -> dict[str, MetricValue]:
        """Each statistic of the sums, with the interval of its resampled values."""
        if not self.n:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in statistics}
        keys = sorted(self.rows)  # so that figures do not depend on the order of adding
        table = np.array([(*key, 1) for key in keys], dtype=float)  # (P, K+1)
        counts = np.array([self.rows[key] for key in keys], dtype=np.int64)
        sums = [block @ table for block in draw_resamples(counts, resamples, seed)]
        resampled = np.concatenate([*sums, np.zeros((0, self.width + 1))])  # (R, K+1)
        whole = (counts @ table)[None]
        return {
            name: percentile_interval(statistic(whole)[0], statistic(resampled), self.n, level)
            for name, statistic in statistics.items()
        }
