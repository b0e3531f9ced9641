"""Static KV cache with a beam table, and attention to its filled part.

B rows   T steps   P cache slots   S source steps   N heads   K width per head
W beams per prompt   R = B*W rows that share encoder states
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.attend.settings import MaskPattern

CAUSAL = MaskPattern("causal")
KVPair = tuple[Tensor, Tensor]  # keys and values of one layer, each (B, N, P or S, K)
MAX_KERNEL_ERROR = 0.05  # a kernel further from the reference than this, in any dtype, is broken


class CacheWrite(NamedTuple):
    """Write indices of new keys and values in a static cache, and the attention bias."""

    at: tuple[Tensor, Tensor, Tensor]  # rows (B, 1, 1), heads (N, 1) and slots (B, 1, T)
    bias: Tensor  # (B, 1, T, P) 0 where a step may attend, else -inf; shared by all layers
    sources: Tensor | None  # (B, P) the row that wrote each slot; None: the row itself

    def attend(self, q: Tensor, k: Tensor, v: Tensor, past: KVPair) -> Tensor:
        """Write keys and values, then attend with queries (B, N, T, K); (B, N, T, K)."""
        past = self.write(k, v, past)
        # Every step sees at least itself.
        return F.scaled_dot_product_attention(
            q.to(past[0].dtype), past[0], past[1], attn_mask=self.bias
        )

    def write(self, k: Tensor, v: Tensor, past: KVPair) -> KVPair:
        """Write keys and values; return those of each row's past, (B, N, P, K)."""
        for buffer, fresh in zip(past, (k, v), strict=True):
            # Not `scatter_`, for which the compiler copies the whole cache, there and back.
            buffer.index_put_(self.at, fresh.to(buffer.dtype))
        if self.sources is None:
            return past
        return _gather_past(past[0], self.sources), _gather_past(past[1], self.sources)


class CacheSlot(NamedTuple):
    """Write slot of a single step per row, for a kernel that reads only filled slots."""

    position: Tensor  # (B,)
    rows: Tensor | None  # (B, P) int32 beam of the prompt that wrote a slot; None: the row itself
    beams: int  # adjacent rows per prompt

    def attend(self, q: Tensor, k: Tensor, v: Tensor, past: KVPair) -> Tensor:
        """Write keys and values, then attend with queries (B, N, 1, K); (B, 1, N*K)."""
        context: Tensor = self_attend(q, k, v, *past, self.position, self.rows, self.beams)
        return context


def plan_write(
    position: Tensor,
    steps: int,
    like: Tensor,
    rows: Tensor | None,
    beams: int,
    pattern: MaskPattern = CAUSAL,
) -> CacheWrite:
    """Plan the write of `steps` steps from `position` (B,) on into a cache like (B, N, P, K)."""
    B, N, P, _ = like.shape
    at = position[:, None] + torch.arange(steps, device=position.device)  # (B, T)
    each, heads, slots = (torch.arange(size, device=position.device) for size in (B, N, P))
    hidden = ~pattern.mask_offsets(at[..., None] - slots, causal=True)[:, None]  # (B, 1, T, P)
    bias = torch.zeros_like(hidden, dtype=like.dtype).masked_fill(hidden, -torch.inf)
    sources = (
        None if rows is None else _writer_rows(mark_written(rows, position, steps, beams), beams)
    )
    return CacheWrite((each[:, None, None], heads[:, None], at[:, None]), bias, sources)


def mark_written(rows: Tensor, position: Tensor, steps: int, beams: int) -> Tensor:
    """Return the beam table (B, P) after each row wrote `steps` slots from `position` (B,) on."""
    B, P = rows.shape
    beam = torch.arange(B, dtype=rows.dtype, device=rows.device)[:, None] % beams  # (B, 1)
    slots, first = torch.arange(P, device=rows.device), position[:, None]
    fresh = (slots >= first) & (slots < first + steps)  # (B, P)
    return torch.where(fresh, beam, rows)


def allocate(like: Tensor, size: int, layers: int) -> tuple[KVPair, ...]:
    """Return empty caches (B, N, size, K) of all layers, in one allocation."""
    B, N, _, K = like.shape
    caches = like.new_zeros(layers, 2, B, N, size, K)
    # Detached: autograd would take a write into one for a change of all.
    return tuple((caches[i, 0].detach(), caches[i, 1].detach()) for i in range(layers))


