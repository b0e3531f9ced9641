"""Variable-length sequences, padded on the right, that never lose their lengths.

B rows in a batch   T steps of the longest row   W subtokens of a token; any further axes follow
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from weft.batch.ragged import pad


@dataclass(frozen=True)
class Padded:
    """The only way variable length travels."""

    data: Tensor  # (B, T, ...)
    lengths: Tensor  # (B,) always on the host: reading it never waits for the device
    subtokens: tuple[Tensor, ...] = ()  # each (B, T, W): bytes or n-grams of the tokens, 0 = none
    parents: Tensor | None = None  # (B, T) index of each node's parent, -1 at the root; on the host
    second: Tensor | None = None  # (B,) the step where a second text begins; on the host
    cached: tuple[Tensor, ...] = ()  # each (B, T, W): features of a frozen encoder
    marks: Tensor | None = None  # (B, T, W) of each word, for the head that reads them; on the host

    @cached_property
    def mask(self) -> Tensor:
        """True where a step is real. The only mask convention in the project."""
        if self.full:  # and nothing has to come from the host
            return torch.ones(self.data.shape[:2], dtype=torch.bool, device=self.data.device)
        steps = torch.arange(self.data.shape[1], device=self.data.device)
        return steps < self.lengths.to(self.data.device)[:, None]

    @cached_property
    def full(self) -> bool:
        """No padding at all, so attention may drop its mask and use the fast kernel."""
        return bool((self.lengths == self.data.shape[1]).all())

    @cached_property
    def segments(self) -> Tensor:
        """(B, T) 0 in the first text of a row, 1 in the second."""
        steps = torch.arange(self.data.shape[1], device=self.data.device)
        if self.second is None:
            return torch.zeros_like(steps).expand(len(self), -1)
        return (steps >= self.second.to(self.data.device)[:, None]).long()

    def split_pair(self) -> tuple["Padded", "Padded"]:
        """Split rows of two texts into the first and the second texts."""
        assert self.second is not None
        ends = self.lengths
        return _slice_rows(self, torch.zeros_like(ends), self.second), _slice_rows(
            self, self.second, ends
        )

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int] | np.ndarray], fill: int = 0) -> "Padded":
        """Rows of ids; of any dtype on the way in, int64 on the way out."""
        arrays = [np.asarray(row, dtype=np.int64) for row in rows]
        lengths = np.array([len(row) for row in arrays], dtype=np.int64)
        return cls(torch.from_numpy(pad(arrays, lengths, fill)), torch.from_numpy(lengths))

    def with_data(self, data: Tensor) -> "Padded":
        """Same rows, new contents; padding is zeroed so that it cannot leak."""
        out = replace(self, data=data, subtokens=(), cached=())
        out.__dict__["full"] = self.full
        if self.full:
            return out
        out.__dict__["mask"] = self.mask
        keep = self.mask.reshape(*self.mask.shape, *[1] * (data.dim() - 2))
        object.__setattr__(out, "data", data.masked_fill(~keep, 0))
        return out

    def to(self, device: torch.device | str) -> "Padded":
        data, subtokens, cached = (
            tuple(t.to(device, non_blocking=True) for t in some)
            for some in ((self.data,), self.subtokens, self.cached)
        )
        out = Padded(
            data[0], self.lengths, subtokens, self.parents, self.second, cached, self.marks
        )
        out.__dict__.update({"full": self.full} if "full" in self.__dict__ else {})
        return out

    def rows(self) -> list[Tensor]:
        """Each row without its padding."""
        return [row[:n] for row, n in zip(self.data, self.lengths.tolist(), strict=True)]

    def __len__(self) -> int:
        return self.data.shape[0]


def concat_pair(first: Padded, second: Padded) -> Padded:
    """Join two texts into one row each; the inverse of `split_pair`."""
    T = first.data.shape[1]
    lengths = first.lengths + second.lengths
    steps = torch.arange(int(lengths.max()) if len(lengths) else 0)
    first_lengths = first.lengths[:, None]
    index = torch.where(steps < first_lengths, steps, steps - first_lengths + T)  # (B, T')
    index = index.clamp(max=max(T + second.data.shape[1] - 1, 0)).to(first.data.device)
    both = torch.cat([first.data, second.data], dim=1)
    wide = index.reshape(*index.shape, *[1] * (both.dim() - 2))
    rows = both.gather(1, wide.expand(*index.shape, *both.shape[2:]))
    whole = Padded(rows, lengths, second=first.lengths)
    return whole.with_data(rows)


def _slice_rows(x: Padded, starts: Tensor, ends: Tensor) -> Padded:
    """The steps of each row from its start to its end, as rows of their own."""
    lengths = ends - starts
    steps = torch.arange(int(lengths.max()) if len(lengths) else 0)
    index = (starts[:, None] + steps).clamp(max=x.data.shape[1] - 1).to(x.data.device)  # (B, T')

    def taken(data: Tensor) -> Tensor:
        wide = index.reshape(*index.shape, *[1] * (data.dim() - 2))
        return data.gather(1, wide.expand(*index.shape, *data.shape[2:]))

    subtokens, cached = (tuple(map(taken, some)) for some in (x.subtokens, x.cached))
    return Padded(taken(x.data), lengths, subtokens, cached=cached)
