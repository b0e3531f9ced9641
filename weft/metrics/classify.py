"""Counts for one label or several labels a text: accuracy, precision, recall, F1, correlation.

R resamples   P distinct outcomes   C labels   n examples
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.metrics.bootstrap import bootstrap_statistics, safe_divide
from weft.metrics.value import MetricRepr, MetricValue

Statistic = Callable[[np.ndarray], np.ndarray]  # of counts (R, P), one value a resample
UNSEEN = -1  # gold index of a label that the model never saw in training


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one class; support is its number of gold examples."""

    precision: float
    recall: float
    f1: float
    support: int


class ClassificationMetric(MetricRepr):
    """One label a text, as a confusion count.

    Macro-F1 is the plain mean over the classes that occur in gold or prediction. Gold labels the
    model never saw (index -1) are wrong whatever is predicted and together form one class of F1 0.

    With a class `out_of_scope`, the accuracy of the texts in scope and the recall and precision of
    that class are measured, too (Larson et al. 2019); with a class `positive`, its precision,
    recall and F1.
    """

    def __init__(
        self, size: int, out_of_scope: int | None = None, positive: int | None = None
    ) -> None:
        self.size, self.out_of_scope, self.positive = size, out_of_scope, positive
        self.cells: Counter[tuple[int, int]] = Counter()  # (gold, predicted) -> examples

    def add(self, predicted: np.ndarray, gold: np.ndarray) -> None:
        assert predicted.shape == gold.shape
        assert predicted.ndim == 1
        assert not len(gold) or (gold.min() >= UNSEEN and gold.max() < self.size)
        assert not len(gold) or (predicted.min() >= 0 and predicted.max() < self.size)
        pairs, counts = np.unique(np.stack([gold, predicted]), axis=1, return_counts=True)
        for g, p, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            self.cells[int(g), int(p)] += count

    def merge(self, other: "ClassificationMetric") -> None:
        assert self.size == other.size
        self.cells.update(other.cells)

    @property
    def n(self) -> int:
        return self.cells.total()

    @property
    def confusion(self) -> np.ndarray:
        """(C + 1, C) examples by gold row and predicted column; the last row is gold never seen."""
        table = np.zeros((self.size + 1, self.size), dtype=np.int64)
        for (gold, predicted), count in self.cells.items():
            table[gold, predicted] = count  # UNSEEN, -1, is the last row
        return table

    def per_class(self) -> list[ClassScores]:
        """Precision, recall, F1 and support of each class, in the order of the labels."""
        right, prediction, true = (np.zeros(self.size, dtype=np.int64) for _ in range(3))
        for (gold, predicted), count in self.cells.items():
            prediction[predicted] += count
            if gold != UNSEEN:
                true[gold] += count
            if gold == predicted:
                right[gold] += count
        return score_classes(right, prediction, true)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        cells = sorted(self.cells)  # so that figures do not depend on the order of adding
        gold, predicted = np.array(cells, dtype=np.int64).reshape(-1, 2).T
        counts = np.array([self.cells[cell] for cell in cells], dtype=np.int64)

        def accuracy(block: np.ndarray) -> np.ndarray:
            return safe_divide(block[:, gold == predicted].sum(1), block.sum(1))

        def macro_f1(block: np.ndarray) -> np.ndarray:
            true = _sum_by_index(block, gold, self.size)  # (R, C + 1)
            prediction = _sum_by_index(block, predicted, self.size)
            right = _sum_by_index(block * (gold == predicted), gold, self.size)
            return _macro_f1(right, prediction, true)

        def matthews(block: np.ndarray) -> np.ndarray:
            true = _sum_by_index(block, gold, self.size).astype(float)  # (R, C + 1)
            prediction = _sum_by_index(block, predicted, self.size).astype(float)
            right = block[:, gold == predicted].sum(1)
            return _matthews(right, prediction, true)

        statistics: dict[str, Statistic] = {
            "accuracy": accuracy, "macro_f1": macro_f1, "matthews": matthews,
        }  # fmt: skip
        if self.out_of_scope is not None:
            outside = (gold == self.out_of_scope, predicted == self.out_of_scope)
            statistics |= _out_of_scope_statistics(gold == predicted, *outside)
        if self.positive is not None:
            true, found = gold == self.positive, predicted == self.positive

            def f1(block: np.ndarray) -> np.ndarray:
                total = block[:, true].sum(1) + block[:, found].sum(1)
                return safe_divide(2 * block[:, true & found].sum(1), total)

            statistics |= {
                "precision": _fraction(true, found), "recall": _fraction(found, true), "f1": f1,
            }  # fmt: skip
        return bootstrap_statistics(statistics, counts, resamples, seed, level)


