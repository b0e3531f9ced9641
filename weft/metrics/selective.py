"""Metrics of a classifier that abstains: how many texts it answers, and how many of them right."""

from dataclasses import replace

import numpy as np

from weft.metrics.bootstrap import bootstrap_statistics, safe_divide
from weft.metrics.value import Metric, MetricValue


class SelectiveMetric(Metric):
    """The metrics of all answers, beside those of the answers that are confident enough."""

    def __init__(self, every: Metric) -> None:
        self.every = every
        self.cells = np.zeros((2, 2), dtype=np.int64)  # texts by answered, right

    def add(self, predicted: np.ndarray, gold: np.ndarray) -> None:
        self.every.add(predicted, gold)

    def add_answered(self, answered: np.ndarray, right: np.ndarray) -> None:
        """Count which answers were given, and which are right."""
        np.add.at(self.cells, (answered.astype(np.int64), right.astype(np.int64)), 1)

    def merge(self, other: "SelectiveMetric") -> None:
        self.every.merge(other.every)
        self.cells += other.cells

    @property
    def n(self) -> int:
        return self.every.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        """Return all metrics; "answered" is a fraction, "selective_accuracy" is of those."""
        statistics = {
            "answered": lambda block: safe_divide(block[:, 2:].sum(1), block.sum(1)),
            "selective_accuracy": lambda block: safe_divide(block[:, 3], block[:, 2:].sum(1)),
        }
        found = bootstrap_statistics(statistics, self.cells.ravel(), resamples, seed, level)
        kept = replace(found["selective_accuracy"], n=int(self.cells[1].sum()))
        return {
            **self.every.compute(resamples, seed, level), **found, "selective_accuracy": kept
        }  # fmt: skip
