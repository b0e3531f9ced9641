"""Counts for labels that are paths in a tree: accuracy by level, and the overlap of paths.

R resamples   P distinct outcomes   C labels   D levels
"""

from collections.abc import Callable

import numpy as np

from weft.metrics.bootstrap import bootstrap_statistics, safe_divide
from weft.metrics.classify import UNSEEN, ClassificationMetric
from weft.metrics.value import MetricValue


class HierarchicalMetric(ClassificationMetric):
    """One path a text: beside the metrics of its label, those of the nodes above it.

    `accuracy_level_k` is over the texts whose gold path has k levels: right if the predicted path
    has the same nodes down to there. `hierarchical_f1` is 2·Σ|P ∩ G| / Σ(|P| + |G|) over the nodes
    of predicted and gold paths (Kiritchenko et al. 2005). A gold label the model never saw is
    wrong at every level, with a path as long as the predicted one.
    """

    def __init__(self, path_ids: np.ndarray, outside: int | None = None) -> None:
        super().__init__(len(path_ids), outside)
        self.path_ids = path_ids  # (C, D) nodes, negative where a path has ended

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        cells = sorted(self.cells)  # so that figures do not depend on the order of adding
        gold, predicted = np.array(cells, dtype=np.int64).reshape(-1, 2).T
        counts = np.array([self.cells[cell] for cell in cells], dtype=np.int64)
        ours, theirs = self.path_ids[predicted], self.path_ids[gold]  # (P, D)
        unseen = (gold == UNSEEN)[:, None]
        exists = np.where(unseen, ours, theirs) >= 0  # (P, D)
        right = (ours == theirs) & exists & ~unseen
        statistics: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            f"accuracy_level_{k + 1}": _ratio(right[:, k], exists[:, k])
            for k in range(self.path_ids.shape[1])
        }
        statistics["hierarchical_f1"] = _ratio(2 * right.sum(1), (ours >= 0).sum(1) + exists.sum(1))
        levels = bootstrap_statistics(statistics, counts, resamples, seed, level)
        return {**super().compute(resamples, seed, level), **levels}


def _ratio(part: np.ndarray, whole: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the quotient of two sums over (R, P) counts."""
    return lambda block: safe_divide(block @ part.astype(float), block @ whole.astype(float))
