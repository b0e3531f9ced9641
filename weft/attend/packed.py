"""Transformer blocks packed for fast CPU inference; never for training.

Weights are reordered once for oneDNN, and queries, keys and values come from one product. Rows are
concatenated, so nothing is computed for padding, and run in chunks that stay in the cache, one per
thread: no thread ever waits for another inside a block.

oneDNN compiles code for every number of steps that it meets, and keeps it: a chunk is filled up so
that few numbers occur.

M steps of some rows   B rows   S steps of the longest   H hidden width   N heads   K width per head
"""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.multihead import masked_attention
from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.kernels.cpu.linear import (
    LINEAR_BY_DTYPE,
    PackedLinear,
    PackedNorm,
    activation_name,
    can_pack,
)

EmbedSteps = Callable[[Tensor], Tensor]
MAX_CHUNK_STEPS, MIN_CHUNK_STEPS = (
    1024,
    128,
)  # the most steps of a piece, and the fewest that are worth a thread
FEWEST_STEPS = 8  # that a chunk is filled up to a multiple of; of many steps, a sixteenth of them


class LengthGroup(NamedTuple):
    """Adjacent rows of one length within a chunk."""

    start: int  # their first step
    rows: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.length


class PackedChunk(NamedTuple):
    """Rows concatenated without padding."""

    positions: Tensor  # (M,) indices of their steps among all B*S; the last one fills it up
    groups: list[LengthGroup]

    @property
    def steps(self) -> int:
        """The steps of its rows; those after them count for nothing."""
        return self.groups[-1].stop


class PackedBlocks:
    """Packed weights of Transformer blocks; holds no reference to the blocks.

    `enter` maps step indices (M,) among all B*S to the inputs (M, H) of the first block.
    """

    def __init__(self, blocks: Sequence[TransformerBlock], weights: str):
        self.blocks = [_PackedBlock(block, LINEAR_BY_DTYPE[weights]) for block in blocks]
        self.width = blocks[0].feed_out.out_features

    def last(self, x: Padded, enter: EmbedSteps, causal: bool = False) -> Tensor:
        """Return the states (B, S, H) after the last block; zeros in the padding."""
        return self._run(x, enter, causal, 1)[-1]

    def layers(self, x: Padded, enter: EmbedSteps, causal: bool = False) -> list[Tensor]:
        """Return the inputs (B, S, H) of the first block and the states after each block."""
        return self._run(x, enter, causal, len(self.blocks) + 1)

    def _run(self, x: Padded, enter: EmbedSteps, causal: bool, count: int) -> list[Tensor]:
        """Return the states of the last `count` layers."""
        B, S = x.data.shape[:2]
        out = [torch.zeros(B * S, self.width) for _ in range(count)]
        skipped = len(self.blocks) + 1 - count
        inference = torch.is_inference_mode_enabled()

        def run_chunk(chunk: PackedChunk) -> None:
            with (
                torch.inference_mode(inference),
                torch.no_grad(),
            ):  # the mode is per thread
                states = enter(chunk.positions)  # (M, H)
                for i, block in enumerate((None, *self.blocks)):
                    states = states if block is None else block(states, chunk.groups, causal)
                    if i >= skipped:
                        place = chunk.positions[: chunk.steps]
                        out[i - skipped].index_copy_(0, place, states[: chunk.steps])

        threads = torch.get_num_threads()
        chunks = list(_split_chunks(x.lengths.numpy(), S, threads))
        if threads == 1 or len(chunks) == 1:
            for chunk in chunks:
                run_chunk(chunk)
        else:
            list(_thread_pool(threads).map(run_chunk, chunks))
        return [one.view(B, S, self.width) for one in out]


def pack_blocks(blocks: nn.ModuleList, weights: str = "float32") -> PackedBlocks | None:
    """Return packed blocks, or None where the blocks must run unpacked.

    Packing needs fp32 on a CPU, no gradients, and a score with a kernel. The packed weights are
    cached for as long as the blocks live and their weights do not change.
    """
    if blocks.training or torch.is_grad_enabled():
        return None
    parts = list(blocks.parameters())
    kind = parts[0].device.type
    if kind != "cpu" or torch.is_autocast_enabled(kind) or not can_pack(weights):
        return None
    if any(part.dtype != torch.float32 for part in parts):
        return None
    if not all(block.attention.score.has_kernel for block in blocks):  # type: ignore[union-attr]
        return None
    now = (weights, *((part.data_ptr(), part._version) for part in parts))
    kept = _PACKED.get(blocks)
    if kept is None or kept[0] != now:
        kept = _PACKED[blocks] = now, PackedBlocks(list(blocks), weights)  # type: ignore[arg-type]
    return kept[1]


