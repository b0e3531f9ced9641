"""CKY search for the best binary tree of a sentence, compiled by Numba. Import it only to run it.

Spans of a sentence of n words lie flat, row by row: (0, 1), (0, 2) … (0, n), (1, 2) … (n-1, n).
"""

import numpy as np

from weft.errors import UserError
from weft.kernels.cpu.loops import compile_loop

MAX_WORDS = 2500  # n²/2 spans to score, and cubic search time

_compile_fast = compile_loop(
    nogil=True, cache=True, boundscheck=False, fastmath={"nnan", "nsz", "reassoc"}
)
_compile_exact = compile_loop(nogil=True, cache=True, boundscheck=False)


def span_count(n: int) -> int:
    """Return the number of spans of n words; raise a UserError above MAX_WORDS."""
    if n > MAX_WORDS:
        raise UserError(
            f"A sentence of {n:,} words is too long for constituency parsing (limit "
            f"{MAX_WORDS:,}). Split it into sentences."
        )
    return n * (n + 1) // 2


def best_tree(scores: np.ndarray, n: int) -> np.ndarray:
    """Return the flat indices (2n - 1,) of the best binary tree's spans, the sentence first."""
    assert scores.shape == (span_count(n),)
    if not n:
        return np.zeros(0, dtype=np.int64)
    indices = np.empty(2 * n - 1, dtype=np.int64)
    if not _fill_tree(np.ascontiguousarray(scores, dtype=np.float64), n, indices):
        raise UserError(
            "The parser's scores are not finite (nan or inf): training has diverged. "
            "Train again with a lower learning rate."
        )
    return indices


@_compile_exact
def _fill_tree(scores, n, indices):  # type: ignore[no-untyped-def]
    """Fill the chart bottom-up and write the best tree; False if a score is not finite.

    The chart is stored by start and by end, so that inner loops are contiguous in memory. Only
    the best totals are stored: the few split points of the best tree are recomputed.
    """
    for value in scores:
        if not np.isfinite(value):
            return False
    by_start, by_end = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    for start in range(n - 1, -1, -1):
        row = start * n - start * (start - 1) // 2 - start - 1  # index of (start, end), minus end
        by_start[start, start + 1] = by_end[start + 1, start] = scores[row + start + 1]
        for end in range(start + 2, n + 1):
            total = _max_sum(by_start[start], by_end[end], start + 1, end) + scores[row + end]
            by_start[start, end] = by_end[end, start] = total
    stack = np.empty((n + 1, 2), np.int64)
    stack[0, 0], stack[0, 1], size = 0, n, 1
    for i in range(2 * n - 1):
        size -= 1
        start, end = stack[size]
        indices[i] = start * n - start * (start - 1) // 2 - start - 1 + end
        if end - start == 1:
            continue
        split = start + 1
        for k in range(start + 2, end):
            if by_start[start, k] + by_end[end, k] > by_start[start, split] + by_end[end, split]:
                split = k
        stack[size, 0], stack[size, 1] = split, end
        stack[size + 1, 0], stack[size + 1, 1] = start, split
        size += 2
    return True


@_compile_fast
def _max_sum(a, b, start, stop):  # type: ignore[no-untyped-def]
    """Return the largest a[k] + b[k]."""
    top = a[start] + b[start]
    for k in range(start + 1, stop):
        top = max(top, a[k] + b[k])
    return top
