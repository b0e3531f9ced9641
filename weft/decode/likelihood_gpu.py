"""The softmax of a loss on a GPU, in Triton: scores become their own gradient, where they lie.

R words that count   V words   C columns, V or more
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
WARPS = 16


@triton.jit
def _rows(  # type: ignore[no-untyped-def]
    scores, stride, ids, losses, words, columns, smoothing,
    SLOPES: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program: first the sum of its softmax, then the slopes over the scores."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    wanted = tl.load(ids + row)
    counts = tl.where(wanted < 0, 0.0, 1.0)
    top = float("-inf")
    # Summed up across threads once, at the end; only the maximum is needed by all of them before.
    masses = tl.zeros((BLOCK,), tl.float32)
    plain = 0.0
    for start in range(0, words, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(
            scores + at, mask=at < words, other=float("-inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        masses = masses * tl.exp(top - higher) + tl.exp(x - higher)
        if SMOOTHED:
            plain += tl.sum(tl.where(at < words, x, 0.0), 0)
        top = higher
    whole = top + tl.log(tl.sum(masses, 0))
    right = tl.load(scores + tl.where(wanted < 0, 0, wanted)).to(tl.float32)
    lost = whole - (1.0 - smoothing) * right - smoothing * plain / words
    tl.store(losses + row, counts * lost)
    if SLOPES:
        tl.debug_barrier()  # everything above has been read before it is written over
        for start in range(0, columns, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(
                scores + at, mask=at < words, other=float("-inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            slope = tl.exp(x - whole) - tl.where(at < words, smoothing / words, 0.0)
            slope -= tl.where(at == wanted, 1.0 - smoothing, 0.0)
            slope *= counts
            tl.store(scores + at, slope.to(scores.dtype.element_ty), mask=at < columns)


def slopes(scores: Tensor, ids: Tensor, words: int, smoothing: float, wanted: bool) -> Tensor:
    """The loss of each row (R,) of scores (R, C), of which the first `words` columns are words.

    With `wanted`, the scores are replaced by the loss's gradient, zero behind the words. A row with
    an id below 0 costs nothing.
    """
    losses = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    # Triton starts its programs on the current device, which need not be the scores'.
    with torch.get_device_module(scores.device).device(scores.device):
        _rows[(len(scores),)](
            scores, scores.stride(0), ids, losses, words, scores.shape[1], smoothing,
            SLOPES=wanted, SMOOTHED=smoothing > 0, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    return losses
