"""Top-k of rows in Triton: first of each chunk, then of the chunks' candidates.

N rows   V values of a row   K top values   C chunks of a row
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from weft.kernels.triton.launch import launch_options

CHUNK_COLUMNS = 512  # values per warp
LOWEST_KEY = tl.constexpr(-(2**63))  # below every key


@triton.jit
def _sort_keys(value, index):
    """Return integer keys that sort like the values; ties: the first is largest; NaN is inf."""
    value = tl.where(value == value, value.to(tl.float32), float("inf"))
    value = tl.where(value == 0.0, 0.0, value)  # -0 equals 0
    bits = value.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def _chunk_topk(
    values, chunk_keys, row_size, size, chunks, WANTED: tl.constexpr, PIECE: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Write the top keys of one chunk, largest first."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    index = chunk * PIECE + tl.arange(0, PIECE)
    value = tl.load(values + row * row_size + index, mask=index < size, other=0.0)
    keys = tl.where(index < size, _sort_keys(value, index), LOWEST_KEY)
    out = chunk_keys + (row * chunks + chunk) * WANTED
    for i in tl.static_range(WANTED):
        best = tl.max(keys, 0)
        tl.store(out + i, best)
        keys = tl.where(keys == best, LOWEST_KEY, keys)


@triton.jit
def _merge_topk(
    values, chunk_keys, out, indices, row_size, count, WANTED: tl.constexpr, COUNT: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Merge the top keys of the chunks of one row."""
    row = tl.program_id(0).to(tl.int64)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    each = tl.arange(0, COUNT)
    keys = tl.load(chunk_keys + row * count + each, mask=each < count, other=LOWEST_KEY)
    for i in tl.static_range(WANTED):
        best = tl.max(keys, 0)
        index = 0x7FFFFFFF - (best & 0xFFFFFFFF)
        tl.store(indices + row * WANTED + i, index)
        tl.store(out + row * WANTED + i, tl.load(values + row * row_size + index))
        keys = tl.where(keys == best, LOWEST_KEY, keys)


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the top values of each row (N, V) and their indices, both (N, count), descending."""
    N, V = values.shape
    assert values.stride(1) == 1
    chunks = triton.cdiv(V, CHUNK_COLUMNS)
    chunk_keys = torch.empty(N, chunks, count, dtype=torch.int64, device=values.device)
    out = torch.empty(N, count, dtype=values.dtype, device=values.device)
    indices = torch.empty(N, count, dtype=torch.int64, device=values.device)
    size = triton.next_power_of_2(chunks * count)
    # Triton launches on the current device, which need not be that of the rows.
    with torch.get_device_module(values.device).device(values.device):
        _chunk_topk[(N, chunks)](
            values, chunk_keys, values.stride(0), V, chunks, WANTED=count, PIECE=CHUNK_COLUMNS,
            num_warps=1, **launch_options(values),
        )  # fmt: skip
        _merge_topk[(N,)](
            values, chunk_keys, out, indices, values.stride(0), chunks * count, WANTED=count,
            COUNT=size,
            num_warps=min(max(size // 512, 1), 8), **launch_options(values),
        )  # fmt: skip
    return out, indices
