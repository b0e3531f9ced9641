"""Distinct chunks of text, what stands between spaces, and the words in each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

MAX_CACHED_CHUNKS = (
    1 << 21
)  # chunks remembered; text without spaces would fill the memory with them

# What `word_pattern.words` does to ASCII; the general expression is several times slower.
_ASCII_WORDS = re.compile(
    r"[A-Za-z0-9]+(?:(?:(?<=[A-Za-z])'(?=[A-Za-z])|(?<=[0-9])[.,](?=[0-9]))[A-Za-z0-9]+)*|\S",
    re.ASCII,
)


class NotText(Exception):
    """A chunk that is not UTF-8, or has a NUL in it."""

    def __init__(self, chunk: bytes) -> None:
        super().__init__(chunk)
        self.chunk = chunk


class Chunks:
    """Numbers words as it reads: the first word read is 0, the next new one 1, and so on."""

    def __init__(self, words: Literal["whitespace", "words"], lowercase: bool) -> None:
        self.numbers: dict[str, int] = {}
        self.total = 0
        self.open = 0  # words of the sentence that no line end has closed
        self.counts = np.zeros(1 << 10, np.int64)  # room for more than there are words
        self._whole = words == "whitespace"
        self._lowercase = lowercase
        self._general = _general(self._whole, lowercase)
        self._forget()

    def read(self, text: bytes, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of a text's words, and where its sentences end among them."""
        from weft.vectors.kernels.scan import expand

        if self._known > MAX_CACHED_CHUNKS:
            self._forget()
        found = self._codes(np.frombuffer(text, np.uint8))
        self._learn()
        ends, words = self._ends[: self._known], self._words
        lengths = np.diff(ends, prepend=0)
        size = int(lengths[found[found >= 0]].sum())
        ids = np.empty(size, np.int32)
        cuts = np.empty(len(found) + size // longest + 1, np.int64)
        if len(self.numbers) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(2 * len(self.numbers), np.int64)])
        written, cut, self.open = expand(
            found, ends, words, self.counts, longest, self.open, ids, cuts
        )
        self.total += written
        return ids, cuts[:cut]

    def _forget(self) -> None:
        self._known = self._learnt = 0
        self._slots = np.full(1 << 16, -1, np.int32)
        self._hashes = np.empty(1 << 15, np.uint64)
        self._starts = np.zeros((1 << 15) + 1, np.int64)
        self._pool = np.empty(1 << 19, np.uint8)
        self._ends = np.empty(0, np.int64)
        self._words = np.empty(0, np.int32)

    def _codes(self, text: np.ndarray) -> np.ndarray:
        """A code for each chunk and line end of the text, growing the table when it is full."""
        from weft.vectors.kernels.scan import codes

        into = np.empty(len(text) + 1, np.int32)
        place = written = 0
        while True:
            place, self._known, more = codes(
                text, place, self._slots, self._hashes, self._starts, self._pool,
                self._known, into[written:],
            )  # fmt: skip
            written += more
            if place >= len(text):
                return into[:written]
            self._grow(len(text) - place)

    def _grow(self, left: int) -> None:
        from weft.vectors.kernels.scan import refill

        if 2 * (self._known + 1) > len(self._slots):
            size = 2 * len(self._slots)
            self._slots = np.full(size, -1, np.int32)
            self._hashes = np.resize(self._hashes, size // 2)
            self._starts = np.resize(self._starts, size // 2 + 1)
            refill(self._slots, self._hashes, self._known)
        else:
            # A chunk may be as long as what is left.
            self._pool = np.resize(self._pool, 2 * len(self._pool) + left)

    def _learn(self) -> None:
        """The words of the chunks that are new."""
        first, self._learnt = self._learnt, self._known
        if first == self._known:
            return
        pool = self._pool.tobytes()
        starts = self._starts[first : self._known + 1].tolist()
        numbers, words, ends = self.numbers, [], []
        done = len(self._words)
        for begin, end in itertools.pairwise(starts):
            chunk = pool[begin:end]
            try:
                text = chunk.decode()
            except UnicodeDecodeError as error:
                raise NotText(chunk) from error
            if "\0" in text:
                raise NotText(chunk)
            for word in self._cut(text):
                words.append(numbers.setdefault(word, len(numbers)))
            ends.append(done + len(words))
        self._words = np.concatenate([self._words, np.array(words, np.int32)])
        self._ends = np.concatenate([self._ends, np.array(ends, np.int64)])

    def _cut(self, chunk: str) -> list[str]:
        if not chunk.isascii():
            return self._general(chunk)
        if self._lowercase:
            chunk = chunk.lower()
        return [chunk] if self._whole or chunk.isalnum() else _ASCII_WORDS.findall(chunk)


def _general(whole: bool, lowercase: bool) -> Callable[[str], list[str]]:
    """Cut as the `word` tokenizer does, spaces beyond ASCII's included."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    from weft.tokens import word_pattern
    from weft.tokens.word import normalise

    raw: Any = Tokenizer(WordLevel(unk_token=""))
    normalise(raw, "none" if whole else "nfc", lowercase)
    cut = Split(Regex(r"\S++" if whole else word_pattern.word_regex()), "removed", invert=True)

    def words(chunk: str) -> list[str]:
        text = raw.normalizer.normalize_str(chunk) if raw.normalizer else chunk
        return [word for word, _ in cut.pre_tokenize_str(text)]

    return words
