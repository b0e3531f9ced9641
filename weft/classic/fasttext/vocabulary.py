"""Texts to rows of words and hashed n-grams: the vocabulary of `fasttext`, learned and applied.

N texts   T words   R rows: V words and the buckets that training met
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from weft.classic.linear.tfidf_vectorizer import TOKEN, origins
from weft.machine import available_cpus

if TYPE_CHECKING:
    from weft.classic.fasttext.hashing import Lookup, Tokens

CHUNK_TEXTS = 1 << 18  # characters that a thread reads at a time, about

Out = TypeVar("Out")


@dataclass(frozen=True)
class Rows:
    """The rows of some texts, one after the other, and where those of each text end."""

    rows: np.ndarray  # int32
    ends: np.ndarray  # (N,) int64


class FastTextVocabulary:
    """Texts to rows: words with at least `minimum` occurrences, and hashed n-grams."""

    def __init__(
        self, order: int, buckets: int, minimum: int, shortest: int, longest: int, lowercase: bool
    ) -> None:
        self.order, self.shortest, self.longest = order, shortest, longest
        self.minimum, self.lowercase = minimum, lowercase
        self.size = buckets if order > 1 or longest else 0
        self.is_word = np.empty(0, bool)  # (R,), else it is a bucket; frequent ones first
        self.words = np.empty(0, np.uint64)  # (V,) hashes, in the order of their rows
        self.buckets = np.empty(0, np.int32)  # (R − V,) likewise
        self._lookup: Lookup | None = None
        self._sorted: np.ndarray | None = None  # the words, for looking them up

    def learn(self, texts: Sequence[str]) -> Rows:
        """Take words and buckets from the training texts, and give their rows."""
        parts = in_parallel(self._kept_tokens, list(chunks(texts)))
        words, buckets = _count_words([part.hashes for part in parts]), self._met(parts)
        counts = np.concatenate([words[1], buckets[1]])
        kept = np.flatnonzero(counts >= self.minimum)
        # Frequent rows first, so that they share the nearest memory; words before buckets.
        found = np.concatenate([words[0], buckets[0].astype(np.uint64)])
        kept = kept[np.lexsort((found[kept], kept >= len(words[0]), -counts[kept]))]
        self.is_word = kept < len(words[0])
        self.words = found[kept[self.is_word]]
        self.buckets = found[kept[~self.is_word]].astype(np.int32)
        self._lookup = self._sorted = None
        self.lookup()
        return _concatenate(in_parallel(self._rows, parts))

    def restore(self, is_word: np.ndarray, words: np.ndarray, buckets: np.ndarray) -> bool:
        """Take what `learn` found in an earlier life; whether that is possible."""
        self.is_word, self.words, self.buckets = is_word.astype(bool), words, buckets
        self._lookup = self._sorted = None
        fits = not len(buckets) or 0 <= buckets.min() <= buckets.max() < self.size
        fits = fits and len(words) == self.is_word.sum() == len(is_word) - len(buckets)
        return bool(fits and words.all() and len(np.unique(words)) == len(words))

    def rows(self, texts: Sequence[str]) -> Rows:
        """The rows of new texts; what training did not keep is left out."""
        return self._rows(self._tokens(texts))

    def coverage(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) The fraction of each text's words that have a row or are spelled; 0 without one."""
        tokens = self._tokens(texts)
        if self._sorted is None:
            self._sorted = np.sort(self.words)
        known = np.ones(len(tokens.hashes))
        if not self.longest:
            places = np.searchsorted(self._sorted, tokens.hashes).clip(max=len(self._sorted) - 1)
            known = (self._sorted[places] == tokens.hashes).astype(float)
        ends = tokens.ends
        sums = np.concatenate([[0.0], np.cumsum(known)])[np.concatenate([[0], ends])]
        sizes = np.diff(np.concatenate([[0], ends]))
        return np.diff(sums) / np.maximum(sizes, 1)

    def text_rows(self, text: str) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
        """The rows of one text, the words of each, and where the words stand in the text.

        The words of a row are its last one and their number (rows, 2).
        """
        from weft.classic.fasttext.hashing import features

        tokens = self._tokens([text])
        size = self._most(tokens)
        rows, owners, ends = (
            np.empty(size, np.int32),
            np.empty((size, 2), np.int32),
            np.empty(1, np.int64),
        )
        total = features(tokens, self.lookup(), self._room(tokens), rows, owners, ends)
        lowered = text.lower() if self.lowercase else text
        origin = origins(text, lowered)
        spans = [
            (origin[match.start()], origin[match.end() - 1] + 1)
            for match in TOKEN.finditer(lowered)
        ]
        return rows[:total], owners[:total], spans

    def __len__(self) -> int:
        return len(self.is_word)

    def _tokens(self, texts: Sequence[str]) -> Tokens:
        from weft.classic.fasttext.hashing import Tokens, hashed

        text, limits, plain = encode_texts(texts, self.lowercase)
        tokens = Tokens(
            text,
            np.empty(len(text), np.uint64),
            np.empty(len(text), np.int32),
            np.empty(len(text), np.int32),
            np.empty(len(texts), np.int64),
        )
        count = hashed(text, limits, kinds(plain), lower(self.lowercase), tokens)
        hashes, starts, stops = (part[:count] for part in tokens[1:4])
        return Tokens(text, hashes, starts, stops, tokens.ends)

    def _kept_tokens(self, texts: Sequence[str]) -> Tokens:
        """The same in no more memory than it takes; of texts, hashes of words may be enough."""
        from weft.classic.fasttext.hashing import Tokens

        tokens = self._tokens(texts)
        hashes, starts, stops = (part.copy() for part in tokens[1:4])
        if self.longest:
            return tokens._replace(hashes=hashes, starts=starts, stops=stops)
        none, nothing = np.empty(0, np.int32), np.frombuffer(b" ", np.uint8)
        return Tokens(nothing, hashes, none, none, tokens.ends)

    def _met(self, parts: Sequence[Tokens]) -> tuple[np.ndarray, np.ndarray]:
        """The buckets that n-grams fall into, and how many do."""
        from weft.classic.fasttext.hashing import Lookup, count_buckets

        counts = np.zeros(self.size, np.int32)
        lookup = Lookup(
            np.zeros(1, np.uint64), np.full(1, -1, np.int32), np.empty(self.size, np.int32),
            self.order, self.shortest, self.longest, lower(self.lowercase),
        )  # fmt: skip
        for part in parts if self.size else ():
            count_buckets(part, lookup, self._room(part), counts)
        met = np.flatnonzero(counts).astype(np.int32)
        return met, counts[met]

    def lookup(self) -> Lookup:
        """The tables that a text is looked up in, made when they are first needed."""
        from weft.classic.fasttext.hashing import Lookup, fill

        if self._lookup is None:
            slots = 1 << max(1, 2 * len(self.words)).bit_length()
            keys, rows = np.zeros(slots, np.uint64), np.full(slots, -1, np.int32)
            fill(keys, rows, self.words, np.flatnonzero(self.is_word))
            buckets = np.full(self.size, -1, np.int32)
            buckets[self.buckets] = np.flatnonzero(~self.is_word)
            rest = (self.order, self.shortest, self.longest, lower(self.lowercase))
            self._lookup = Lookup(keys, rows, buckets, *rest)
        return self._lookup

    def _room(self, tokens: Tokens) -> int:
        """Return the largest number of n-grams of one word."""
        if not self.longest:
            return self.order
        longest = int((tokens.stops - tokens.starts).max(initial=0))
        return self.order + (longest + 2) * (self.longest - self.shortest + 1)

    def _most(self, tokens: Tokens) -> int:
        """Return an upper bound on the rows of some texts."""
        size = len(tokens.hashes) * self.order
        if self.longest:
            letters = len(tokens.text) + 2 * len(tokens.hashes)
            size += letters * (self.longest - self.shortest + 1)
        return size

    def _rows(self, tokens: Tokens) -> Rows:
        from weft.classic.fasttext.hashing import features

        rows, ends = np.empty(self._most(tokens), np.int32), np.empty(len(tokens.ends), np.int64)
        empty = np.empty((0, 2), np.int32)
        total = features(tokens, self.lookup(), self._room(tokens), rows, empty, ends)
        return Rows(rows[:total].copy(), ends)


