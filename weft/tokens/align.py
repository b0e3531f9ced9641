"""Align sub-words, words and characters of the same text.

All spans are half-open character offsets, (n, 2), in the order of the text.
"""

from typing import NamedTuple

import numpy as np


class TokenRange(NamedTuple):
    """Tokens `first` up to but not including `last`; exact when they cover no other characters."""

    first: int
    last: int
    exact: bool


def align_to_words(subwords: np.ndarray, words: np.ndarray) -> np.ndarray:
    """For each sub-word the word it shares most characters with, or -1; the first one on a tie."""
    out = np.full(len(subwords), -1, dtype=np.int32)
    for i, (start, end) in enumerate(subwords.tolist()):
        first, last = _overlapping(words, start, end)
        if first < last:
            near = words[first:last]
            shared = np.minimum(near[:, 1], end) - np.maximum(near[:, 0], start)
            out[i] = first + int(shared.argmax())
    return out


def token_at(spans: np.ndarray, position: int) -> int:
    """The first token that covers the character at `position`, or -1 where none does."""
    first, last = _overlapping(spans, position, position + 1)
    return first if first < last else -1


def tokens_in(spans: np.ndarray, start: int, end: int) -> TokenRange:
    """The smallest range of tokens that covers every character of [start, end) tokens cover.

    Where no token touches the span the range is empty, and never exact.
    """
    first, last = _overlapping(spans, start, end)
    if first >= last:
        return TokenRange(first, first, False)
    low, high = int(spans[first:last, 0].min()), int(spans[first:last, 1].max())
    return TokenRange(first, last, (low, high) == (start, end))


def _overlapping(spans: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """The range of tokens with at least one character inside [start, end)."""
    if not len(spans) or start >= end:
        return 0, 0
    # Both ends never decrease, so the tokens that overlap lie side by side.
    first = int(np.searchsorted(spans[:, 1], start, side="right"))
    last = int(np.searchsorted(spans[:, 0], end, side="left"))
    return first, max(first, last)
