"""Attention of one step over the past on a GPU, in Triton: only what is filled is read.

B rows   P places of a room   N heads   K width per head   W beams of a prompt
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Places that a program looks at at once, and its warps. Few programs leave most of the device
# idle: each should have its whole past under way at once. Many share the registers of a
# multiprocessor, and several of them at a time hide each other's waiting.
FEW, MANY = (256, 8), (64, 4)
CROWD = 256  # programs that are many
SIZE = 256 * 64  # places times width, at most


@triton.jit
def _step(  # type: ignore[no-untyped-def]
    q, k, v, keys, values, position, rows, out,
    q_row, q_head, k_row, k_head, v_row, v_head, room_row, room_head, room_place, rows_row,
    heads, scale,
    K: tl.constexpr, WIDTH: tl.constexpr, BEAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row and head a program: its key and value into the room, then what its query finds."""
    program = tl.program_id(0)
    row, head = (program // heads).to(tl.int64), program % heads
    column = tl.arange(0, WIDTH)
    real = column < K
    at = tl.load(position + row).to(tl.int32)
    kind = keys.dtype.element_ty
    asked = tl.load(q + row * q_row + head * q_head + column, mask=real, other=0.0)
    key = tl.load(k + row * k_row + head * k_head + column, mask=real, other=0.0).to(kind)
    value = tl.load(v + row * v_row + head * v_head + column, mask=real, other=0.0).to(kind)
    mine = row * room_row + head * room_head + at * room_place + column
    # Nobody reads this place now: all rows of a prompt stand at the same one.
    tl.store(keys + mine, key, mask=real)
    tl.store(values + mine, value, mask=real)
    query = asked.to(kind).to(tl.float32) * scale
    own = tl.sum(query * key.to(tl.float32), 0)
    # Every place of a block has sums of its own, which meet once, at the end.
    top = tl.zeros((BLOCK,), tl.float32) + own
    mass = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, at, BLOCK):
        place = start + tl.arange(0, BLOCK)
        filled = place < at
        if BEAMS > 1:
            beam = tl.load(rows + row * rows_row + place, mask=filled, other=0)
            source = (row // BEAMS) * BEAMS + beam.to(tl.int64)
        else:
            source = row + tl.zeros((BLOCK,), tl.int64)
        there = source * room_row + head * room_head + place * room_place
        both = filled[:, None] & real[None, :]
        near = tl.load(keys + there[:, None] + column[None, :], mask=both, other=0.0)
        far = tl.load(values + there[:, None] + column[None, :], mask=both, other=0.0)
        score = tl.sum(near.to(tl.float32) * query[None, :], 1)
        score = tl.where(filled, score, float("-inf"))
        higher = tl.maximum(top, score)
        fade, share = tl.exp(top - higher), tl.exp(score - higher)
        mass = mass * fade + share
        mixed = mixed * fade[:, None] + share[:, None] * far.to(tl.float32)
        top = higher
    highest = tl.max(top, 0)
    fade, share = tl.exp(top - highest), tl.exp(own - highest)
    whole = tl.sum(mass * fade, 0) + share
    found = tl.sum(mixed * fade[:, None], 0) + share * value.to(tl.float32)
    tl.store(out + row * heads * K + head * K + column, (found / whole).to(kind), mask=real)


def attend(
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
    """What queries (B, N, 1, K) find in rooms (B, N, P, K) and their own step, (B, 1, N*K).

    Keys and values `k` and `v` of the step are written at `position` (B,) of the rooms first. The
    `beams` rows of a prompt are next to each other, and `rows` (B, P) says which of them wrote each
    place. `shape` is how many places a program looks at at once, and its warps.
    """
    B, N, _, K = q.shape
    assert keys.stride() == values.stride()
    assert all(part.stride(3) == 1 or K == 1 for part in (q, k, v, keys))
    out = torch.empty(B, 1, N * K, dtype=keys.dtype, device=q.device)
    width = triton.next_power_of_2(K)
    block, warps = shape or (FEW if B * N < CROWD else MANY)
    block = min(block, max(SIZE // width, 16), max(triton.next_power_of_2(keys.shape[2]), 16))
    # Triton starts its programs on the current device, which need not be the queries'.
    with torch.get_device_module(q.device).device(q.device):
        _step[(B * N,)](
            q, k, v, keys, values, position, position if rows is None else rows, out,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            *keys.stride()[:3], 0 if rows is None else rows.stride(0), N, K**-0.5,
            K=K, WIDTH=width, BEAMS=1 if rows is None else beams, BLOCK=block, num_warps=warps,
        )  # fmt: skip
    return out
