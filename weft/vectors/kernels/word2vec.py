"""word2vec's and fastText's training loops, compiled: one call learns from a run of sentences.

All losses have one shape: some input rows meet some output rows, each pair with a label. Under
skip-gram the input rows are the words of a window, and the output rows the word in their middle
and its negatives, drawn once for the window (Ji et al. 2016), or the inner nodes on the middle
word's path. Under CBOW there is one input row, the mean of the window. With sub-words the input
row is the mean of the middle word's n-grams and the output rows are the words of the window, each
with its negatives. The expected update is Mikolov's.

Threads write to the same rows without locks (Hogwild), but for the first rows, those of the most
frequent words: each has its own copy, or they would spend their time handing these to and fro. A
thread's random numbers come from the seed it is given and nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from weft.vectors.kernels.simd import (
    GROUP,
    LANES,
    ROWS_PER_REGISTER,
    SCORES_PER_ROW,
    add_delta,
    fetch,
    mean,
    scores,
    update_rows,
)

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": True,
    "boundscheck": False,
    "cache": True,
    "error_model": "numpy",
}
compiled = njit(**_OPTIONS)

_STEP, _MIX1, _MIX2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
_27, _30, _31, _32 = (np.uint64(n) for n in (27, 30, 31, 32))
_LOW = np.uint64(0xFFFFFFFF)


class Weights(NamedTuple):
    """The two tables that are learnt, and how often their rows were moved."""

    inputs: np.ndarray  # (V or V + buckets, padded E) float32
    outputs: np.ndarray  # (V or V − 1, padded E) float32
    marked_inputs: np.ndarray  # (V,) uint32, or empty where nobody asks
    marked_outputs: np.ndarray
    near_inputs: np.ndarray  # (H, padded E): what a thread has instead of the first H rows
    near_outputs: np.ndarray


class Text(NamedTuple):
    """Sentences of ids, and each word's probability of being kept."""

    ids: np.ndarray  # (N,) int32
    ends: np.ndarray  # (S,) int64
    keep: np.ndarray  # (V,) uint64: kept when a random 32-bit number is below it
    longest: int


class Targets(NamedTuple):
    """Prediction targets: the noise distribution (alias table) or each word's Huffman path."""

    sure: np.ndarray  # (V,) uint64: below it the cell's own word, else its alias
    alias: np.ndarray  # (V,) int32
    negative: int  # 0: the tree is used
    path_ends: np.ndarray  # (V,) int64
    nodes: np.ndarray  # int32, rows of the outputs
    turns: np.ndarray  # float32: 1 where the path goes left


class SubwordTables(NamedTuple):
    """The rows whose mean is a word, in the order of words."""

    ends: np.ndarray  # (V,) int64
    rows: np.ndarray  # int32
    most: int  # rows of one word


@compiled
def random(state: np.ndarray) -> np.uint64:
    """The next 64 random bits (SplitMix64)."""
    state[0] += _STEP
    z = state[0]
    z = (z ^ (z >> _30)) * _MIX1
    z = (z ^ (z >> _27)) * _MIX2
    return z ^ (z >> _31)


@compiled
def randint(state: np.ndarray, limit: int) -> int:
    """A random whole number below `limit`."""
    return np.int64(((random(state) >> _32) * np.uint64(limit)) >> _32)


@compiled
def sample_noise(state: np.ndarray, sure: np.ndarray, alias: np.ndarray) -> int:
    """A word from the noise: a cell, then its own word or its alias (Walker)."""
    z = random(state)
    cell = np.int64(((z >> _32) * np.uint64(sure.size)) >> _32)
    return cell if (z & _LOW) < sure[cell] else np.int64(alias[cell])


@compiled
def sigmoid(x: float) -> float:
    """1 / (1 + e⁻ˣ) within 5e-5, without a branch or a table.

    It is ½ + ½ tanh(x/2), with Lambert's continued fraction for tanh cut after 13 and clamped
    where that reaches one.
    """
    x = min(max(np.float32(0.5) * x, np.float32(-4.97)), np.float32(4.97))
    s = x * x
    top = x * (((s + np.float32(378)) * s + np.float32(17325)) * s + np.float32(135135))
    under = ((np.float32(28) * s + np.float32(3150)) * s + np.float32(62370)) * s
    return np.float32(0.5) + np.float32(0.5) * top / (under + np.float32(135135))


