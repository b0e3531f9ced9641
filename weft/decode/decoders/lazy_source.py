"""A lazily encoded source: the generator may encode it itself, inside a CUDA graph.

B rows   S steps   H width of the encoder states
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from weft.batch import Padded

STEP_MULTIPLE = 32  # sources are padded to a multiple of this, so that shapes recur


def _autocast_dtype(source: Padded) -> torch.dtype | None:
    kind = source.data.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


@dataclass(frozen=True)
class LazySource:
    """Source ids and the function that encodes them, in the autocast dtype of its creation.

    `encode` must not depend on padding, nor on anything but tensors. `limit` is the longest row
    it accepts.
    """

    source: Padded  # (B, S) ids
    encode: Callable[[Padded], Padded]  # -> (B, S, H)
    limit: int | None = None
    autocast_dtype: torch.dtype | None = field(init=False)  # None: no autocast

    def __post_init__(self) -> None:
        object.__setattr__(self, "autocast_dtype", _autocast_dtype(self.source))

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def memory(self) -> Padded:
        """Encoder states (B, S, H)."""
        return self.encode_ids(self.source)

    def encode_ids(self, source: Padded) -> Padded:
        """Encode other ids in the same way."""
        kind, dtype = source.data.device.type, self.autocast_dtype
        # No cached weight casts: a CUDA graph would read them after they are freed.
        with torch.autocast(kind, dtype, dtype is not None, cache_enabled=False):
            return self.encode(source)

    @property
    def padded_steps(self) -> int:
        """The number of steps after padding; every row has at least one padding step."""
        return round_up_steps(self.source.data.shape[1])

    @property
    def is_plain(self) -> bool:
        """True if the source consists of ids alone, and positions cover the padding."""
        source = self.source
        more = bool(source.subtokens) or source.parents is not None or source.second is not None
        bare = source.data.dim() == 2 and not more
        return bare and (self.limit is None or self.padded_steps <= self.limit)

    def padded_ids(self, rows: int) -> Padded:
        """Return the ids with rows and steps added."""
        data = self.source.data.new_zeros(rows, self.padded_steps)
        self.copy_ids_into(data)
        return Padded(data, self.lengths(rows))

    def lengths(self, rows: int) -> Tensor:
        """Return the lengths of `rows` rows on the host; the last row is repeated."""
        lengths = self.source.lengths
        return torch.cat([lengths, lengths[-1:].expand(rows - len(lengths))])

    def copy_ids_into(self, data: Tensor) -> None:
        """Copy the ids into a larger buffer; its old contents remain as padding."""
        B, S = self.source.data.shape
        data[:B, :S] = self.source.data
        if len(data) > B:
            data[B:, :S] = self.source.data[B - 1]


def round_up_steps(steps: int) -> int:
    """Return the padded number of steps, one of few values."""
    return -(-(steps + 1) // STEP_MULTIPLE) * STEP_MULTIPLE
