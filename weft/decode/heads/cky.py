"""Compiled: the best binary bracketing of a sentence. Imported only when it is to run.

Spans of a sentence of n words lie flat, row by row: (0, 1), (0, 2) … (0, n), (1, 2) … (n-1, n).
"""

import numpy as np
from numba import njit

from weft.errors import UserError

MAX_WORDS = 2500  # words: n²/2 spans to score, and time for the search that grows with the cube

_compile_fast = njit(nogil=True, cache=True, boundscheck=False, fastmath={"nnan", "nsz", "reassoc"})
_compile_exact = njit(nogil=True, cache=True, boundscheck=False)


def span_count(n: int) -> int:
    """How many spans n words have; a UserError where they are too many to be searched."""
    if n > MAX_WORDS:
        raise UserError(
            f"A sentence of {n:,} words is too long for constituency parsing, which stops at "
            f"{MAX_WORDS:,}. Split it into sentences."
        )
    return n * (n + 1) // 2


def best_tree(scores: np.ndarray, n: int) -> np.ndarray:
    """The flat places (2n - 1,) of the spans of the best binary tree; the whole sentence first."""
    assert scores.shape == (span_count(n),)
    if not n:
        return np.zeros(0, dtype=np.int64)
    places = np.empty(2 * n - 1, dtype=np.int64)
    if not _fill_tree(np.ascontiguousarray(scores, dtype=np.float64), n, places):
        raise UserError(
            "The parser's scores hold numbers that are not finite (nan or inf): the training has "
            "diverged. Train again with a lower learning rate."
        )
    return places


@_compile_exact
def _fill_tree(scores, n, places):  # type: ignore[no-untyped-def]
    """Bottom up over span ends; the table is kept both ways round, so that loops run along memory.

    Only the best totals are kept: the few split points of the best tree are found again.
    """
    for value in scores:
        if not np.isfinite(value):
            return False
    by_start, by_end = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    for start in range(n - 1, -1, -1):
        row = start * n - start * (start - 1) // 2 - start - 1  # place of (start, end), less end
        by_start[start, start + 1] = by_end[start + 1, start] = scores[row + start + 1]
        for end in range(start + 2, n + 1):
            total = _max_sum(by_start[start], by_end[end], start + 1, end) + scores[row + end]
            by_start[start, end] = by_end[end, start] = total
    stack = np.empty((n + 1, 2), np.int64)
    stack[0, 0], stack[0, 1], held = 0, n, 1
    for place in range(2 * n - 1):
        held -= 1
        start, end = stack[held]
        places[place] = start * n - start * (start - 1) // 2 - start - 1 + end
        if end - start == 1:
            continue
        split = start + 1
        for k in range(start + 2, end):
            if by_start[start, k] + by_end[end, k] > by_start[start, split] + by_end[end, split]:
                split = k
        stack[held, 0], stack[held, 1] = split, end
        stack[held + 1, 0], stack[held + 1, 1] = start, split
        held += 2
    return True


@_compile_fast
def _max_sum(a, b, start, stop):  # type: ignore[no-untyped-def]
    """The largest a[k] + b[k]."""
    top = a[start] + b[start]
    for k in range(start + 1, stop):
        top = max(top, a[k] + b[k])
    return top
