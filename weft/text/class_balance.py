"""Uneven classes: how often each occurs, what each should weigh, and class-balanced samples.

n rows   C classes
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

BalanceKind = Literal["none", "weights", "sampling", "focal"]

# Classes are uneven if the largest has so many times the examples of the smallest, or so large a
# fraction of all. Of two classes, 90 % is the ratio of 9 from which the KEEL repository
# (Alcalá-Fdez et al. 2011) calls a data set highly imbalanced.
MAX_CLASS_RATIO = 50
MAX_CLASS_FRACTION = 0.9


@dataclass(frozen=True)
class Balance:
    """A way to train on uneven classes."""

    kind: BalanceKind = "none"
    gamma: float = 2.0  # of the focal loss (Lin et al. 2017)


def is_uneven(counts: Iterable[int], n: int) -> bool:
    """Return True if one class is far larger than another, or than the rest of n rows."""
    present = [count for count in counts if count]
    if len(present) < 2:
        return False
    return max(present) >= min(MAX_CLASS_RATIO * min(present), MAX_CLASS_FRACTION * max(n, 1))


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """Return n / (C · n_c) for each class (C,), as scikit-learn's "balanced".

    Only classes that occur are counted in C; the others weigh 1. Over all rows, weights average 1.
    """
    present = counts > 0
    weights = np.ones(len(counts))
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return weights


def positive_weights(counts: np.ndarray, n: int) -> np.ndarray:
    """Return (n − n_c) / n_c for each label (C,): its positives then weigh what its negatives do.

    A label that no row or every row has weighs 1.
    """
    learned = (counts > 0) & (counts < n)
    weights = np.ones(len(counts))
    weights[learned] = (n - counts[learned]) / counts[learned]
    return weights


def group_rows(classes: Iterable[Iterable[int]]) -> list[np.ndarray]:
    """Return the row numbers of each class that occurs, from the classes of each row.

    A row with several classes is in as many groups; rows without any form a group of their own.
    """
    groups: dict[int, list[int]] = {}
    for row, found in enumerate(classes):
        for number in set(found) or {-1}:
            groups.setdefault(number, []).append(row)
    return [np.array(groups[number], np.int64) for number in sorted(groups)]


def sample_balanced(
    groups: Sequence[np.ndarray], n: int, random: np.random.Generator
) -> np.ndarray:
    """Return n row numbers, shuffled, with as many from each group (class-aware sampling).

    As in Shen et al. (2016): a class is drawn with equal probability, then a row of it; here every
    class gets its n / C rows exactly, and no row of a group comes again before the others came.
    """
    share, extra = divmod(n, len(groups))
    sizes = share + (random.permutation(len(groups)) < extra)
    chosen = []
    for rows, size in zip(groups, sizes.tolist(), strict=True):
        passes = np.tile(rows, (-(-size // len(rows)), 1))  # (passes, rows of the group)
        chosen.append(random.permuted(passes, axis=1).ravel()[:size])
    sampled: np.ndarray = random.permutation(np.concatenate(chosen))
    return sampled