@compiled
def sgd_step(inputs, count, outputs, total, labels, weights, gains, steps, rate) -> None:
    """One step of gradient ascent: input rows against output rows, GROUP outputs at a time."""
    even = -(-count // ROWS_PER_REGISTER) * ROWS_PER_REGISTER
    for start in range(0, total, GROUP):
        there = outputs.ctypes.data + 8 * start
        scores(inputs.ctypes.data, even, there, steps, gains.ctypes.data)
        for p in range(count):
            for q in range(SCORES_PER_ROW):
                error = labels[start + q] - sigmoid(gains[p, q])
                gains[p, q] = error * weights[start + q] * rate
        update_rows(inputs.ctypes.data, count, there, steps, gains.ctypes.data)


@compiled
def filled(outputs, labels, weights, total, spare) -> int:
    """Fill the last group of output rows with a row of zeros that weighs nothing."""
    while total % GROUP:
        outputs[total] = spare
        labels[total] = 0.0
        weights[total] = 0.0
        total += 1
    return total


@compiled
def place(table, near, row) -> int:
    """The address of a row: among those a thread has for itself, or in the table."""
    base = near.ctypes.data if row < near.shape[0] else table.ctypes.data
    return base + row * table.shape[1] * 4


@compiled
def sample_targets(word, targets, tables, state, outputs, labels, weights, total) -> int:
    """Append what predicts a word: itself and its negatives, or its path."""
    table, near, marks = tables.outputs, tables.near_outputs, tables.marked_outputs
    if targets.negative == 0:
        first = targets.path_ends[word - 1] if word else 0
        for step in range(first, targets.path_ends[word]):
            outputs[total] = place(table, near, targets.nodes[step])
            labels[total] = targets.turns[step]
            weights[total] = 1.0
            total += 1
            if marks.size:
                marks[targets.nodes[step]] += 1
        return total
    outputs[total] = place(table, near, word)
    labels[total] = 1.0
    weights[total] = 1.0
    total += 1
    if marks.size:
        marks[word] += 1
    for _ in range(targets.negative):
        other = sample_noise(state, targets.sure, targets.alias)
        if other != word:
            outputs[total] = place(table, near, other)
            labels[total] = 0.0
            weights[total] = 1.0
            total += 1
            if marks.size:
                marks[other] += 1
    return total


@compiled
def sampled(text, sentence, line, state) -> int:
    """Copy the words of a sentence that survive sub-sampling; how many they are."""
    count = 0
    first = text.ends[sentence - 1] if sentence else 0
    for at in range(first, text.ends[sentence]):
        word = text.ids[at]
        if (random(state) >> _32) < text.keep[word]:
            line[count] = word
            count += 1
    return count


@compiled
def learn_windows(text, first, last, weights, targets, window, averaged, start, stop, seed):
    """Skip-gram, or CBOW where windows are `averaged`, on sentences `first` to `last`.

    The learning rate goes from `start` to `stop` on the way.
    """
    state = np.array([seed], dtype=np.uint64)
    width = weights.inputs.shape[1]
    steps, size = width // LANES, width * 4
    inputs, near = weights.inputs, weights.near_inputs
    line = np.empty(text.longest, np.int32)
    capacity = max(targets.negative + 1, 64) + SCORES_PER_ROW
    outputs = np.zeros(capacity + GROUP, np.int64)
    labels, shares = np.zeros(capacity + GROUP, np.float32), np.zeros(capacity + GROUP, np.float32)
    around = np.zeros(2 * window + ROWS_PER_REGISTER, np.int64)
    gains = np.zeros((2 * window + ROWS_PER_REGISTER, SCORES_PER_ROW), np.float32)
    spare = np.zeros((4, width), np.float32)  # nothing, the mean, and the mean before
    zero = spare.ctypes.data
    hidden = np.full(ROWS_PER_REGISTER, zero, np.int64)
    hidden[0] = zero + size
    begin = text.ends[first - 1] if first else 0
    slope = (stop - start) / max(text.ends[last - 1] - begin, 1) if last else 0.0
    for sentence in range(first, last):
        done = (text.ends[sentence - 1] if sentence else 0) - begin
        rate = np.float32(start + slope * done)
        count = sampled(text, sentence, line, state)
        for here in range(count):
            reach = window - randint(state, window)
            seen = 0
            for there in range(max(0, here - reach), min(count, here + reach + 1)):
                if there != here:
                    around[seen] = place(inputs, near, line[there])
                    seen += 1
                    if weights.marked_inputs.size:
                        weights.marked_inputs[line[there]] += 1
            if not seen:
                continue
            if here + window < count:
                fetch(place(inputs, near, line[here + window]), size // 64)
            if here + 1 < count:
                fetch(place(weights.outputs, weights.near_outputs, line[here + 1]), size // 64)
            total = sample_targets(line[here], targets, weights, state, outputs, labels, shares, 0)
            total = filled(outputs, labels, shares, total, zero)
            if averaged:
                mean(around.ctypes.data, seen, steps, hidden[0], zero + 2 * size)
                sgd_step(hidden, 1, outputs, total, labels, shares, gains, steps, rate)
                add_delta(around.ctypes.data, seen, steps, hidden[0], zero + 2 * size)
            else:
                for extra in range(seen, -(-seen // ROWS_PER_REGISTER) * ROWS_PER_REGISTER):
                    around[extra] = zero
                sgd_step(around, seen, outputs, total, labels, shares, gains, steps, rate)
    # Addresses do not keep an array alive: without a use of it here, it would be freed above.
    spare[0, 0] = 0.0
