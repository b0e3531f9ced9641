"""Fused cross-entropy in Triton: logits are replaced by their gradient, in place.

R scored words   V words   C columns, V or more
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Few rows are at work at a time, each by many threads: the second look at a row then finds it in
# the cache of the device (50 MB; a row of 50,000 words in half precision is 100 KB), and only the
# first and the writing go to memory.
BLOCK = 4096  # columns at a time
NUM_WARPS = 16
LOWEST_LOGIT = tl.constexpr(-1e30)  # the maximum of an empty set


@triton.jit
def _cross_entropy_kernel(
    scores, stride, ids, losses, words, columns, smoothing,
    SLOPES: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Process one row per program: the softmax denominator first, then the gradient."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    wanted = tl.load(ids + row)
    # Every lane has a separate maximum and sum, combined once at the end: threads do not wait for
    # each other. Of e^(old − new) and e^(x − new) one is e^0, so only one is computed.
    tops = tl.full((BLOCK,), LOWEST_LOGIT, tl.float32)
    masses = tl.zeros((BLOCK,), tl.float32)
    plain = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, words, BLOCK):
        at = start + tl.arange(0, BLOCK)
        # Read up to `columns`, a multiple of the vector width; `words` would force scalar loads.
        x = tl.load(scores + at, mask=at < columns, other=0.0, eviction_policy="evict_last")
        x = tl.where(at < words, x.to(tl.float32), float("-inf"))
        fade = tl.exp(-tl.abs(x - tops))
        masses = tl.where(x > tops, masses * fade + 1.0, masses + fade)
        tops = tl.maximum(tops, x)
        if SMOOTHED:
            plain += tl.where(at < words, x, 0.0)
    top = tl.max(tops, 0)
    whole = top + tl.log(tl.sum(masses * tl.exp(tops - top), 0))
    right = tl.load(scores + tl.where(wanted < 0, 0, wanted)).to(tl.float32)
    even = smoothing / words
    lost = whole - (1.0 - smoothing) * right
    if SMOOTHED:
        lost -= even * tl.sum(plain, 0)
    tl.store(losses + row, tl.where(wanted < 0, 0.0, lost))
    if SLOPES:
        tl.debug_barrier()  # all reads above come before these writes
        # An ignored row has zero gradient.
        whole = tl.where(wanted < 0, float("inf"), whole)
        even = tl.where(wanted < 0, 0.0, even)
        for start in range(0, columns, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(scores + at, mask=at < columns, other=0.0, eviction_policy="evict_first")
            slope = tl.exp(tl.where(at < words, x.to(tl.float32), float("-inf")) - whole)
            if SMOOTHED:
                slope -= tl.where(at < words, even, 0.0)
            tl.store(scores + at, slope.to(scores.dtype.element_ty), mask=at < columns)
        tl.debug_barrier()  # the target's gradient overwrites what was just written
        slope = tl.exp(right - whole) - (1.0 - smoothing) - even
        tl.store(scores + wanted, slope.to(scores.dtype.element_ty), mask=wanted >= 0)


def fused_cross_entropy(
    scores: Tensor, ids: Tensor, words: int, smoothing: float, wanted: bool
) -> Tensor:
    """Return the loss of each row (R,) of logits (R, C); only the first `words` columns are words.

    With `wanted`, the logits are replaced by the loss's gradient, zero beyond the words. A row with
    an id below 0 is ignored.
    """
    losses = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    # Triton launches on the current device, which need not be that of the logits.
    with torch.get_device_module(scores.device).device(scores.device):
        _cross_entropy_kernel[(len(scores),)](
            scores, scores.stride(0), ids, losses, words, scores.shape[1], smoothing,
            SLOPES=wanted, SMOOTHED=smoothing > 0, BLOCK=BLOCK, num_warps=NUM_WARPS,
        )  # fmt: skip
    return losses
