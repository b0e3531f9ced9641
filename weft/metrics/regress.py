"""Correlation and squared error of predicted numbers.

R resamples   n examples   G distinct values   K dimensions
"""

from collections.abc import Sequence

import numpy as np

from weft.metrics.bootstrap import draw_resamples, percentile_interval
from weft.metrics.value import MetricRepr, MetricValue

NAMES = ("pearson", "spearman", "mse")


class RegressionMetric(MetricRepr):
    """Pearson, Spearman (ties share their mean rank) and mean squared error.

    A correlation that does not exist, because one side is constant, is 0. `unit` is what a step of
    1 in the numbers added is worth in the user's own unit: the squared error is given in that one.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit
        self.pairs: list[np.ndarray] = []  # each (2, n): predicted, gold

    def add(self, predicted: np.ndarray, gold: np.ndarray) -> None:
        assert predicted.shape == gold.shape
        assert predicted.ndim == 1
        self.pairs.append(np.stack([predicted, gold]).astype(np.float64))

    def merge(self, other: "RegressionMetric") -> None:
        assert self.unit == other.unit
        self.pairs.extend(other.pairs)

    @property
    def n(self) -> int:
        return sum(pair.shape[1] for pair in self.pairs)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        n = self.n
        if not n:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in NAMES}
        predicted, gold = np.concatenate(self.pairs, axis=1)
        order = np.lexsort((predicted, gold))  # figures do not depend on the order of adding
        predicted, gold = predicted[order], gold[order]
        ones = np.ones(n, dtype=np.int64)
        values = _compute_all(ones[None], predicted, gold, self.unit)[:, 0]
        blocks = [
            _compute_all(b, predicted, gold, self.unit)
            for b in draw_resamples(ones, resamples, seed)
        ]
        resampled = np.concatenate([*blocks, np.zeros((3, 0))], axis=1)  # (3, R)
        return {
            name: percentile_interval(value, row, n, level)
            for name, value, row in zip(NAMES, values, resampled, strict=True)
        }


class GroupedRegressionMetric(RegressionMetric):
    """The same over numbers that come in groups, such as the words of sentences.

    Groups are resampled for the intervals, and counted by `n`.
    """

    @property
    def n(self) -> int:
        return len(self.pairs)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        n = self.n
        # Figures do not depend on the order of adding.
        pairs = sorted(self.pairs, key=lambda pair: pair.tobytes())
        both = np.concatenate([*pairs, np.zeros((2, 0))], axis=1)
        if not both.shape[1]:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in NAMES}
        group = np.repeat(np.arange(n), [pair.shape[1] for pair in pairs])
        ones = np.ones(n, dtype=np.int64)
        predicted, gold = both
        values = _compute_all(ones[None][:, group], predicted, gold, self.unit)[:, 0]
        blocks = []
        for block in draw_resamples(ones, resamples, seed):
            weights = block[:, group]
            drawn = weights[weights.sum(1) > 0]  # some groups may be empty
            blocks.append(_compute_all(drawn, predicted, gold, self.unit))
        resampled = np.concatenate([*blocks, np.zeros((3, 0))], axis=1)  # (3, R)
        return {
            name: percentile_interval(value, row, n, level)
            for name, value, row in zip(NAMES, values, resampled, strict=True)
        }


class VectorRegressionMetric(MetricRepr):
    """The metrics of RegressionMetric for each dimension of vectors, and their averages first.

    `units` are those of the dimensions. Dimensions are counted from 1: `pearson_1`, `mse_2`.
    """

    def __init__(self, units: Sequence[float]) -> None:
        self.units = tuple(units)
        self.pairs: list[np.ndarray] = []  # each (2, n, K): predicted, gold

    def add(self, predicted: np.ndarray, gold: np.ndarray) -> None:
        assert predicted.shape == gold.shape
        assert predicted.shape[1:] == (len(self.units),)
        self.pairs.append(np.stack([predicted, gold]).astype(np.float64))

    def merge(self, other: "VectorRegressionMetric") -> None:
        assert self.units == other.units
        self.pairs.extend(other.pairs)

    @property
    def n(self) -> int:
        return sum(pair.shape[1] for pair in self.pairs)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        n, size = self.n, len(self.units)
        names = [*NAMES, *(f"{name}_{k + 1}" for k in range(size) for name in NAMES)]
        if not n:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in names}
        both = np.concatenate(self.pairs, axis=1)  # (2, n, K)
        order = np.lexsort(both.transpose(0, 2, 1).reshape(2 * size, n))
        predicted, gold = both[:, order]
        ones = np.ones(n, dtype=np.int64)

        def compute_block(block: np.ndarray) -> np.ndarray:
            """Return the averages, then each dimension (3 + 3K, R)."""
            rows = [
                _compute_all(block, predicted[:, k], gold[:, k], unit)
                for k, unit in enumerate(self.units)
            ]
            return np.concatenate([np.mean(rows, axis=0), *rows])

        values = compute_block(ones[None])[:, 0]
        blocks = [compute_block(b) for b in draw_resamples(ones, resamples, seed)]
        resampled = np.concatenate([*blocks, np.zeros((len(names), 0))], axis=1)  # (3 + 3K, R)
        return {
            name: percentile_interval(value, row, n, level)
            for name, value, row in zip(names, values, resampled, strict=True)
        }


def _compute_all(
    block: np.ndarray, predicted: np.ndarray, gold: np.ndarray, unit: float
) -> np.ndarray:
    """Pearson, Spearman and squared error (3, R) for each row of how often an example was drawn."""
    weights = block.astype(np.float64)  # (R, n)
    error = weights @ np.square((predicted - gold) * unit) / weights.sum(1)
    ranks = _mean_ranks(weights, predicted), _mean_ranks(weights, gold)
    return np.stack([_pearson(weights, predicted, gold), _pearson(weights, *ranks), error])


def _pearson(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's r of each row of weights (R, n); x and y are (n,) or (R, n)."""
    total = weights.sum(1, keepdims=True)
    x = x - (weights * x).sum(1, keepdims=True) / total  # (R, n)
    y = y - (weights * y).sum(1, keepdims=True) / total
    xx, yy, xy = ((weights * a * b).sum(1) for a, b in ((x, x), (y, y), (x, y)))
    # Centring a constant leaves rounding dust rather than 0: test the values, not the variance.
    real = ~(_is_constant(weights, x) | _is_constant(weights, y)) & (xx > 0) & (yy > 0)
    r = np.zeros(len(weights))
    np.divide(xy, np.sqrt(xx) * np.sqrt(yy), out=r, where=real)
    return r.clip(-1.0, 1.0)


def _is_constant(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return a mask (R,) of rows whose drawn values are all equal."""
    drawn = weights > 0
    same: np.ndarray = np.where(drawn, x, -np.inf).max(1) == np.where(drawn, x, np.inf).min(1)
    return same


def _mean_ranks(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Mean rank (R, n) of each value in the resample that the weights describe."""
    values, group = np.unique(x, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(values)))
    drawn = np.add.reduceat(weights[:, order], starts, axis=1)  # (R, G) examples of each value
    ranks = np.cumsum(drawn, axis=1) - (drawn - 1) / 2
    return ranks[:, group]
