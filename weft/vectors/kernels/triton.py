"""word2vec's and fastText's training loops for a GPU, in Triton: kernels.py's, many at a time.

A program walks through its own stretch of the text, one middle word after the other, and adds to
the tables that all programs share. Rows are as wide as a power of two, zeros behind the vector.

A words around a middle word   G output rows   W width of a row
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

# One program for all sizes of a part; otherwise one is built for the multiples of 16, and so on.
_ANY: dict[str, Any] = {"do_not_specialize": ["count", "size", "seed"]}


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _noise(seed, place, slots, sure, alias, size):
    """A word from the noise in each slot: a cell, then its own word or its alias (Walker)."""
    one, two, _, _ = tl.randint4x(seed, place + slots)
    cell = tl.umulhi(one.to(tl.uint32), size + tl.zeros_like(one).to(tl.uint32)).to(tl.int32)
    own = two.to(tl.uint32).to(tl.int64) < tl.load(sure + cell)
    return tl.where(own, cell, tl.load(alias + cell))


@triton.jit(**_ANY)
def windows(
    ids, left, right, count, inputs, outputs, calm_inputs, calm_outputs, sure, alias, size,
    start, slope, seed,
    NEGATIVE: tl.constexpr, A: tl.constexpr, G: tl.constexpr, W: tl.constexpr,
    AVERAGED: tl.constexpr,
):  # fmt: skip
    """Skip-gram, or CBOW where windows are averaged: one middle word and its negatives a step."""
    each = tl.cdiv(count, tl.num_programs(0))
    first = tl.program_id(0) * each
    columns, around, slots = tl.arange(0, W), tl.arange(0, A), tl.arange(0, G)
    for here in range(first, tl.minimum(first + each, count)):
        rate = start + slope * (here - first) / each
        word = tl.load(ids + here)
        at = tl.load(left + here) + around
        at += (at >= here).to(tl.int32)
        near = at < tl.load(right + here)
        words = tl.load(ids + at, mask=near, other=0)  # (A,)
        drawn = _noise(seed, here * G, slots, sure, alias, size)  # (G,)
        target = tl.where(slots == 0, word, drawn)
        used = (slots == 0) | ((slots <= NEGATIVE) & (drawn != word))
        label = (slots == 0).to(tl.float32)
        in_rows = inputs + words.to(tl.int64)[:, None] * W + columns[None, :]
        out_rows = outputs + target.to(tl.int64)[:, None] * W + columns[None, :]
        x = tl.load(in_rows, mask=near[:, None], other=0.0)  # (A, W)
        y = tl.load(out_rows, mask=used[:, None], other=0.0)  # (G, W)
        calm = tl.load(calm_outputs + target, mask=used, other=0.0)
        calmer = tl.load(calm_inputs + words, mask=near, other=0.0)
        if AVERAGED:
            share = 1.0 / tl.maximum(tl.sum(near.to(tl.float32)), 1.0)
            hidden = tl.sum(x, 0) * share  # (W,)
            gain = (label - _sigmoid(tl.sum(y * hidden[None, :], 1))) * rate  # (G,)
            gain = tl.where(used & (tl.sum(near.to(tl.int32)) > 0), gain, 0.0)
            step = tl.sum(gain[:, None] * y, 0)  # (W,)
            move_in = calmer[:, None] * step[None, :]
            move_out = (gain * calm)[:, None] * hidden[None, :]
        else:
            gains = (label[None, :] - _sigmoid(tl.dot(x, tl.trans(y)))) * rate  # (A, G)
            gains = tl.where(near[:, None] & used[None, :], gains, 0.0)
            move_in = tl.dot(gains, y) * calmer[:, None]
            move_out = tl.dot(tl.trans(gains), x) * calm[:, None]
        tl.atomic_add(in_rows, move_in, mask=near[:, None], sem="relaxed")
        tl.atomic_add(out_rows, move_out, mask=used[:, None], sem="relaxed")


@triton.jit(**_ANY)
def pieces(
    ids, left, right, count, inputs, outputs, calm_inputs, calm_outputs, sure, alias, size,
    start, slope, seed, piece_ends, piece_rows,
    NEGATIVE: tl.constexpr, A: tl.constexpr, K: tl.constexpr, W: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Skip-gram with sub-words: the mean of a word's pieces against the words around it.

    Each of these has K output rows: its own and its negatives'.
    """
    each = tl.cdiv(count, tl.num_programs(0))
    first = tl.program_id(0) * each
    columns, slots, some = tl.arange(0, W), tl.arange(0, A * K), tl.arange(0, P)
    positive = slots % K == 0
    for here in range(first, tl.minimum(first + each, count)):
        rate = start + slope * (here - first) / each
        word = tl.load(ids + here)
        at = tl.load(left + here) + slots // K
        at += (at >= here).to(tl.int32)
        near = at < tl.load(right + here)
        around = tl.load(ids + at, mask=near, other=0)  # (G,)
        drawn = _noise(seed, here * A * K, slots, sure, alias, size)
        target = tl.where(positive, around, drawn)
        used = near & (positive | ((slots % K <= NEGATIVE) & (drawn != around)))
        out_rows = outputs + target.to(tl.int64)[:, None] * W + columns[None, :]
        y = tl.load(out_rows, mask=used[:, None], other=0.0)  # (G, W)
        calm = tl.load(calm_outputs + target, mask=used, other=0.0)
        stop = tl.load(piece_ends + word)
        first_piece = tl.load(piece_ends + word - 1, mask=word > 0, other=0)
        hidden = tl.zeros([W], tl.float32)
        for piece in range(first_piece, stop, P):
            there = piece + some < stop
            rows = tl.load(piece_rows + piece + some, mask=there, other=0).to(tl.int64)
            found = tl.load(
                inputs + rows[:, None] * W + columns[None, :], mask=there[:, None], other=0.0
            )
            hidden += tl.sum(found, 0)
        hidden = hidden / (stop - first_piece).to(tl.float32)
        gain = (positive.to(tl.float32) - _sigmoid(tl.sum(y * hidden[None, :], 1))) * rate
        gain = tl.where(used, gain, 0.0)  # (G,)
        step = tl.sum(gain[:, None] * y, 0)  # (W,)
        move_out = (gain * calm)[:, None] * hidden[None, :]
        tl.atomic_add(out_rows, move_out, mask=used[:, None], sem="relaxed")
        for piece in range(first_piece, stop, P):
            there = piece + some < stop
            rows = tl.load(piece_rows + piece + some, mask=there, other=0)
            calmer = tl.load(calm_inputs + rows, mask=there, other=0.0)
            tl.atomic_add(
                inputs + rows.to(tl.int64)[:, None] * W + columns[None, :],
                calmer[:, None] * step[None, :], mask=there[:, None], sem="relaxed",
            )  # fmt: skip