class _PackedBlock:
    """One packed block: self-attention within rows, then a feed-forward network."""

    def __init__(self, block: TransformerBlock, linear: type[PackedLinear]):
        attention = block.attention
        self.heads, self.norm_first = attention.heads, block.norm_first
        self.norms = PackedNorm(block.attention_norm), PackedNorm(block.feed_norm)
        weights, biases = zip(*attention.projections(), strict=True)
        self.qkv = linear(torch.cat(weights), torch.cat(biases))
        self.pattern = attention.pattern
        self.output = linear(attention.output.weight, attention.output.bias)
        name = activation_name(block.activation)
        self.feed_in = linear(block.feed_in.weight, block.feed_in.bias, name)
        self.feed_out = linear(block.feed_out.weight, block.feed_out.bias)

    def __call__(self, x: Tensor, groups: list[LengthGroup], causal: bool) -> Tensor:
        for_steps, for_feed = self.norms
        projected = self.qkv(for_steps(x) if self.norm_first else x)  # (M, 3*H)
        x = self.output.add_to(self._attend(projected, groups, causal), x)  # (M, H)
        if self.norm_first:
            return self.feed_out.add_to(self.feed_in(for_feed(x)), x)
        x = for_steps(x)
        return for_feed(self.feed_out.add_to(self.feed_in(x), x))

    def _attend(self, projected: Tensor, groups: list[LengthGroup], causal: bool) -> Tensor:
        """Attend within each row: (M, H)."""
        heads = projected.view(len(projected), 3, self.heads, -1)  # (M, 3, N, K)
        contexts = []
        for group in groups:
            rows = heads[group.start : group.stop].unflatten(0, (group.rows, group.length))
            q, k, v = rows.permute(2, 0, 3, 1, 4)  # each (rows, N, length, K)
            if self.pattern.has_kernel:
                causal = causal or self.pattern.mask == "causal"
                context = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            else:
                allowed = self.pattern.mask_steps(group.length, group.length, causal)
                assert allowed is not None
                context = masked_attention(q, k, v, allowed)
            contexts.append(context.transpose(1, 2).reshape(-1, projected.shape[1] // 3))
        if rest := len(projected) - groups[-1].stop:
            contexts.append(projected.new_zeros(rest, projected.shape[1] // 3))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


_PACKED: "weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], PackedBlocks]]" = (
    weakref.WeakKeyDictionary()
)


def _split_chunks(lengths: np.ndarray, width: int, threads: int) -> Iterator[PackedChunk]:
    """Yield chunks of rows of about equal size, as many as keep all threads busy."""
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    ends = np.cumsum(lengths[order])
    if not len(order):
        return
    rounds = -(-int(ends[-1]) // (MAX_CHUNK_STEPS * threads))
    count = max(1, min(rounds * threads, int(ends[-1]) // MIN_CHUNK_STEPS))
    cuts = np.searchsorted(ends, ends[-1] / count * np.arange(1, count), side="left") + 1
    for rows in np.split(order, np.unique(cuts)):
        if len(rows):
            yield _make_chunk(rows, lengths[rows], width)


def _make_chunk(rows: np.ndarray, lengths: np.ndarray, width: int) -> PackedChunk:
    """Concatenate rows that are sorted by length."""
    starts = np.cumsum(lengths) - lengths
    steps = int(lengths.sum())
    within = np.arange(steps) - np.repeat(starts, lengths)
    positions = np.repeat(rows * width, lengths) + within
    positions = np.pad(positions, (0, round_steps(steps) - steps), mode="edge")  # (M,)
    sizes, first, count = np.unique(lengths, return_index=True, return_counts=True)
    groups = [
        LengthGroup(int(starts[i]), int(n), int(length))
        for length, i, n in zip(sizes, first, count, strict=True)
    ]
    return PackedChunk(torch.from_numpy(positions), groups)


def round_steps(steps: int) -> int:
    """Return the next number of steps that oneDNN may have to compile for."""
    multiple = max(FEWEST_STEPS, 1 << (steps - 1).bit_length() >> 4)
    return -(-steps // multiple) * multiple


@cache
def _thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads that each compute single-threaded."""
    pool = ThreadPoolExecutor(threads, "prepared", lambda: torch.set_num_threads(1))
    all_started = Barrier(threads)
    list(pool.map(lambda _: all_started.wait(), range(threads)))
    # Threads started later inherit the number that was set last, by any thread.
    torch.set_num_threads(threads)
    return pool


if hasattr(os, "register_at_fork"):  # a forked child has no threads
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)
