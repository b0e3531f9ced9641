"""Compiled: the vectors of a vocabulary out of its sub-words. Imported only when it is to run.

V words   E width
"""

import numba
import numpy as np

from weft.embed.subwords import FNV_PRIME, FNV_START


@numba.njit(nogil=True, cache=True)
def compose(text, ends, uncut, table, words, shortest, longest, out):  # type: ignore[no-untyped-def]
    """Add up the rows of each word's n-grams as `Subwords.vector` does, into `out` (V, E).

    `text` holds the words' bytes, one after the other, `ends` where each ends; those `uncut` have
    no n-grams.
    """
    most, begin = 0, 0
    for row in range(len(ends)):
        most, begin = max(most, ends[row] - begin), ends[row]
    marked = np.empty(most + 2, np.uint8)
    begin = 0
    for row in range(len(ends)):
        size = ends[row] - begin + 2
        marked[0], marked[size - 1] = 60, 62  # < and >
        marked[1 : size - 1] = text[begin : ends[row]]
        begin = ends[row]
        out[row] += table[row]
        rows = 1
        if not uncut[row] and len(table) > words:
            rows += _add_ngrams(marked[:size], table, words, shortest, longest, out[row])
        out[row] *= np.float32(1 / rows)


@numba.njit(nogil=True, cache=True)
def _add_ngrams(marked, table, words, shortest, longest, vector):  # type: ignore[no-untyped-def]
    """Add the rows of the n-grams of one marked word; how many there are."""
    size, buckets, rows = len(marked), len(table) - words, 0
    for begin in range(size):
        if marked[begin] & 0xC0 == 0x80:  # inside a character
            continue
        value, end, n = np.uint32(FNV_START), begin, 1
        while end < size and n <= longest:
            first = True
            while first or (end < size and marked[end] & 0xC0 == 0x80):
                first = False
                byte = np.uint32(np.int32(np.int8(marked[end])))
                value = np.uint32((value ^ byte) * np.uint32(FNV_PRIME))
                end += 1
            if n >= shortest and not (n == 1 and (begin == 0 or end == size)):
                row = words + np.int64(value) % buckets
                for e in range(len(vector)):
                    vector[e] += table[row, e]
                rows += 1
            n += 1
    return rows
