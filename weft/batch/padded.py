"""Variable-length sequences, padded on the right, that never lose their lengths.

B rows in a batch   T steps of the longest row   W pieces of a token; any further axes follow
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Padded:
    """The only way variable length travels."""

    data: Tensor  # (B, T, ...)
    lengths: Tensor  # (B,) always on the host: reading it never waits for the device
    pieces: tuple[Tensor, ...] = ()  # each (B, T, W): bytes or n-grams of the tokens, 0 = none
    parents: Tensor | None = None  # (B, T) index of each node's parent, -1 at the root; on the host

    @cached_property
    def mask(self) -> Tensor:
        """True where a step is real. The only mask convention in the project."""
        steps = torch.arange(self.data.shape[1], device=self.data.device)
        return steps < self.lengths.to(self.data.device)[:, None]

    @cached_property
    def full(self) -> bool:
        """No padding at all, so attention may drop its mask and use the fast kernel."""
        return bool((self.lengths == self.data.shape[1]).all())

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int] | np.ndarray], fill: int = 0) -> "Padded":
        """Rows of ids; of any dtype on the way in, int64 on the way out."""
        arrays = [np.asarray(row, dtype=np.int64) for row in rows]
        lengths = np.array([len(row) for row in arrays], dtype=np.int64)
        return cls(torch.from_numpy(pad(arrays, lengths, fill)), torch.from_numpy(lengths))

    def with_data(self, data: Tensor) -> "Padded":
        """Same rows, new contents; padding is zeroed so that it cannot leak."""
        out = replace(self, data=data, pieces=())
        out.__dict__.update(full=self.full, mask=self.mask)
        if self.full:
            return out
        keep = self.mask.reshape(*self.mask.shape, *[1] * (data.dim() - 2))
        object.__setattr__(out, "data", data.masked_fill(~keep, 0))
        return out

    def to(self, device: Any) -> "Padded":
        move = [t.to(device, non_blocking=True) for t in (self.data, *self.pieces)]
        return Padded(move[0], self.lengths, tuple(move[1:]), self.parents)

    def rows(self) -> list[Tensor]:
        """Each row without its padding."""
        return [row[:n] for row, n in zip(self.data, self.lengths.tolist(), strict=True)]

    def __len__(self) -> int:
        return self.data.shape[0]


def pad(rows: Sequence[np.ndarray], lengths: np.ndarray, fill: int = 0) -> np.ndarray:
    """Rows of (length, ...) as one right-padded (B, T, ...) array, of int64 or of float32."""
    width = int(lengths.max()) if len(lengths) else 0
    rest = rows[0].shape[1:] if len(rows) else ()
    real = len(rows) > 0 and rows[0].dtype.kind == "f"
    out = np.full((len(rows), width, *rest), fill, dtype=np.float32 if real else np.int64)
    if len(rows):
        out[np.arange(width) < lengths[:, None]] = np.concatenate(rows)
    return out
