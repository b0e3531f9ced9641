"""Transformer blocks made ready to read fast on a processor; never for training.

Weights are laid out once for oneDNN, and queries, keys and values come from one product. All rows
lie end to end, so that nothing is computed for padding, and are read in pieces that stay in the
cache, one on each thread: no thread ever waits for another inside a block.

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


class LengthGroup(NamedTuple):
    """Rows of one length that follow each other in a piece."""

    start: int  # their first step
    rows: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.length


class PackedChunk(NamedTuple):
    """Some rows, end to end."""

    places: Tensor  # (M,) where their steps lie among all B*S
    groups: list[LengthGroup]


class PackedBlocks:
    """The weights of some blocks, laid out; keeps nothing of the blocks themselves.

    `enter` gives what the first block reads (M, H) of steps, by their places (M,) among all B*S.
    """

    def __init__(self, blocks: Sequence[TransformerBlock], weights: str):
        self.blocks = [_PackedBlock(block, LINEAR_BY_DTYPE[weights]) for block in blocks]
        self.width = blocks[0].feed_out.out_features

    def last(self, x: Padded, enter: EmbedSteps, causal: bool = False) -> Tensor:
        """The states (B, S, H) after the last block; zeros in the padding."""
        return self._run(x, enter, causal, 1)[-1]

    def layers(self, x: Padded, enter: EmbedSteps, causal: bool = False) -> list[Tensor]:
        """The states (B, S, H) that the first block reads, and those after each block."""
        return self._run(x, enter, causal, len(self.blocks) + 1)

    def _run(self, x: Padded, enter: EmbedSteps, causal: bool, wanted: int) -> list[Tensor]:
        """The last states of all, as many as are wanted."""
        B, S = x.data.shape[:2]
        out = [torch.zeros(B * S, self.width) for _ in range(wanted)]
        skipped = len(self.blocks) + 1 - wanted
        known = torch.is_inference_mode_enabled()

        def read(piece: PackedChunk) -> None:
            with torch.inference_mode(known), torch.no_grad():  # each thread has a mode of its own
                states = enter(piece.places)  # (M, H)
                for i, block in enumerate((None, *self.blocks)):
                    states = states if block is None else block(states, piece.groups, causal)
                    if i >= skipped:
                        out[i - skipped].index_copy_(0, piece.places, states)

        threads = torch.get_num_threads()
        pieces = list(_split_chunks(x.lengths.numpy(), S, threads))
        if threads == 1 or len(pieces) == 1:
            for piece in pieces:
                read(piece)
        else:
            list(_thread_pool(threads).map(read, pieces))
        return [one.view(B, S, self.width) for one in out]


def pack_blocks(blocks: nn.ModuleList, weights: str = "float32") -> PackedBlocks | None:
    """Blocks ready to read fast; None where they have to read as they are.

    They can in fp32 on a processor, where no gradient is wanted. What was laid out is kept for as
    long as the blocks live and their weights do not change.
    """
    if blocks.training or torch.is_grad_enabled():
        return None
    parts = list(blocks.parameters())
    kind = parts[0].device.type
    if kind != "cpu" or torch.is_autocast_enabled(kind) or not can_pack(weights):
        return None
    if any(part.dtype != torch.float32 for part in parts):
        return None
    now = (weights, *((part.data_ptr(), part._version) for part in parts))
    kept = _PACKED.get(blocks)
    if kept is None or kept[0] != now:
        kept = _PACKED[blocks] = now, PackedBlocks(list(blocks), weights)  # type: ignore[arg-type]
    return kept[1]


class _PackedBlock:
    """One block: attention of the steps of a row to each other, a perceptron."""

    def __init__(self, block: TransformerBlock, linear: type[PackedLinear]):
        own = block.attention
        self.heads, self.norm_first = own.heads, block.norm_first
        self.norms = PackedNorm(block.attention_norm), PackedNorm(block.feed_norm)
        three = (own.query, own.key, own.value)
        self.qkv = linear(
            torch.cat([part.weight for part in three]), torch.cat([part.bias for part in three])
        )
        self.output = linear(own.output.weight, own.output.bias)
        name = activation_name(block.activation)
        self.feed_in = linear(block.feed_in.weight, block.feed_in.bias, name)
        self.feed_out = linear(block.feed_out.weight, block.feed_out.bias)

    def __call__(self, x: Tensor, groups: list[LengthGroup], causal: bool) -> Tensor:
        for_steps, for_feed = self.norms
        made = self.qkv(for_steps(x) if self.norm_first else x)  # (M, 3*H)
        x = self.output.add_to(self._attend(made, groups, causal), x)  # (M, H)
        if self.norm_first:
            return self.feed_out.add_to(self.feed_in(for_feed(x)), x)
        x = for_steps(x)
        return for_feed(self.feed_out.add_to(self.feed_in(x), x))

    def _attend(self, made: Tensor, groups: list[LengthGroup], causal: bool) -> Tensor:
        """What steps find in their own rows: (M, H)."""
        wide = made.view(len(made), 3, self.heads, -1)  # (M, 3, N, K)
        found = []
        for group in groups:
            rows = wide[group.start : group.stop].unflatten(0, (group.rows, group.length))
            q, k, v = rows.permute(2, 0, 3, 1, 4)  # each (rows, N, length, K)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            found.append(mixed.transpose(1, 2).reshape(-1, made.shape[1] // 3))
        return found[0] if len(found) == 1 else torch.cat(found)


_PACKED: "weakref.WeakKeyDictionary[Any, tuple[tuple, PackedBlocks]]" = weakref.WeakKeyDictionary()


def _split_chunks(lengths: np.ndarray, width: int, threads: int) -> Iterator[PackedChunk]:
    """Rows cut into pieces of about one size, as many as keep all threads busy."""
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
    """Rows that are sorted by their lengths, end to end."""
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    places = np.repeat(rows * width, lengths) + within  # (M,)
    found, first, count = np.unique(lengths, return_index=True, return_counts=True)
    groups = [
        LengthGroup(int(starts[i]), int(n), int(length))
        for length, i, n in zip(found, first, count, strict=True)
    ]
    return PackedChunk(torch.from_numpy(places), groups)


@cache
def _thread_pool(threads: int) -> ThreadPoolExecutor:
    """Threads that each compute alone."""
    made = ThreadPoolExecutor(threads, "prepared", lambda: torch.set_num_threads(1))
    all_there = Barrier(threads)
    list(made.map(lambda _: all_there.wait(), range(threads)))
    # Other threads that begin later take the number that was set last, by whomever.
    torch.set_num_threads(threads)
    return made


if hasattr(os, "register_at_fork"):  # threads do not come along
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)
