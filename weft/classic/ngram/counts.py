"""Counts of all n-grams up to an order, by sorting the positions of a text.

The places where a word begins are sorted by that word, then within each run by the next word, and
so on: what is equal lies side by side, nothing is hashed, and no n-gram is ever copied.
M n-grams   N the order   V words of the vocabulary, which are the first V n-grams
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weft.classic.ngram import kernels as kernels
from weft.errors import UserError
from weft.machine import available_cpus
from weft.tokens.vocabulary import BOS, CLS, EOS, MASK, PAD, SEP, UNK, Vocabulary

LARGEST = 2**31 - 2  # places and nodes are numbered with 32 bits
Sentences = Iterable[np.ndarray | Sequence[int]]


@dataclass(frozen=True)
class Marks:
    """The ids that mean something else than a word: what a sentence begins and ends with, and PAD.

    `others` are ids of the vocabulary that are never predicted either (<cls>, <mask>, …).
    """

    pad: int = 0
    unk: int = 1
    bos: int = 2
    eos: int = 3
    others: tuple[int, ...] = ()

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "Marks":
        """The marks of a vocabulary, which must have <pad>, <unk>, <bos> and <eos>."""
        pad, unk, bos, eos = (vocabulary.id(name) for name in (PAD, UNK, BOS, EOS))
        others = tuple(vocabulary.id(name) for name in (CLS, SEP, MASK) if name in vocabulary)
        return cls(pad, unk, bos, eos, others)

    @property
    def silent(self) -> tuple[int, ...]:
        """Ids that no model of text predicts."""
        return (self.pad, self.bos, *self.others)


@dataclass(frozen=True)
class Counts:
    """A trie of n-grams: order after order, the children of a node side by side."""

    words: np.ndarray  # (M,) int32: the last word of each n-gram
    counts: np.ndarray  # (M,) int32
    first: np.ndarray  # (I + 1,) int32: where the children of each n-gram below order N begin
    starts: tuple[int, ...]  # (N + 1,) where each order begins, and M
    marks: Marks

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """The vocabulary size."""
        return self.starts[1]

    @property
    def predicted(self) -> int:
        """The number of words that can occur in a text and so share the probability mass."""
        return self.size - len(set(self.marks.silent))

    def span(self, order: int) -> slice:
        """The n-grams of one order."""
        return slice(self.starts[order - 1], self.starts[order])

    def seen(self, order: int) -> int:
        """Return the number of distinct n-grams of an order."""
        return int(np.count_nonzero(self.counts[self.span(order)]))

    def shorter(self) -> np.ndarray:
        """(M,) int32: each n-gram without its first word; −1 for those of order 1."""
        links = np.full(len(self.words), -1, dtype=np.int32)
        if self.order > 1:
            links[self.span(2)] = self.words[self.span(2)]
        for order in range(2, self.order):
            begin, end = self.starts[order - 1 : order + 1]
            in_parallel(
                lambda a, b: kernels.link(self.words, self.first, links, a, b),
                shared_prefix(self.first, begin, end),
            )
        return links


def count(sentences: Sentences, size: int, order: int = 5, marks: Marks = Marks()) -> Counts:  # noqa: B008 -- frozen
    """Count all n-grams of up to `order` words in sentences of ids below `size`.

    The marks of a sentence's begin and end are added here and may not be in it. The order is lower
    where no sentence is long enough.
    """
    if order < 1:
        raise UserError(f"The order of an n-gram model is {order}; it must be at least 1.")
    flat, ends = concatenate_sentences(sentences, size, marks)
    if not len(ends):
        raise UserError("There are no sentences to count n-grams in. Give at least one.")
    if len(flat) + 2 * len(ends) > LARGEST:
        raise UserError(f"{len(flat):,} words are too many to count; at most {LARGEST:,} fit.")
    ids = np.empty(len(flat) + 2 * len(ends), dtype=np.int32)
    kernels.framed(flat, np.diff(ends, prepend=0), marks.bos, marks.eos, ids)
    return _together(_parts(ids, size, order, marks.eos), marks)


@dataclass(frozen=True)
class _Part:
    """The n-grams that begin with some of the words, a list with one array for each order."""

    words: list[np.ndarray]
    counts: list[np.ndarray]
    first: list[np.ndarray]  # each begins at 0; the highest order has none


def _parts(ids: np.ndarray, size: int, order: int, eos: int) -> list[_Part]:
    """The n-grams of a stream, the first words shared out among the processors."""
    own = np.bincount(ids, minlength=size).astype(np.int32)
    ends = np.cumsum(own)
    places = kernels.by_word(ids, ends)
    parts = [_Part([words], [own[words]], []) for words in _split(ends, available_cpus())]
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(lambda part: _grow(part, ids, places, ends - own, order, eos), parts))
    return parts


def _grow(
    part: _Part, ids: np.ndarray, places: np.ndarray, starts: np.ndarray, order: int, eos: int
) -> None:
    """Add all orders above the first."""
    starts = starts[part.words[0]].astype(np.int32)
    for depth in range(1, order):
        nodes = (starts, part.counts[-1], part.words[-1])
        words, counts, starts, first = kernels.refine(ids, places, *nodes, depth, eos)
        part.words.append(words)
        part.counts.append(counts)
        part.first.append(first)


def _split(ends: np.ndarray, parts: int) -> list[np.ndarray]:
    """Words 0 … V − 1 in consecutive pieces that occur about equally often together."""
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts)
    return np.split(np.arange(len(ends), dtype=np.int32), cuts)


def _together(parts: list[_Part], marks: Marks) -> Counts:
    """One trie of those of the threads; takes the arrays away from them, to hold nothing twice."""
    levels = zip(*(part.words for part in parts), strict=True)
    sizes = [size for level in levels if (size := sum(map(len, level)))]  # some have no long ones
    starts = [0, *np.cumsum(sizes).tolist()]
    if starts[-1] > LARGEST:
        raise UserError(f"{starts[-1]:,} n-grams are too many. Lower the order.")
    first = np.empty(starts[-2] + 1, dtype=np.int32)
    at, child = 0, starts[1]
    for level in range(len(sizes) - 1):
        for part in parts:
            own = part.first[level]
            first[at : at + len(own) - 1] = own[:-1] + np.int32(child)
            at, child = at + len(own) - 1, child + int(own[-1])
            part.first[level] = own[:0]
    first[at] = starts[-1]
    words = _taken([part.words for part in parts])
    counts = _taken([part.counts for part in parts])
    return Counts(words, counts, first, tuple(starts), marks)


def _taken(lists: list[list[np.ndarray]]) -> np.ndarray:
    """The arrays of all lists in one, the first of each before the second; the lists end empty."""
    out = np.concatenate([array for level in zip(*lists, strict=True) for array in level])
    for each in lists:
        each.clear()
    return out


def concatenate_sentences(
    sentences: Sentences, size: int, marks: Marks
) -> tuple[np.ndarray, np.ndarray]:
    """All ids in one array, and where each sentence ends; a UserError for ids that cannot be."""
    rows = [np.asarray(row, dtype=np.int32) for row in sentences]
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    flat = np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)
    wrong = (flat < 0) | (flat >= size) | np.isin(flat, [*marks.silent, marks.eos])
    if wrong.any():
        place = int(wrong.argmax())
        number = int(np.searchsorted(ends, place, side="right"))
        what = "is a mark, not a word" if 0 <= flat[place] < size else f"is not below {size}"
        raise UserError(
            f"Sentence {number + 1} of {len(rows)} holds the id {flat[place]}, which {what}. "
            "Give the ids of the words alone; begin and end are marked here."
        )
    return flat, ends


def shared_prefix(first: np.ndarray, begin: int, end: int) -> list[tuple[int, int]]:
    """Nodes begin … end − 1 in one piece for each processor, with about as many children each."""
    parts = available_cpus()
    aims = first[begin] + (first[end] - first[begin]) * np.arange(1, parts) / parts
    cuts = [begin, *(begin + np.searchsorted(first[begin:end], aims)).tolist(), end]
    return list(pairwise(cuts))


def in_parallel(work: Callable[[int, int], object], spans: Sequence[tuple[int, int]]) -> None:
    """Work on every span (begin, end), each in a thread of its own."""
    with ThreadPoolExecutor(len(spans)) as pool:
        list(pool.map(lambda span: work(*span), spans))
