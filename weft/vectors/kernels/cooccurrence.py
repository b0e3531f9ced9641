"""Compiled counting of word pairs: a dense block for frequent pairs, hashed tables for the rest.

V words   N running words   S sentences   P parts of a thread's table
"""

import numba
import numpy as np

compiled = numba.njit(nogil=True, cache=True, boundscheck=False)
CACHE_LINE_CELLS = 8  # float64 cells of a cache line


@compiled
def mixed(key: int) -> int:
    """SplitMix64's finish: neighbouring numbers become unrelated ones."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def owner(i: int, j: int, threads: int) -> int:
    """The thread that counts a pair; pairs in one cache line of the dense block have the same."""
    if threads == 1:
        return 0
    x = (np.uint64(i) << np.uint64(32) | np.uint64(j >> 3)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(((x >> np.uint64(32)) * np.uint64(threads)) >> np.uint64(32))


@compiled
def add(i, j, value, keys, values, used):
    """Add to a pair's entry, made where there is none yet; the part of the table it lies in.

    `keys` and `values` are (P, slots); a key of 0 marks an empty slot.
    """
    key = (np.uint64(i) << np.uint64(32) | np.uint64(j)) + np.uint64(1)
    scattered = mixed(key)
    parts, slots = keys.shape
    part = np.int64(((scattered >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32))
    low = scattered & np.uint64(0xFFFFFFFF)
    slot = np.int64((low * np.uint64(slots)) >> np.uint64(32))
    while True:
        if keys[part, slot] == key:
            values[part, slot] += value
            return part
        if keys[part, slot] == 0:
            keys[part, slot] = key
            values[part, slot] = value
            used[part] += 1
            return part
        slot += 1
        if slot == slots:
            slot = 0


@compiled
def count(ids, ends, place, stop, shares, symmetric, who, dense, table, limit):
    """Count pairs from `place` (position, sentence) to `stop`; False when a part is full.

    `shares` is (window + 1,), the weight of a pair at each distance; `who` is (thread, threads).
    A pair is (lower, higher) where it is `symmetric`, else (word, word to its left).
    A full part is handed back after a whole word, so the parts need space for one window more.
    """
    (mine, threads), (rows, reach, cells), (keys, values, used) = who, dense, table
    window = len(shares) - 1
    p, s = place[0], place[1]
    while p < stop:
        begin = ends[s - 1] if s else 0
        while p < min(ends[s], stop):
            full = False
            for q in range(max(begin, p - window), p):
                i, j = ids[p], ids[q]
                if symmetric:
                    i, j = min(i, j), max(i, j)
                if owner(i, j, threads) != mine:
                    continue
                if j < reach[i]:
                    cells[rows[i] + j] += shares[p - q]
                else:
                    part = add(i, j, shares[p - q], keys, values, used)
                    full |= used[part] >= limit
            p += 1
            if full:
                place[0], place[1] = p, s
                return False
        if p == ends[s]:
            s += 1
    place[0], place[1] = p, s
    return True


@compiled
def flush(place, who, dense, table, limit):
    """Move the dense block's pairs into the table from `place` (word, word) on; False when full."""
    (mine, threads), (rows, reach, cells), (keys, values, used) = who, dense, table
    i, j = place[0], place[1]
    while i < len(reach):
        j = max(i, j)
        while j < reach[i]:
            value = cells[rows[i] + j]
            if value > 0 and owner(i, j, threads) == mine:
                part = add(i, j, value, keys, values, used)
                if used[part] >= limit:
                    place[0], place[1] = i, j + 1
                    return False
            j += 1
        i += 1
        j = 0
    place[0], place[1] = i, j
    return True