def from_prefill(pairs: list[KVPair], size: int) -> tuple[KVPair, ...]:
    """Return caches of `size` slots that start with keys and values (B, N, P, K) per layer."""
    caches = allocate(pairs[0][0], size, len(pairs))
    for cache_pair, pair in zip(caches, pairs, strict=True):
        for buffer, part in zip(cache_pair, pair, strict=True):
            buffer[:, :, : part.shape[2]] = part
    return caches


# To the compiler an opaque operation that writes into the cache.
@torch.library.custom_op("weft::kv_cache_step", mutates_args=("keys", "values"))
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
    """Attend with one step of each row to its cache and itself, (B, 1, N*K); see `CacheSlot`."""
    if q.is_cuda:
        from weft.kernels.triton.decode_attention import decode_self_attention

        return decode_self_attention(q, k, v, keys, values, position, rows, beams)
    write = plan_write(position, 1, keys, rows, beams)
    return write.attend(q, k, v, (keys, values)).transpose(1, 2).flatten(2)  # (B, 1, N*K)


@self_attend.register_fake
def _fake_self_attend(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, *rest: object) -> Tensor:
    return keys.new_empty(len(q), 1, q.shape[1] * q.shape[3])


@torch.library.custom_op("weft::cross_attention_step", mutates_args=())
def cross_attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Attend with one step of each row (R, N, 1, K) to encoder keys (B, N, S, K); (R, 1, N*K).

    Rows that share a source are adjacent; a source has `lengths` (B,) steps. An empty source
    yields zeros.
    """
    if q.is_cuda:
        from weft.kernels.triton.decode_attention import decode_cross_attention

        return decode_cross_attention(q, keys, values, lengths)
    B, N, S, K = keys.shape
    q = q.reshape(B, -1, N, K).transpose(1, 2).to(keys.dtype)  # (B, N, W, K)
    none = (lengths < 1)[:, None, None, None]  # (B, 1, 1, 1)
    seen = torch.arange(S, device=q.device) < lengths[:, None, None, None]  # (B, 1, 1, S)
    context = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen | none)
    return context.masked_fill(none, 0).transpose(1, 2).reshape(-1, 1, N * K)


@cross_attend.register_fake
def _fake_cross_attend(q: Tensor, keys: Tensor, *rest: object) -> Tensor:
    return keys.new_empty(len(q), 1, q.shape[1] * q.shape[3])


@cache
def has_kernel(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Return True if the device has kernels for heads of this width; tested once.

    Raises a RuntimeError if a kernel exists but computes wrong results.
    """
    if device.type == "cpu" or dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    generator = torch.Generator().manual_seed(0)
    q, k, v, keys, values = (
        torch.randn(4, 1, steps, width, generator=generator).to(dtype) for steps in (1, 1, 1, 5, 5)
    )
    position = torch.tensor([3, 3, 0, 0])
    rows = torch.tensor([[0, 1, 1, 0, 0]] * 4, dtype=torch.int32)
    here = (q, k, v, keys, values, position, rows)
    there = [part.to(device) for part in here]
    if not there[0].is_cuda:
        return False
    try:
        attended = self_attend(*there, 2)
    except ImportError:
        return False  # Triton comes with torch for NVIDIA GPUs on Linux
    pairs = [(attended, self_attend(*here, 2)), (there[3], keys)]
    pairs.append((cross_attend(there[0], *there[3:6]), cross_attend(q, keys, values, position)))
    error = max(float((a.cpu() - b).abs().max()) for a, b in pairs)
    if not error < MAX_KERNEL_ERROR:
        raise RuntimeError(f"{error:.2g} away from the reference on {device}.")
    return True


def _writer_rows(rows: Tensor, beams: int) -> Tensor:
    """Return the row that wrote each slot (B, P), from the beam of its prompt."""
    each = torch.arange(len(rows), device=rows.device)  # (B,)
    return (each // beams * beams)[:, None] + rows


def _gather_past(buffer: Tensor, sources: Tensor) -> Tensor:
    """Return the past of each row (B, N, P, K), gathered from the rows that wrote it (B, P)."""
    slots = torch.arange(buffer.shape[2], device=buffer.device)  # (P,)
    return buffer.transpose(1, 2)[sources, slots].transpose(1, 2)
