"""Words of a text as 64-bit hashes, and the rows of its words and n-grams, compiled.

A word is known by its hash alone: among a million words two share one with a chance of 3 in 10⁸.
N texts   S slots of the table of words
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

SPACE, LETTER, MARK, LONG = 0, 1, 2, 3  # LONG: a byte of a character that takes several
_START, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # 64-bit FNV-1a
_ROLL = np.uint64(0x9E3779B97F4A7C15)
_29, _32 = np.uint64(29), np.uint64(32)
compiled = njit(nogil=True, boundscheck=False, cache=True)


class Tokens(NamedTuple):
    """The words of some texts: their hashes, the bytes they stand at, and where texts end."""

    text: np.ndarray  # uint8
    hashes: np.ndarray  # (T,) uint64, never 0
    starts: np.ndarray  # (T,) int32
    stops: np.ndarray  # (T,) int32
    ends: np.ndarray  # (N,) int64: where each text ends among the words


class Lookup(NamedTuple):
    """The row of each word or n-gram; -1 if training did not keep it."""

    keys: np.ndarray  # (S,) uint64 hashes of words, 0 where a slot is free
    rows: np.ndarray  # (S,) int32
    buckets: np.ndarray  # int32: the row of each bucket of n-grams
    order: int  # longest run of words
    shortest: int  # run of letters
    longest: int  # 0: no runs of letters
    lower: np.ndarray  # (256,) uint8: a byte as it is hashed


@compiled
def _character(text: Any, place: int) -> tuple[int, int]:
    """The code point of a UTF-8 character of several bytes, and their number."""
    byte = np.int64(text[place])
    if byte >= 0xF0:
        size, point = 4, byte & 7
    elif byte >= 0xE0:
        size, point = 3, byte & 15
    else:
        size, point = 2, byte & 31
    for ahead in range(1, size):
        point = point << 6 | np.int64(text[place + ahead] & 63)
    return point, size


@compiled
def hashed(text, limits, kinds, lower, tokens) -> int:  # type: ignore[no-untyped-def]
    """Fill `tokens` with the words of texts that end at `limits`; how many there are.

    A word is a run of letters, digits and underscores, or one mark. Beyond ASCII, `kinds` says
    what a code point is, and the text comes lower-cased.
    """
    count = place = 0
    for number in range(limits.size):
        limit = limits[number]
        while place < limit:
            byte, size = text[place], 1
            kind = kinds[byte] if byte < 128 else LONG
            if kind == LONG:
                point, size = _character(text, place)
                kind = kinds[point]
            if kind == SPACE:
                place += size
                continue
            tokens.starts[count] = place
            value = _START
            while True:
                for _ in range(size):
                    value = (value ^ np.uint64(lower[text[place]])) * _PRIME
                    place += 1
                if kind == MARK or place >= limit:
                    break
                byte, size = text[place], 1
                kind = kinds[byte] if byte < 128 else LONG
                if kind == LONG:
                    point, size = _character(text, place)
                    kind = kinds[point]
                if kind != LETTER:
                    break
            value ^= value >> _29
            tokens.hashes[count] = max(value, np.uint64(1))
            tokens.stops[count] = place
            count += 1
        tokens.ends[number] = count
    return count


@compiled
def _slot(keys, value):  # type: ignore[no-untyped-def]
    """Return the slot of a hash in the table, or the free one where it belongs."""
    mask = np.uint64(keys.size - 1)
    slot = (value ^ value >> _32) & mask
    while keys[slot] != 0 and keys[slot] != value:
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def count(hashes, begin, keys, counts, known):  # type: ignore[no-untyped-def]
    """Count words until the table is half full; the place reached and how many are known."""
    for place in range(begin, hashes.size):
        slot = _slot(keys, hashes[place])
        if keys[slot] == 0:
            if 2 * (known + 1) > keys.size:
                return place, known
            keys[slot] = hashes[place]
            known += 1
        counts[slot] += 1
    return hashes.size, known


@compiled
def fill(keys, values, found, numbers) -> None:  # type: ignore[no-untyped-def]
    """Put words and their numbers into an empty table."""
    for i in range(found.size):
        slot = _slot(keys, found[i])
        keys[slot] = found[i]
        values[slot] = numbers[i]


@compiled
def _bucket(value, buckets) -> int:  # type: ignore[no-untyped-def]
    value = (value ^ value >> _32) * _ROLL
    return np.int64((value >> _32) * np.uint64(buckets) >> _32)


@compiled
def _pieces(tokens, place, lookup, into, written) -> int:  # type: ignore[no-untyped-def]
    """Write the buckets of the runs of letters in <word>; how many numbers are written now."""
    start, stop, text = tokens.starts[place], tokens.stops[place], tokens.text
    for first in range(start - 1, stop + 1):
        if start <= first < stop and text[first] & 0xC0 == 0x80:
            continue  # inside a character
        value, at, length = _START, first, 0
        while at <= stop and length < lookup.longest:
            byte = 60 if at < start else 62 if at == stop else lookup.lower[text[at]]  # < and >
            value = (value ^ np.uint64(byte)) * _PRIME
            at += 1
            if start < at < stop and text[at] & 0xC0 == 0x80:
                continue
            length += 1
            edge = length == 1 and (first < start or at > stop)
            if length >= lookup.shortest and not edge:
                into[written] = _bucket(value, lookup.buckets.size)
                written += 1
    return written


@compiled
def _runs(tokens, begin, place, lookup, into, written) -> int:  # type: ignore[no-untyped-def]
    """Write the buckets of the runs of words that end at `place`."""
    value = tokens.hashes[place]
    for back in range(1, min(lookup.order, place - begin + 1)):
        value = value * _ROLL + tokens.hashes[place - back]
        into[written] = _bucket(value, lookup.buckets.size)
        written += 1
    return written


@compiled
def count_buckets(tokens, lookup, room, counts) -> None:  # type: ignore[no-untyped-def]
    """Count the n-grams of texts by bucket."""
    into = np.empty(room, np.int64)
    begin = 0
    for end in tokens.ends:
        for place in range(begin, end):
            written = _runs(tokens, begin, place, lookup, into, 0)
            if lookup.longest:
                written = _pieces(tokens, place, lookup, into, written)
            for i in range(written):
                counts[into[i]] += 1
        begin = end


@compiled
def features(tokens, lookup, room, rows, owners, ends) -> int:  # type: ignore[no-untyped-def]
    """Write the known rows of each text, and where those of a text end; how many there are.

    Where `owners` has room, it gets the last word of each row and how many words it covers.
    """
    into = np.empty(room, np.int64)
    begin = total = 0
    for number in range(tokens.ends.size):
        end = tokens.ends[number]
        for place in range(begin, end):
            row = lookup.rows[_slot(lookup.keys, tokens.hashes[place])]
            if row >= 0:
                rows[total] = row
                if owners.size:
                    owners[total, 0], owners[total, 1] = place, 1
                total += 1
            if not lookup.buckets.size:
                continue
            middle = _runs(tokens, begin, place, lookup, into, 0)
            written = middle
            if lookup.longest:
                written = _pieces(tokens, place, lookup, into, written)
            for i in range(written):
                row = lookup.buckets[into[i]]
                if row >= 0:
                    rows[total] = row
                    if owners.size:
                        owners[total, 0], owners[total, 1] = place, i + 2 if i < middle else 1
                    total += 1
        ends[number] = total
        begin = end
    return total