def _count_words(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct hashes and how often each occurs."""
    from weft.classic.fasttext.hashing import count, fill

    keys, counts = np.zeros(1 << 16, np.uint64), np.zeros(1 << 16, np.int64)
    known = 0
    for hashes in parts:
        place = 0
        while True:
            place, known = count(hashes, place, keys, counts, known)
            if place == len(hashes):
                break
            full = np.flatnonzero(keys)
            found, numbers = keys[full], counts[full]
            keys, counts = np.zeros(4 * len(keys), np.uint64), np.zeros(4 * len(keys), np.int64)
            fill(keys, counts, found, numbers)
    full = np.flatnonzero(keys)
    return keys[full], counts[full]


def encode_texts(texts: Sequence[str], lowercase: bool) -> tuple[np.ndarray, np.ndarray, bool]:
    """Texts as bytes, where each ends, and whether all are ASCII; others come lower-cased."""
    whole = "".join(texts)
    plain = whole.isascii()
    if plain:
        data, lengths = whole.encode(), [len(text) for text in texts]
    else:
        # Half a surrogate pair has a spelling too.
        each = [
            text.encode()
            if text.isascii()
            else (text.lower() if lowercase else text).encode("utf-8", "surrogatepass")
            for text in texts
        ]
        data, lengths = b"".join(each), [len(text) for text in each]
    return np.frombuffer(data or b" ", np.uint8), np.cumsum(lengths, dtype=np.int64), plain


@cache
def kinds(plain: bool) -> np.ndarray:
    """Return the class of each character: space, letter (digit, underscore) or mark."""
    points = np.arange(128 if plain else 0x110000, dtype=np.uint32).view("U1")
    letters = np.char.isalnum(points)
    letters[ord("_")] = True
    return np.where(letters, 1, np.where(np.char.isspace(points), 0, 2)).astype(np.uint8)


@cache
def lower(lowercase: bool) -> np.ndarray:
    """Each byte as it is hashed."""
    table = np.arange(256, dtype=np.uint8)
    if lowercase:
        table[65:91] += 32
    return table


def chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of texts of about CHUNK characters."""
    first = size = 0
    for i, text in enumerate(texts):
        size += len(text)
        if size >= CHUNK_TEXTS:
            yield texts[first : i + 1]
            first, size = i + 1, 0
    if first < len(texts):
        yield texts[first:]


def in_parallel(work: Callable[..., Out], parts: Sequence) -> list[Out]:
    """The work on each part, in order, by as many threads as there are processors."""
    if len(parts) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(available_cpus()) as pool:
        return list(pool.map(work, parts))


def _concatenate(parts: list[Rows]) -> Rows:
    if not parts:
        return Rows(np.empty(0, np.int32), np.empty(0, np.int64))
    sizes = np.cumsum([0, *(len(part.rows) for part in parts[:-1])])
    ends = [part.ends + size for part, size in zip(parts, sizes, strict=True)]
    return Rows(np.concatenate([part.rows for part in parts]), np.concatenate(ends))
