"""fastText's sub-words: how a word falls into hashed character n-grams, and the sum of their rows.

V words   E width   n rows that a word is made of
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FNV_START, FNV_PRIME = 2166136261, 16777619
END_OF_SENTENCE = "</s>"  # the one word that fastText does not cut into n-grams
_CHARACTER = re.compile(rb"[^\x80-\xbf][\x80-\xbf]*")  # a byte and those that continue it
MIN_COMPILED_WORDS = 20_000  # words from which on compiling the loop, once, is worth its seconds


def word_bytes(word: str) -> bytes:
    """The word in UTF-8; bytes that were none when the word was read come out as they were."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


def fnv1a(letters: bytes, start: int = FNV_START) -> int:
    """Return the 32-bit FNV-1a hash as fastText computes it: bytes above 127 are sign-extended."""
    for byte in letters:
        start = (start ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * FNV_PRIME & 0xFFFFFFFF
    return start


def ngram_hashes(word: str, shortest: int = 3, longest: int = 6) -> list[int]:
    """fastText's hash of each character n-gram of <word>, in fastText's order."""
    letters = _CHARACTER.findall(b"<" + word_bytes(word) + b">")
    hashes = []
    for begin in range(len(letters)):
        value = FNV_START
        for end in range(begin, min(begin + longest, len(letters))):
            value = fnv1a(letters[end], value)
            length = end - begin + 1
            mark = length == 1 and (begin == 0 or end == len(letters) - 1)
            if length >= shortest and not mark:
                hashes.append(value)
    return hashes


@dataclass(frozen=True)
class Subwords:
    """fastText's input table: a row for each of V words, then one for each bucket of n-grams.

    A word's vector is the mean of its own row and the rows of its n-grams; a word that is not in
    the vocabulary has only the latter.
    """

    table: np.ndarray  # (V + buckets, E) float32, possibly memory-mapped
    words: int  # V
    shortest: int = 3
    longest: int = 6

    @property
    def buckets(self) -> int:
        return len(self.table) - self.words

    def rows(self, word: str, row: int | None = None) -> list[int]:
        """The rows of the table that make up a word; `own` is its place in the vocabulary."""
        rows = [] if row is None else [row]
        if word != END_OF_SENTENCE and self.buckets:
            hashes = ngram_hashes(word, self.shortest, self.longest)
            rows += [self.words + value % self.buckets for value in hashes]
        return rows

    def vector(self, word: str, row: int | None = None) -> np.ndarray:
        """The vector of one word, (E,); zeros where nothing is known of it."""
        rows = self.rows(word, row)
        if not rows:
            return np.zeros(self.table.shape[1], np.float32)
        # Row after row in float32 and one product, in fastText's order.
        total: np.ndarray = np.asarray(self.table[rows], np.float32).sum(axis=0, dtype=np.float32)
        mean: np.ndarray = total * np.float32(1 / len(rows))
        return mean

    def compose(self, words: Sequence[str]) -> np.ndarray:
        """The vectors of the whole vocabulary, (V, E)."""
        if len(words) < MIN_COMPILED_WORDS:
            vectors = [self.vector(word, row) for row, word in enumerate(words)]
            return np.stack(vectors) if vectors else np.zeros((0, self.table.shape[1]), np.float32)
        from weft.embed.subword_kernels import compose

        letters = [word_bytes(word) for word in words]
        ends = np.cumsum([len(word) for word in letters])
        uncut = np.array([word == END_OF_SENTENCE for word in words])
        table = np.asarray(self.table)  # a plain view: mapped, it is read where it lies
        text = np.frombuffer(b"".join(letters), np.uint8)
        out = np.zeros((len(words), table.shape[1]), np.float32)  # (V, E)
        compose(text, ends, uncut, table, self.words, self.shortest, self.longest, out)
        return out
