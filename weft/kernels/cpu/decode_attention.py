"""Decode attention compiled by Numba: single queries over a paged KV store. Import it only to run.

N rows   H hidden width   R rows of a store   M slot lists, each for N / M rows   P slots
"""

import numpy as np
from numba import njit

# NaN and infinities keep their meaning; only the order of sums is free.
_compiled = njit(
    nogil=True, cache=True, boundscheck=False, fastmath={"reassoc", "nsz", "contract", "arcp"}
)


@_compiled
def write_kv(projected, store, first):
    """Copy keys and values, the last 2·H columns of `projected`, to `store` from row `first`."""
    begin = projected.shape[1] - store.shape[1]
    for row in range(len(projected)):
        for column in range(store.shape[1]):
            store[first + row, column] = projected[row, begin + column]


@_compiled
def attend(queries, store, slots, lengths, heads, begin, end, out, weights):
    """Attend for the rows `begin` to `end` of `queries`, into `out` (N, H).

    The first H columns of `queries` count. `store` (R, 2·H) has keys beside values; row n sees
    the first `lengths` of its `slots` there, which rows of the same prompt share. `weights`
    (N, P) gets the mean weights of the heads; it may be empty. Rows without slots get zeros.
    """
    H = out.shape[1]
    width, group = H // heads, len(queries) // len(slots)
    scale = np.float32(1 / np.sqrt(width))
    scores = np.empty((heads, slots.shape[1]), np.float32)
    for n in range(begin, end):
        m = n // group
        length = lengths[m]
        for p in range(length):
            keys = store[slots[m, p]]
            for head in range(heads):
                first = head * width
                scores[head, p] = scale * _dot(
                    queries[n, first : first + width], keys[first : first + width]
                )
        for head in range(heads):
            _softmax(scores[head, :length])
        out[n] = 0
        for p in range(length):
            values = store[slots[m, p], H:]
            for head in range(heads):
                first = head * width
                _add_scaled(
                    out[n, first : first + width], scores[head, p], values[first : first + width]
                )
        if weights.shape[1]:
            for p in range(length):
                weights[n, p] = scores[:, p].sum() / np.float32(heads)


@_compiled
def _softmax(scores):
    """Softmax in place."""
    top = np.float32(-np.inf)
    for p in range(len(scores)):
        top = max(top, scores[p])
    total = np.float32(0)
    for p in range(len(scores)):
        scores[p] = np.exp(scores[p] - top)
        total += scores[p]
    for p in range(len(scores)):
        scores[p] /= total


@_compiled
def _dot(one, other):
    # Indices that count from zero are known to be non-negative, so the loop is vectorised.
    total = np.float32(0)
    for k in range(len(one)):
        total += one[k] * other[k]
    return total


@_compiled
def _add_scaled(out, weight, vector):
    for k in range(len(out)):
        out[k] += weight * vector[k]
