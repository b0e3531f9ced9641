"""fastText's sub-words of many words at once; `weft.embed.subwords` says what they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.embed.subwords import END_OF_SENTENCE, ngram_hashes, word_bytes


def ngrams(word: str, shortest: int, longest: int, buckets: int) -> list[int]:
    """The bucket of each character n-gram of a word, in fastText's order."""
    if word == END_OF_SENTENCE or not buckets:
        return []
    return [value % buckets for value in ngram_hashes(word, shortest, longest)]


def all_ngrams(
    words: Sequence[str], shortest: int, longest: int, buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of every word, one after the other, and where each word's end."""
    from weft.vectors.kernels.scan import hashed_ngrams

    if not buckets or not words:
        return np.empty(0, np.int32), np.zeros(len(words), np.int64)
    # An empty spelling has no n-grams: the loop sees no byte of that word.
    marked = [b"" if word == END_OF_SENTENCE else b"<" + word_bytes(word) + b">" for word in words]
    ends = np.cumsum([len(one) for one in marked], dtype=np.int64)
    text = np.frombuffer(b"".join(marked) or b" ", np.uint8)
    found: tuple[np.ndarray, np.ndarray] = hashed_ngrams(text, ends, shortest, longest, buckets)
    return found


def word_and_ngrams(
    words: Sequence[str], shortest: int, longest: int, buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of fastText's table that each word is the mean of: its own, then its n-grams'."""
    found, ends = all_ngrams(words, shortest, longest, buckets)
    size = len(words)
    starts = np.concatenate([[0], ends[:-1]])
    own = np.arange(size, dtype=np.int32)
    rows = np.insert(found + np.int32(size), starts, own)
    return rows.astype(np.int32), ends + own + 1
