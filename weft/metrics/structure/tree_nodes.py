"""Counts for a label at every node of a tree: at the root, at all nodes, two-way without neutral.

R resamples   P distinct sentences   F figures
"""

from collections import Counter

import numpy as np

from weft.metrics.bootstrap import draw_resamples, percentile_interval, safe_divide
from weft.metrics.value import MetricValue

NO_LABEL = -1  # gold index of a node that has no label; such nodes are not counted
UNSEEN_LABEL = -2  # gold index of a label that the model never saw: always wrong

METRIC_NAMES = ("root", "nodes", "root_binary", "nodes_binary")


class NodeAccuracy:
    """A label at every node, counted sentence by sentence, which is also what is resampled.

    With `neutral`, labels are taken as a scale: below it is negative, above it positive. The binary
    figures leave out roots and nodes whose gold label is neutral; there the prediction counts as
    positive or negative by `positive`, the probability of the labels above neutral against that of
    the labels below, as in Socher et al. (2013), or without it by the side the label lies on.
    """

    def __init__(self, size: int, neutral: int | None = None) -> None:
        assert neutral is None or 0 < neutral < size - 1, neutral
        self.size, self.neutral = size, neutral
        # (right, counted) of each figure in a sentence -> sentences
        self.sentences: Counter[tuple[int, ...]] = Counter()

    def add(
        self,
        predicted: np.ndarray,
        gold: np.ndarray,
        parents: np.ndarray,
        positive: np.ndarray | None = None,
    ) -> None:
        """Count a batch of (B, T) answers; a root is a step whose parent is -1 and gold is known.

        Padding has the gold label -1. Of several roots in a row the last one stands for it.
        """
        assert predicted.shape == gold.shape == parents.shape
        assert gold.ndim == 2
        assert not gold.size or (gold.min() >= UNSEEN_LABEL and gold.max() < self.size)
        counted = gold != NO_LABEL
        roots = _keep_last(counted & (parents < 0))
        right = (predicted == gold) & counted
        columns = [right & roots, roots, right, counted]
        if self.neutral is not None:
            # An unseen label has no place on the scale.
            sided = counted & (gold != UNSEEN_LABEL) & (gold != self.neutral)
            above = predicted > self.neutral if positive is None else positive
            agrees = above == (gold > self.neutral)
            if positive is None:  # on neither side, and so wrong
                agrees &= predicted != self.neutral
            columns += [agrees & sided & roots, sided & roots, agrees & sided, sided]
        rows = np.stack([column.sum(1) for column in columns], axis=1)
        self.sentences.update(map(tuple, rows.tolist()))

    def merge(self, other: "NodeAccuracy") -> None:
        assert (self.size, self.neutral) == (other.size, other.neutral)
        self.sentences.update(other.sentences)

    @property
    def n(self) -> int:
        return self.sentences.total()

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        """Each with the number of roots or nodes it rests on; `root` and `nodes` come first."""
        names = METRIC_NAMES if self.neutral is not None else METRIC_NAMES[:2]
        if not self.n:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in names}
        kinds = sorted(self.sentences)  # so that figures do not depend on the order of adding
        table = np.array(kinds, dtype=np.int64).reshape(len(kinds), len(names), 2)  # (P, F, 2)
        counts = np.array([self.sentences[kind] for kind in kinds], dtype=np.int64)
        right, all_ = (table[:, :, i].astype(float) for i in (0, 1))  # floats go through BLAS

        def shares(block: np.ndarray) -> np.ndarray:
            return safe_divide(block @ right, block @ all_)  # (R, F)

        values = shares(counts[None].astype(float))[0]
        blocks = [shares(block.astype(float)) for block in draw_resamples(counts, resamples, seed)]
        resampled = np.concatenate([*blocks, np.zeros((0, len(names)))])
        totals = (counts @ table[:, :, 1]).tolist()
        return {
            name: percentile_interval(values[i], resampled[:, i], totals[i], level)
            for i, name in enumerate(names)
        }


def _keep_last(marked: np.ndarray) -> np.ndarray:
    """Keep only the last marked step of each row."""
    after = np.cumsum(marked[:, ::-1], axis=1)[:, ::-1]
    last: np.ndarray = marked & (after == 1)
    return last
