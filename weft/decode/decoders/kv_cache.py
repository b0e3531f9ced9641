"""Keys and values of the past in rooms of a fixed size, and attention to what is filled of them.

B rows   T steps   P places of a room   S steps of a memory   N heads   K width per head
W beams of a prompt   R = B*W rows that share memories
"""

from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

KVPair = tuple[Tensor, Tensor]  # keys and values of one layer, each (B, N, P or S, K)
MAX_KERNEL_ERROR = (
    0.05  # a kernel that is further from plain arithmetic than this in any precision is broken
)


class CacheWrite(NamedTuple):
    """Where fresh keys and values go in a cache of fixed size, and who may see what."""

    at: tuple[Tensor, Tensor, Tensor]  # rows (B, 1, 1), heads (N, 1) and places (B, 1, T)
    seen: (
        Tensor  # (B, 1, T, P) 0 where a step may look and -inf elsewhere, made once for all layers
    )
    sources: Tensor | None  # (B, P) the row that wrote each place; None: the row itself

    def attend(self, q: Tensor, k: Tensor, v: Tensor, past: KVPair) -> Tensor:
        """What queries (B, N, T, K) find, (B, N, T, K), once keys and values are written."""
        for room, fresh in zip(past, (k, v), strict=True):
            # Not `scatter_`, for which a compiler copies the whole room, there and back.
            room.index_put_(self.at, fresh.to(room.dtype))
        if self.sources is not None:
            past = _gather_past(past[0], self.sources), _gather_past(past[1], self.sources)
        # Every step sees at least itself.
        return F.scaled_dot_product_attention(
            q.to(past[0].dtype), past[0], past[1], attn_mask=self.seen
        )


class CacheSlot(NamedTuple):
    """Where the single step of each row goes, for a kernel that reads only what is filled."""

    position: Tensor  # (B,)
    rows: Tensor | None  # (B, P) int32 which of its prompt's beams wrote a place; None: the row
    beams: int  # rows of a prompt, next to each other

    def attend(self, q: Tensor, k: Tensor, v: Tensor, past: KVPair) -> Tensor:
        """What queries (B, N, 1, K) find, (B, 1, N*K), with their keys and values written."""
        return self_attend(q, k, v, *past, self.position, self.rows, self.beams)


def plan_write(
    position: Tensor, steps: int, like: Tensor, rows: Tensor | None, beams: int
) -> CacheWrite:
    """Where steps from `position` (B,) on go in a room like this one (B, N, P, K)."""
    B, N, P, _ = like.shape
    at = position[:, None] + torch.arange(steps, device=position.device)  # (B, T)
    each, heads, places = (torch.arange(size, device=position.device) for size in (B, N, P))
    hidden = (places > at[..., None])[:, None]  # (B, 1, T, P)
    seen = torch.zeros_like(hidden, dtype=like.dtype).masked_fill(hidden, -torch.inf)
    sources = (
        None if rows is None else _writer_rows(mark_written(rows, position, steps, beams), beams)
    )
    return CacheWrite((each[:, None, None], heads[:, None], at[:, None]), seen, sources)


def mark_written(rows: Tensor, position: Tensor, steps: int, beams: int) -> Tensor:
    """Which beam wrote each place (B, P), where steps from `position` (B,) on are the row's own."""
    B, P = rows.shape
    own = torch.arange(B, dtype=rows.dtype, device=rows.device)[:, None] % beams  # (B, 1)
    places, first = torch.arange(P, device=rows.device), position[:, None]
    fresh = (places >= first) & (places < first + steps)  # (B, P)
    return torch.where(fresh, own, rows)


def allocate(like: Tensor, size: int, layers: int) -> tuple[KVPair, ...]:
    """Rooms (B, N, size, K) of all layers, made at once, with nothing in them."""
    B, N, _, K = like.shape
    rooms = like.new_zeros(layers, 2, B, N, size, K)
    # Apart for autograd too, which would take writing into one for a change of all.
    return tuple((rooms[i, 0].detach(), rooms[i, 1].detach()) for i in range(layers))


