"""Splitting text at spaces, counting and numbering what stands between them, compiled.

A text is bytes; a chunk is what stands between ASCII spaces, a word or a few with punctuation.
Each distinct chunk gets a code. What a chunk means, its words, is worked out once for each distinct
one, in Python: nine in ten running words cost a hash and a comparison.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NEWLINE = -1  # among the codes: a sentence ends here
_START, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
_SHORT_START, _SHORT_PRIME = np.uint32(2166136261), np.uint32(16777619)
_SIGN = np.uint32(0xFFFFFF00)
_compiled = njit(nogil=True, boundscheck=False, cache=True)


@_compiled
def codes(text, begin, slots, hashes, starts, pool, known, into):
    """Code chunks until the text or the space for new ones ends.

    Returns the place reached, how many chunks are known and how many codes were written. Chunk k
    is pool[starts[k]:starts[k + 1]].
    """
    place, written, mask = begin, 0, np.uint64(slots.size - 1)
    while place < text.size:
        byte = text[place]
        if byte == 10:
            into[written] = NEWLINE
            written += 1
            place += 1
            continue
        if byte == 32 or 9 <= byte <= 13:
            place += 1
            continue
        first, value = place, _START
        while place < text.size:
            byte = text[place]
            if byte == 32 or 9 <= byte <= 13:
                break
            value = (value ^ np.uint64(byte)) * _PRIME
            place += 1
        value ^= value >> np.uint64(29)
        length = place - first
        slot = value & mask
        while True:
            code = slots[slot]
            if code < 0:
                if 2 * (known + 1) > slots.size or starts[known] + length > pool.size:
                    return first, known, written
                pool[starts[known] : starts[known] + length] = text[first:place]
                starts[known + 1] = starts[known] + length
                hashes[known] = value
                code = slots[slot] = known
                known += 1
                break
            if hashes[code] == value and starts[code + 1] - starts[code] == length:
                same = True
                for i in range(length):
                    if pool[starts[code] + i] != text[first + i]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + np.uint64(1)) & mask
        into[written] = code
        written += 1
    return place, known, written


@_compiled
def refill(slots, hashes, known) -> None:
    """Place the known chunks in a larger table."""
    mask = np.uint64(slots.size - 1)
    for code in range(known):
        slot = hashes[code] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code


@_compiled
def expand(found, ends, words, counts, longest, length, ids, cuts):
    """Codes to the ids of their words, with a cut after each line and `longest` words.

    `length` words of the open sentence came before. Returns how many ids and cuts were written
    and the length of the sentence that is open now.
    """
    written = cut = 0
    for code in found:
        if code == NEWLINE:
            if length:
                cuts[cut] = written
                cut += 1
            length = 0
            continue
        for place in range(ends[code - 1] if code else 0, ends[code]):
            ids[written] = words[place]
            counts[words[place]] += 1
            written += 1
            length += 1
            if length == longest:
                cuts[cut] = written
                cut += 1
                length = 0
    return written, cut, length


@_compiled
def hashed_ngrams(text, ends, shortest, longest, buckets):
    """The buckets of the n-grams of words already between marks, and where each word's end."""
    limits = np.empty(ends.size, np.int64)
    found = np.empty(max(1, text.size * (longest - shortest + 1)), np.int32)
    total, begin = 0, 0
    for word in range(ends.size):
        end = ends[word]
        for first in range(begin, end):
            if text[first] & 0xC0 == 0x80:
                continue  # inside a character
            value, place, length = _SHORT_START, first, 1
            while place < end and length <= longest:
                while True:
                    byte = np.uint32(text[place])
                    value = np.uint32(
                        (value ^ (byte | (_SIGN if byte > 127 else 0))) * _SHORT_PRIME
                    )
                    place += 1
                    if place >= end or text[place] & 0xC0 != 0x80:
                        break
                mark = length == 1 and (first == begin or place == end)
                if length >= shortest and not mark:
                    found[total] = np.int64(value) % buckets
                    total += 1
                length += 1
        limits[word] = total
        begin = end
    return found[:total].copy(), limits


@_compiled
def join(ids, ends, keys, starts, same, counts, size):
    """Replace pairs by their phrase, in place; how many ids are left, and where sentences end."""
    cuts = np.empty(ends.size, np.int64)
    place = written = 0
    for sentence in range(ends.size):
        while place < ends[sentence]:
            word = np.int64(ids[place])
            place += 1
            if starts[word] and place < ends[sentence]:
                key = word * size + ids[place]
                found = np.searchsorted(keys, key)
                if found < keys.size and keys[found] == key:
                    word = size + found
                    place += 1
            ids[written] = same[word]
            counts[same[word]] += 1
            written += 1
        cuts[sentence] = written
    return written, cuts
