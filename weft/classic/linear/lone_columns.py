"""Merge the columns that are filled in a single row, which linear models cannot tell apart.

In a table of n-grams most columns are of this kind. With an L2 penalty the weights of the lone
columns of a row are proportional to their values v, since only their product with v and their norm
matter. One column with the value |v| in that row takes their place: every product of two rows, and
with them the loss, the penalty, the optimum and the steps of L-BFGS that lead to it, stay the same.

n texts   V features   M features after merging   K weight columns
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.classic.linear.sklearn_fit import Weights

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MIN_SHARE = 0.1  # of all columns, below which merging is not worth a copy of the rows


@dataclass(frozen=True)
class MergedColumns:
    """Rows with merged columns, and how their weights become those of the columns before."""

    rows: "csr_matrix"  # (n, M)
    source: np.ndarray  # (V,) the column after merging
    share: np.ndarray  # (V,) of its weight: 1, or v / |v|

    def restore(self, weights: Weights) -> Weights:
        """Return the weights (V, K) of the columns before merging from those (M, K) after it."""
        columns, bias = weights
        return columns[self.source] * self.share.astype(columns.dtype)[:, None], bias


def merge_lone_columns(rows: "csr_matrix") -> MergedColumns | None:
    """Merge the lone columns of each row; None where they are few."""
    from scipy.sparse import csr_matrix, hstack

    texts, features = rows.shape
    lone = np.bincount(rows.indices, minlength=features) == 1  # (V,)
    lone_entry = lone[rows.indices]
    columns, values = rows.indices[lone_entry], rows.data[lone_entry].astype(np.float64)
    row = np.repeat(np.arange(texts), np.diff(rows.indptr))[lone_entry]
    with_lone, merged = np.unique(row, return_inverse=True)
    if len(columns) - len(with_lone) < MIN_SHARE * features:
        return None
    norm = np.sqrt(np.bincount(merged, values**2))  # of each row in with_lone
    kept = features - len(columns)

    source, share = np.empty(features, np.int64), np.ones(features)
    source[~lone] = np.arange(kept)
    source[columns] = kept + merged
    share[columns] = values / np.where(norm > 0, norm, 1)[merged]
    one_per_row = csr_matrix(
        (norm.astype(rows.dtype), (with_lone, np.arange(len(with_lone)))),
        shape=(texts, len(with_lone)),
    )
    return MergedColumns(hstack([rows[:, ~lone], one_per_row], format="csr"), source, share)
