"""A source that nobody has read yet: whoever writes may read it, by a graph where there is one.

B rows   S steps   H width of the memory
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from weft.batch import Padded

STEP_MULTIPLE = 32  # steps that a source is padded to a multiple of, so that shapes come again


def _autocast_dtype(source: Padded) -> torch.dtype | None:
    kind = source.data.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


@dataclass(frozen=True)
class LazySource:
    """Ids, and what makes a memory of them, in the precision of the place where this was made.

    `read` must compute the same for the same ids whatever their padding, and look at nothing but
    tensors. `limit` is the longest row that it can read.
    """

    source: Padded  # (B, S) ids
    read: Callable[[Padded], Padded]  # -> (B, S, H)
    limit: int | None = None
    half: torch.dtype | None = field(init=False)  # of the arithmetic around it, None: the weights'

    def __post_init__(self) -> None:
        object.__setattr__(self, "half", _autocast_dtype(self.source))

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def memory(self) -> Padded:
        """What was read (B, S, H)."""
        return self.of(self.source)

    def of(self, source: Padded) -> Padded:
        """The memory of other ids, read alike."""
        kind = source.data.device.type
        # Without copies of weights that outlive this: a graph would read them once freed.
        with torch.autocast(kind, self.half, self.half is not None, cache_enabled=False):
            return self.read(source)

    @property
    def steps(self) -> int:
        """How many steps it has when it is filled up; there is padding in every row."""
        return round_up_steps(self.source.data.shape[1])

    @property
    def plain(self) -> bool:
        """Whether ids are all there is to read, and positions reach over the padding."""
        source = self.source
        more = bool(source.subtokens) or source.parents is not None or source.second is not None
        bare = source.data.dim() == 2 and not more
        return bare and (self.limit is None or self.steps <= self.limit)

    def padded_ids(self, rows: int) -> Padded:
        """The ids with rows and steps added."""
        data = self.source.data.new_zeros(rows, self.steps)
        self.into(data)
        return Padded(data, self.lengths(rows))

    def lengths(self, rows: int) -> Tensor:
        """Where so many rows end, the last one again and again; on the host."""
        own = self.source.lengths
        return torch.cat([own, own[-1:].expand(rows - len(own))])

    def into(self, data: Tensor) -> None:
        """Put the ids where there is more room; what was there before stays as padding."""
        B, S = self.source.data.shape
        data[:B, :S] = self.source.data
        if len(data) > B:
            data[B:, :S] = self.source.data[B - 1]


def round_up_steps(steps: int) -> int:
    """Steps of a source with padding, of which few numbers occur."""
    return -(-(steps + 1) // STEP_MULTIPLE) * STEP_MULTIPLE