class MultiLabelMetric(MetricRepr):
    """Several labels a text, as counts of distinct (gold, predicted) pairs of 0/1 rows.

    Accuracy is exact match of the whole set. Micro-F1 pools every label decision; macro-F1 is the
    plain mean over the labels that occur in gold or prediction. With `pooled`, the precision and
    recall of all label decisions are measured, too.
    """

    def __init__(self, size: int, pooled: bool = False) -> None:
        self.size, self.pooled = size, pooled
        self.rows: Counter[bytes] = Counter()  # gold row then predicted row, packed -> examples

    def add(self, predicted: np.ndarray, gold: np.ndarray) -> None:
        assert predicted.shape == gold.shape
        assert predicted.shape[1:] == (self.size,)
        packed = np.packbits(np.concatenate([gold > 0, predicted > 0], axis=1), axis=1)
        self.rows.update(row.tobytes() for row in packed)

    def merge(self, other: "MultiLabelMetric") -> None:
        assert self.size == other.size
        self.rows.update(other.rows)

    @property
    def n(self) -> int:
        return self.rows.total()

    def per_class(self) -> list[ClassScores]:
        """Precision, recall, F1 and support of each label, in the order of the labels."""
        gold, predicted, counts = self._unpack()
        right = counts @ (gold & predicted).astype(np.int64)
        return score_classes(
            right, counts @ predicted.astype(np.int64), counts @ gold.astype(np.int64)
        )

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        gold, predicted, counts = self._unpack()
        exact = (gold == predicted).all(1)
        # Matrix products of floats run on BLAS; those of integers do not, and counts stay exact.
        true_, predicted_, right_ = (m.astype(float) for m in (gold, predicted, gold & predicted))

        def accuracy(block: np.ndarray) -> np.ndarray:
            return safe_divide(block[:, exact].sum(1), block.sum(1))

        def micro_f1(block: np.ndarray) -> np.ndarray:
            right, predicted, true = (block @ m.sum(1) for m in (right_, predicted_, true_))
            return safe_divide(2 * right, predicted + true)

        def macro_f1(block: np.ndarray) -> np.ndarray:
            weights = block.astype(float)  # (R, P)
            return _macro_f1(weights @ right_, weights @ predicted_, weights @ true_)

        def pool(whole: np.ndarray) -> Statistic:
            return lambda block: safe_divide(block @ right_.sum(1), block @ whole.sum(1))

        statistics: dict[str, Statistic] = {
            "micro_f1": micro_f1, "macro_f1": macro_f1, "accuracy": accuracy,
        }  # fmt: skip
        if self.pooled:
            statistics |= {"micro_precision": pool(predicted_), "micro_recall": pool(true_)}
        return bootstrap_statistics(statistics, counts, resamples, seed, level)

    def _unpack(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct gold rows and predicted rows (P, C) of booleans, and how often each came."""
        keys = sorted(self.rows)
        width = (2 * self.size + 7) // 8
        packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, width)
        bits = np.unpackbits(packed, axis=1, count=2 * self.size).astype(bool)
        counts = np.array([self.rows[key] for key in keys], dtype=np.int64)
        return bits[:, : self.size], bits[:, self.size :], counts


def _out_of_scope_statistics(
    right: np.ndarray, outside: np.ndarray, rejected: np.ndarray
) -> dict[str, Statistic]:
    """Return statistics of counts (R, P): accuracy in scope, recall and precision out of it."""
    return {
        "in_scope_accuracy": _fraction(right, ~outside),
        "out_of_scope_recall": _fraction(rejected, outside),
        "out_of_scope_precision": _fraction(outside, rejected),
    }


def _fraction(hits: np.ndarray, among: np.ndarray) -> Statistic:
    """Return the fraction of hits among some outcomes, of counts (R, P)."""
    return lambda block: safe_divide(block[:, hits & among].sum(1), block[:, among].sum(1))


def _macro_f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Mean F1 over the classes that occur, for each row of (R, C) counts."""
    occurs = predicted + true > 0
    return safe_divide(safe_divide(2 * right, predicted + true).sum(1), occurs.sum(1))


def _matthews(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Matthews' correlation of gold and prediction, for any number of classes (Gorodkin 2004).

    It is 0 where one answer is given to all, however often that is right.
    """
    n = true.sum(1)  # (R,)
    spread = (n**2 - (predicted**2).sum(1)) * (n**2 - (true**2).sum(1))
    return safe_divide(n * right - (predicted * true).sum(1), np.sqrt(spread))


def _sum_by_index(block: np.ndarray, index: np.ndarray, size: int) -> np.ndarray:
    """Sums of the columns of (R, P) that share an index, as (R, size + 1); index -1 comes last."""
    order = np.argsort(index, kind="stable")
    found, starts = np.unique(index[order], return_index=True)
    out = np.zeros((len(block), size + 1), dtype=block.dtype)
    out[:, found] = np.add.reduceat(block[:, order], starts, axis=1)
    return out


def score_classes(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> list[ClassScores]:
    """Return the scores of each class from counts (C,)."""
    rows = zip(
        safe_divide(right, predicted).tolist(),
        safe_divide(right, true).tolist(),
        safe_divide(2 * right, predicted + true).tolist(),
        true.tolist(),
        strict=True,
    )
    return [ClassScores(*row) for row in rows]


def score_labels(
    correct: Counter[str], predicted: Counter[str], gold: Counter[str]
) -> dict[str, ClassScores]:
    """Return the scores of each label by name, from counts by label."""
    names = sorted(predicted | gold)
    counts = (
        np.array([count[name] for name in names], dtype=np.int64)
        for count in (correct, predicted, gold)
    )
    return dict(zip(names, score_classes(*counts), strict=True))