def from_prefill(pairs: list[KVPair], size: int) -> tuple[KVPair, ...]:
    """Rooms that begin with keys and values (B, N, P, K) of each layer."""
    made = allocate(pairs[0][0], size, len(pairs))
    for rooms, pair in zip(made, pairs, strict=True):
        for room, part in zip(rooms, pair, strict=True):
            room[:, :, : part.shape[2]] = part
    return made


# To a compiler one operation that writes into the rooms, whatever does it.
@torch.library.custom_op("weft::room_step", mutates_args=("keys", "values"))
def self_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    rows: Tensor | None,
    beams: int,
) -> Tensor:
    """What one step of each row finds in its room and itself, (B, 1, N*K); see `Place`."""
    if q.is_cuda:
        from weft.kernels.triton.decode_attention import decode_self_attention

        return decode_self_attention(q, k, v, keys, values, position, rows, beams)
    room = plan_write(position, 1, keys, rows, beams)
    return room.attend(q, k, v, (keys, values)).transpose(1, 2).flatten(2)  # (B, 1, N*K)


@self_attend.register_fake
def _fake_self_attend(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, *rest: Any) -> Tensor:
    return keys.new_empty(len(q), 1, q.shape[1] * q.shape[3])


@torch.library.custom_op("weft::memory_step", mutates_args=())
def cross_attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """What one step of each row (R, N, 1, K) finds in a memory (B, N, S, K), as (R, 1, N*K).

    Rows that share one are next to each other; of `lengths` (B,) steps is each, and in an empty
    one are zeros.
    """
    if q.is_cuda:
        from weft.kernels.triton.decode_attention import decode_cross_attention

        return decode_cross_attention(q, keys, values, lengths)
    B, N, S, K = keys.shape
    q = q.reshape(B, -1, N, K).transpose(1, 2).to(keys.dtype)  # (B, N, W, K)
    none = (lengths < 1)[:, None, None, None]  # (B, 1, 1, 1)
    seen = torch.arange(S, device=q.device) < lengths[:, None, None, None]  # (B, 1, 1, S)
    mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen | none)
    return mixed.masked_fill(none, 0).transpose(1, 2).reshape(-1, 1, N * K)


@cross_attend.register_fake
def _fake_cross_attend(q: Tensor, keys: Tensor, *rest: Any) -> Tensor:
    return keys.new_empty(len(q), 1, q.shape[1] * q.shape[3])


@cache
def has_kernel(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether a device has a kernel for `step` and `look`, of heads of this width; tried once.

    An error where there is one that fails.
    """
    if device.type == "cpu" or dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    make = torch.Generator().manual_seed(0)
    q, k, v, keys, values = (
        torch.randn(4, 1, steps, width, generator=make).to(dtype) for steps in (1, 1, 1, 5, 5)
    )
    position = torch.tensor([3, 3, 0, 0])
    rows = torch.tensor([[0, 1, 1, 0, 0]] * 4, dtype=torch.int32)
    here = (q, k, v, keys, values, position, rows)
    there = [part.to(device) for part in here]
    if not there[0].is_cuda:
        return False
    try:
        found = self_attend(*there, 2)
    except ImportError:
        return False  # Triton comes with torch for NVIDIA GPUs on Linux
    pairs = [(found, self_attend(*here, 2)), (there[3], keys)]
    pairs.append((cross_attend(there[0], *there[3:6]), cross_attend(q, keys, values, position)))
    apart = max(float((a.cpu() - b).abs().max()) for a, b in pairs)
    if not apart < MAX_KERNEL_ERROR:
        raise RuntimeError(f"{apart:.2g} away from plain arithmetic on {device}.")
    return True


def _writer_rows(rows: Tensor, beams: int) -> Tensor:
    """The row that wrote each place (B, P), from which beam of its prompt that was."""
    each = torch.arange(len(rows), device=rows.device)  # (B,)
    return (each // beams * beams)[:, None] + rows


def _gather_past(room: Tensor, sources: Tensor) -> Tensor:
    """The past of each row (B, N, P, K), from the rows that wrote it (B, P)."""
    places = torch.arange(room.shape[2], device=room.device)  # (P,)
    return room.transpose(1, 2)[sources, places].transpose(1, 2)
