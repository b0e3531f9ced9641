"""fastText's training loop, compiled: a word is the mean of its own row and its n-grams' rows.

The middle word predicts the words around it, each against negatives of its own, as in fastText.
Its mean is taken once for the whole window and moves from pair to pair; its rows are moved once.
"""

from __future__ import annotations

import numpy as np

from weft.vectors.kernels.simd import (
    GROUP,
    LANES,
    ROWS_PER_REGISTER,
    SCORES_PER_ROW,
    add_delta,
    fetch,
    mean,
)
from weft.vectors.kernels.word2vec import (
    compiled,
    filled,
    place,
    randint,
    random,
    sample_targets,
    sampled,
    sgd_step,
)

PULL = 0.5  # times the rate: how far one move of a row goes towards its goal
_11 = np.uint64(11)
_OF_53_BITS = 1.0 / (1 << 53)


@compiled
def train_subwords(text, first, last, weights, targets, window, pieces, start, stop, seed):
    """Skip-gram with sub-words on sentences `first` to `last`; the rate from `start` to `stop`."""
    state = np.array([seed], dtype=np.uint64)
    width = weights.inputs.shape[1]
    steps, size = width // LANES, width * 4
    inputs, near = weights.inputs, weights.near_inputs
    line = np.empty(text.longest, np.int32)
    capacity = 2 * window * (max(targets.negative + 1, 64) + GROUP) + SCORES_PER_ROW
    outputs = np.zeros(capacity, np.int64)
    labels, shares = np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
    rows = np.empty(max(1, pieces.most), np.int64)
    gains = np.zeros((ROWS_PER_REGISTER, SCORES_PER_ROW), np.float32)
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
            left, right = max(0, here - reach), min(count, here + reach + 1)
            if right - left < 2:
                continue
            if here + 1 < count:
                ahead = line[here + 1]
                for at in range(pieces.ends[ahead - 1] if ahead else 0, pieces.ends[ahead]):
                    fetch(place(inputs, near, pieces.rows[at]), size // 64)
            total = context_targets(
                line, here, left, right, weights, targets, state, outputs, labels, shares, zero
            )
            word, used = line[here], 0
            for at in range(pieces.ends[word - 1] if word else 0, pieces.ends[word]):
                rows[used] = place(inputs, near, pieces.rows[at])
                used += 1
                if weights.marked_inputs.size:
                    weights.marked_inputs[pieces.rows[at]] += 1
            mean(rows.ctypes.data, used, steps, hidden[0], zero + 2 * size)
            sgd_step(hidden, 1, outputs, total, labels, shares, gains, steps, rate)
            # Each row moves by the whole gradient, as in fastText, and so does their mean.
            add_delta(rows.ctypes.data, used, steps, hidden[0], zero + 2 * size)
    spare[0, 0] = 0.0  # kept alive until here, as in `learn_windows`


@compiled
def context_targets(
    line, here, left, right, weights, targets, state, outputs, labels, shares, spare
) -> int:
    """Append what predicts each word around one place; each begins a group of rows."""
    total = 0
    for there in range(left, right):
        if there != here:
            total = sample_targets(
                line[there], targets, weights, state, outputs, labels, shares, total
            )
            total = filled(outputs, labels, shares, total, spare)
    return total


@compiled
def means(inputs, ends, rows, first, last, into) -> None:
    """The vectors of words `first` to `last`: the mean of each one's rows."""
    for word in range(first, last):
        begin = ends[word - 1] if word else 0
        for e in range(into.shape[1]):
            into[word, e] = 0.0
        for at in range(begin, ends[word]):
            row = rows[at]
            for e in range(into.shape[1]):
                into[word, e] += inputs[row, e]
        share = np.float32(1.0 / max(ends[word] - begin, 1))
        for e in range(into.shape[1]):
            into[word, e] *= share


@compiled
def fill(table, first, last, width, bound, seed) -> None:
    """Fill rows with uniform numbers within ±`bound`, independent of the thread; then zeros."""
    state = np.zeros(1, np.uint64)
    for row in range(first, last):
        state[0] = np.uint64(seed) + np.uint64(row) * np.uint64(0xD1342543DE82EF95)
        for e in range(width):
            table[row, e] = (2 * _OF_53_BITS * np.int64(random(state) >> _11) - 1) * bound
        for e in range(width, table.shape[1]):
            table[row, e] = 0.0


@compiled
def merge(shared, copies, marks, first, last, pull) -> None:
    """Add what each copy learnt, in their order, to the shared rows, and copy these back.

    A row that each copy moved a little has its steps summed. One that each moved hundreds of times
    came near its goal in every copy, and the sum would go that way again and again: if a move goes
    the share `pull` of the way, n moves go 1 − e^(−n·pull), and the steps are scaled so that those
    of all copies go as far as their moves one after the other would have.
    """
    count, width = marks.shape[0], shared.shape[1]
    for row in range(first, last):
        touched = moves = 0
        for one in range(count):
            touched += marks[one, row] > 0
            moves += marks[one, row]
        if touched == 0:
            continue
        share = 1.0
        if touched > 1:
            way = pull * moves
            share = (1 - np.exp(-way)) / (touched * (1 - np.exp(-way / touched)))
        for e in range(width):
            old = shared[row, e]
            step = np.float32(0.0)
            for one in range(count):
                if marks[one, row]:
                    step += copies[one, row, e] - old
            shared[row, e] = old + np.float32(share) * step
            for one in range(count):
                copies[one, row, e] = shared[row, e]
        for one in range(count):
            marks[one, row] = 0


@compiled
def sync(shared, own, before, shares) -> None:
    """Add what a thread has learnt in its own rows since it last did so, and take what others have.

    Each row's step is scaled by its share, for the same reason as in `merge`.
    """
    for row in range(own.shape[0]):
        for e in range(own.shape[1]):
            shared[row, e] += shares[row] * (own[row, e] - before[row, e])
            own[row, e] = before[row, e] = shared[row, e]


@compiled
def unpad(table, rows, width):
    """Take the padding out of a table, in the memory it has."""
    wide = table.size // rows
    for row in range(rows):
        for e in range(width):
            table[row * width + e] = table[row * wide + e]
    return table[: rows * width].reshape(rows, width)
