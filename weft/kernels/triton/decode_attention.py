"""Decode attention in Triton: one query per row, over the filled part of a KV cache.

R rows   B rows of encoder states   P cache slots   S source steps   N heads
K width per head   W beams of a prompt
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from weft.kernels.triton.launch import launch_options

# Places that a program looks at at once, and its warps. Few programs leave most of the device
# idle: each should have its whole past under way at once. Many share the registers of a
# multiprocessor, and several of them at a time hide each other's waiting; where a past is short as
# well, small ones are soonest done. Measured on an H200: 4.3, 6.4 and 8.3 µs.
FEW_PROGRAMS_SHAPE, MANY_PROGRAMS_SHAPE, SHORT_CACHE_SHAPE = (256, 8), (64, 4), (32, 2)
MIN_MANY_PROGRAMS = 256  # from here on, the programs fill the device
MAX_SHORT_CACHE = 64  # slots of a short cache
MAX_BLOCK_NUMBERS = 256 * 64  # slots times width of a block
LOWEST_SCORE = tl.constexpr(-1e30)  # below every real score


@triton.jit
def _attention_kernel(
    q, k, v, keys, values, position, rows, out,
    q_row, q_head, k_row, k_head, v_row, v_head, cache_row, cache_head, cache_slot, rows_row,
    heads, scale,
    K: tl.constexpr, WIDTH: tl.constexpr, BEAMS: tl.constexpr, BLOCK: tl.constexpr,
    PAST: tl.constexpr, TABLE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Attend with one query (one row and head per program) to a cache or to encoder states.

    In a cache the step also attends to itself, after its key and value were written.
    """
    program = tl.program_id(0)
    row, head = (program // heads).to(tl.int64), program % heads
    column = tl.arange(0, WIDTH)
    real = column < K
    kind = keys.dtype.element_ty
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    raw_query = tl.load(q + row * q_row + head * q_head + column, mask=real, other=0.0)
    query = raw_query.to(kind).to(tl.float32) * scale
    if PAST:
        at = tl.load(position + row).to(tl.int32)
        key = tl.load(k + row * k_row + head * k_head + column, mask=real, other=0.0).to(kind)
        value = tl.load(v + row * v_row + head * v_head + column, mask=real, other=0.0).to(kind)
        mine = row * cache_row + head * cache_head + at * cache_slot + column
        # No other program reads this slot now: all rows of a prompt are at the same one.
        tl.store(keys + mine, key, mask=real)
        tl.store(values + mine, value, mask=real)
        own_score = tl.sum(query * key.to(tl.float32), 0)
        last = value.to(tl.float32)
    else:
        at = tl.load(position + row // BEAMS).to(tl.int32)
        last = tl.zeros((WIDTH,), tl.float32)
        own_score = tl.sum(last, 0) + LOWEST_SCORE  # counts only for an empty source
    # Every slot of a block has separate sums, which are combined once, at the end.
    top = tl.zeros((BLOCK,), tl.float32) + own_score
    mass = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, at, BLOCK):
        slot = start + tl.arange(0, BLOCK)
        filled = slot < at
        if TABLE:
            beam = tl.load(rows + row * rows_row + slot, mask=filled, other=0)
            source = (row // BEAMS) * BEAMS + beam.to(tl.int64)
        elif PAST:
            source = row + tl.zeros((BLOCK,), tl.int64)
        else:
            source = row // BEAMS + tl.zeros((BLOCK,), tl.int64)
        there = source * cache_row + head * cache_head + slot * cache_slot
        both = filled[:, None] & real[None, :]
        cached_keys = tl.load(keys + there[:, None] + column[None, :], mask=both, other=0.0)
        cached_values = tl.load(values + there[:, None] + column[None, :], mask=both, other=0.0)
        score = tl.sum(cached_keys.to(tl.float32) * query[None, :], 1)
        score = tl.where(filled, score, float("-inf"))
        higher = tl.maximum(top, score)
        fade, weight = tl.exp(top - higher), tl.exp(score - higher)
        mass = mass * fade + weight
        mixed = mixed * fade[:, None] + weight[:, None] * cached_values.to(tl.float32)
        top = higher
    highest = tl.max(top, 0)
    fade, weight = tl.exp(top - highest), tl.exp(own_score - highest)
    whole = tl.sum(mass * fade, 0) + weight
    context = tl.sum(mixed * fade[:, None], 0) + weight * last
    tl.store(out + row * heads * K + head * K + column, (context / whole).to(kind), mask=real)


def decode_self_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    rows: Tensor | None,
    beams: int,
    shape: tuple[int, int] | None = None,
) -> Tensor:
    """Attend queries (R, N, 1, K) to caches (R, N, P, K) and to this step: (R, 1, N*K).

    The step's keys and values `k` and `v` are written at `position` (R,) of the caches first. The
    `beams` rows of a prompt are adjacent, and `rows` (R, P) is the beam that wrote each slot.
    `shape` is the number of slots per block, and of warps.
    """
    assert keys.stride() == values.stride()
    return _launch(q, k, v, keys, values, position, rows, beams, True, shape)


def decode_cross_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    shape: tuple[int, int] | None = None,
) -> Tensor:
    """Attend queries (R, N, 1, K) to encoder keys (B, N, S, K) of lengths (B,): (R, 1, N*K).

    Rows that share a source are adjacent. An empty source yields zeros.
    """
    if keys.stride() != values.stride():
        keys, values = keys.contiguous(), values.contiguous()
    beams = len(q) // len(keys)
    return _launch(q, q, q, keys, values, lengths, None, beams, False, shape)


def _launch(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, position: Tensor,
    rows: Tensor | None, beams: int, past: bool, shape: tuple[int, int] | None,
) -> Tensor:  # fmt: skip
    R, N, _, K = q.shape
    assert all(part.stride(3) == 1 or K == 1 for part in (q, k, v, keys))
    out = torch.empty(R, 1, N * K, dtype=keys.dtype, device=q.device)
    width = triton.next_power_of_2(K)
    usual = (
        FEW_PROGRAMS_SHAPE
        if R * N < MIN_MANY_PROGRAMS
        else SHORT_CACHE_SHAPE
        if keys.shape[2] <= MAX_SHORT_CACHE
        else MANY_PROGRAMS_SHAPE
    )
    block, warps = shape or usual
    block = min(
        block, max(MAX_BLOCK_NUMBERS // width, 16), max(triton.next_power_of_2(keys.shape[2]), 16)
    )
    warps = min(warps, max(block * width // 512, 1))  # one vector load per array and thread
    # Triton launches on the current device, which need not be that of the queries.
    with torch.get_device_module(q.device).device(q.device):
        _attention_kernel[(R * N,)](
            q, k, v, keys, values, position, position if rows is None else rows, out,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            *keys.stride()[:3], 0 if rows is None else rows.stride(0), N, K**-0.5,
            K=K, WIDTH=width, BEAMS=beams, BLOCK=block, PAST=past, TABLE=rows is not None,
            num_warps=warps, **launch_options(q),
        )  # fmt: skip
    return out
