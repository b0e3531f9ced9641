"""The contents of a word-vector file, independent of its format.

V words   E width
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from weft.embed.subwords import Subwords
from weft.errors import UserError

Duplicates = Literal["error", "first"]
KEEP_FIRST = (
    "Remove one, or keep the first: duplicates='first', or "
    "`weft vectors convert FILE NEW --duplicates first`."
)


@dataclass(frozen=True)
class VectorTable:
    """Words and their vectors; with sub-words the matrix may be left to be composed from them."""

    words: list[str]
    matrix: np.ndarray | None  # (V, E) float32, possibly memory-mapped
    counts: np.ndarray | None = None  # (V,) int64
    subwords: Subwords | None = None
    output: np.ndarray | None = None  # (V, E) the context vectors, where the file keeps them
    record: dict[str, Any] = field(default_factory=dict)  # how the vectors were made

    @property
    def width(self) -> int:
        table = self.matrix if self.subwords is None else self.subwords.table
        assert table is not None
        return int(table.shape[1])

    def vector(self, row: int, path: str = "") -> np.ndarray:
        """The vector of a word by its row, (E,); `place` is the file that an error names."""
        if self.matrix is not None:
            vector = np.array(self.matrix[row], np.float32)
        else:
            assert self.subwords is not None
            vector = self.subwords.vector(self.words[row], row)
        if not np.isfinite(vector).all():
            raise not_finite_error(self.words[row], row, path)
        return vector


def not_finite_error(word: str, row: int, path: str = "") -> UserError:
    """The error for a vector with NaN or infinity in it."""
    return UserError(
        f"{f'{path}: the' if path else 'The'} vector of '{word}' (row {row + 1}) has a number "
        "that is not finite. Remove the word, or train or copy the vectors again."
    )


def resolve_duplicates(table: VectorTable, path: Path, duplicates: Duplicates) -> VectorTable:
    """Drop repeated words if `duplicates` says so; otherwise raise an error."""
    if len(set(table.words)) == len(table.words):
        return table
    first: dict[str, int] = {}
    for i, word in enumerate(table.words):
        if first.setdefault(word, i) != i and (duplicates == "error" or table.subwords):
            raise UserError(
                f"{path}: the word '{word}' twice, vectors {first[word] + 1} and {i + 1}. "
                f"{KEEP_FIRST}"
            )
    kept = list(first.values())
    matrix, counts, output = (
        None if array is None else array[kept]
        for array in (table.matrix, table.counts, table.output)
    )
    return replace(table, words=list(first), matrix=matrix, counts=counts, output=output)
