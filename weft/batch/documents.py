"""Tokenised documents, and the segments of them that BERT learns from.

R rows   D documents
"""

import random
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.batch.token_store import MAX_MEMORY_BYTES, SpillArray
from weft.tokens.tokenizer import Tokenizer

DOCUMENTS_PER_CHUNK = 256  # documents tokenised together
POOL_TOKENS = 2**22  # tokens of documents whose segments are shuffled together


class Documents:
    """The ids of many documents, one after the other, and where they and their sentences end.

    With `words` it is also kept where words begin.
    """

    def __init__(
        self, words: bool = False, folder: Path | None = None, memory: int = MAX_MEMORY_BYTES
    ):
        self.ids = SpillArray(np.int32, folder, memory)
        self.begins = SpillArray(np.bool_, folder, memory) if words else None
        self._sentences = array("q", [0])
        self._documents = array("q", [0])
        self._lines = array("q")
        self.sentences = self.documents = self.starts = np.zeros(1, np.int64)

    def append(
        self, sentences: Sequence[np.ndarray], line: int = 0, begins: Sequence[np.ndarray] = ()
    ) -> None:
        """Add the sentences of one document, each some ids and where among them words begin."""
        for i, ids in enumerate(sentences):
            if not len(ids):
                continue
            self.ids.extend(ids)
            self._sentences.append(self.ids.size)
            if self.begins is not None:
                self.begins.extend(begins[i])
        self._documents.append(len(self._sentences) - 1)
        self._lines.append(line)

    def close(self) -> "Documents":
        """End of writing; from here on documents can be read."""
        self.ids.close()
        if self.begins is not None:
            self.begins.close()
        self.sentences = np.frombuffer(self._sentences, np.int64)  # where each ends, 0 in front
        self.documents = np.frombuffer(self._documents, np.int64)  # the same, in sentences
        self.starts = self.sentences[self.documents]  # (D+1,) and in tokens
        return self

    def document_of(self, tokens: np.ndarray) -> np.ndarray:
        """The document that each token is in, by their numbers."""
        return np.searchsorted(self.starts, tokens, side="right") - 1

    def line(self, token: int) -> int:
        """The line of the file where the document begins that holds the token with this number."""
        return self._lines[int(self.document_of(np.array([token]))[0])]

    @property
    def nonempty(self) -> np.ndarray:
        """The numbers of the documents that are not empty."""
        return np.flatnonzero(np.diff(self.starts))

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self.ids.size

    def __len__(self) -> int:
        return len(self.documents) - 1


def encode_documents(
    texts: Iterable[tuple[str, int]],
    tokenizer: Tokenizer,
    words: bool = False,
    folder: Path | None = None,
) -> Documents:
    """Documents of texts with a sentence a line, each with the line of the file it begins at."""
    out = Documents(words, folder)
    stream = iter(texts)
    while chunk := list(islice(stream, DOCUMENTS_PER_CHUNK)):
        split = [text.split("\n") for text, _ in chunk]
        # Pieces that hold the space before a word get one where a sentence follows another.
        space = " " if tokenizer.marks_leading_space else ""
        flat = [space * bool(i) + one for own in split for i, one in enumerate(own)]
        ids, begins = _encode(flat, tokenizer, words)
        start = 0
        for (_, line), own in zip(chunk, split, strict=True):
            stop = start + len(own)
            out.append(ids[start:stop], line, begins[start:stop])
            start = stop
    return out.close()


def _encode(
    texts: Sequence[str], tokenizer: Tokenizer, words: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The ids of each text and, where that is asked for, where words begin among them."""
    if not words:
        return tokenizer.ids(texts), []
    found = tokenizer.tokens(texts)
    begins = [np.diff(tokens.words, prepend=-2) != 0 for tokens in found]
    return [tokens.ids for tokens in found], begins


class Segments(NamedTuple):
    """Where the two segments of some rows lie; of rows with one, the second is empty."""

    first: np.ndarray  # (R, 2) tokens from, up to
    second: np.ndarray  # (R, 2)
    is_random_next: (
        np.ndarray
    )  # (R,) 1 where the second is from another document, and does not follow

    def select(self, chosen: np.ndarray | slice) -> "Segments":
        """Some of the rows."""
        return Segments(*(part[chosen] for part in self))

    def __add__(self, other: "Segments") -> "Segments":  # type: ignore[override]
        return Segments(*(np.concatenate(parts) for parts in zip(self, other, strict=True)))

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.is_random_next)


def shuffle_pools(documents: Documents, order: np.ndarray) -> Iterator[np.ndarray]:
    """Documents in the given order, as many at a time as are shuffled together."""
    sizes = np.diff(documents.starts)[order]
    ends = (
        np.searchsorted(
            np.cumsum(sizes), np.arange(POOL_TOKENS, sizes.sum() + POOL_TOKENS, POOL_TOKENS)
        )
        + 1
    )
    for chosen in np.split(order, np.unique(ends.clip(max=len(order))))[: len(ends) + 1]:
        if len(chosen):
            yield chosen


def segment_pairs(
    documents: Documents, chosen: np.ndarray, room: int, short: float, seed: Sequence[int]
) -> Segments:
    """Pairs of segments of at most `room` tokens together (Devlin et al. 2019).

    Of a document, sentences are taken until the room is filled, or by the chance `short` a random
    part of it, and parted at one of their ends. The second part then follows the first; or, every
    other time, gives way to sentences of another document, and comes again in the next row. What
    is too long loses tokens of the longer segment, at either end by chance. A sentence that fills
    the room alone is parted anywhere, and so is what would stand in the place of its second part.
    """
    draw = random.Random(str(list(seed)))
    several = len(documents.nonempty) > 1
    rows: list[tuple[int, int, int, int, int, bool]] = []
    for document in chosen.tolist():
        rows += _split_document(documents, document, room, short, several, draw)
    start, cut, stop, wanted, owner, inside = np.array(rows, np.int64).reshape(-1, 6).T
    strange = wanted > 0
    first, second = np.stack([start, cut], 1), np.stack([cut, stop], 1)
    generator = np.random.Generator(np.random.PCG64(list(seed)))
    second[strange] = _draw_random_next(
        documents, owner[strange], wanted[strange], inside[strange] > 0, generator
    )
    return Segments(*_trim(first, second, room, generator), strange.astype(np.int64))


def _split_document(
    documents: Documents, document: int, room: int, short: float, several: bool, draw: random.Random
) -> Iterator[tuple[int, int, int, int, int, bool]]:
    """Start, cut and end of the rows of a document, and of those whose second part is to come from
    elsewhere how many tokens it should have; the document, and whether the cut is in a sentence."""
    low, high = documents.documents[document : document + 2].tolist()
    ends = documents.sentences[low + 1 : high + 1].tolist()
    start = int(documents.starts[document])
    while ends and ends[-1] - start > 1:
        target = draw.randint(2, room) if draw.random() < short else room
        last = min(bisect_left(ends, start + target), len(ends) - 1)
        stop = ends[last]
        if stop - start > 2 * room:  # one that no room would do for is taken in several pieces
            stop = start + target
        first = bisect_right(ends, start)
        inner = ends[first : bisect_left(ends, stop)]
        cut = draw.choice(inner) if inner else start + draw.randint(1, stop - start - 1)
        strange = several and draw.random() < 0.5
        wanted = max(target - (cut - start), 1) if strange else 0
        yield start, cut, stop, wanted, document, not inner
        start = cut if strange else stop


def _draw_random_next(
    documents: Documents,
    owner: np.ndarray,
    wanted: np.ndarray,
    inside: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """(R, 2) sentences of other documents than the owners, about as many tokens as are wanted."""
    written = documents.nonempty
    own = np.searchsorted(written, owner)
    other = generator.integers(0, max(len(written) - 1, 1), len(owner))
    other = written[other + (other >= own)]
    low, high = documents.documents[other], documents.documents[other + 1]
    start = documents.sentences[generator.integers(low, high)]
    anywhere = generator.integers(documents.starts[other], documents.starts[other + 1])
    start = np.where(inside, anywhere, start)
    last = np.minimum(np.searchsorted(documents.sentences, start + wanted), high)
    return np.stack([start, documents.sentences[last]], 1)


def _trim(
    first: np.ndarray, second: np.ndarray, room: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Both without what is too much, which the longer one loses first."""
    a, b = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
    fits = a + b <= room
    kept_b = np.where(fits, b, np.minimum(b, np.maximum(room // 2, room - a)))
    kept_a = np.where(fits, a, np.minimum(a, room - kept_b))
    out = []
    for part, size, kept in ((first, a, kept_a), (second, b, kept_b)):
        front = generator.binomial(size - kept, 0.5)
        out.append(np.stack([part[:, 0] + front, part[:, 0] + front + kept], 1))
    return out[0], out[1]


def single_segments(
    documents: Documents, chosen: np.ndarray, room: int, seed: Sequence[int]
) -> Segments:
    """Single segments that each fill the room; no token is left out.

    Where documents are cut is another place each time. What would be a shorter piece at the end of
    a document begins a little earlier instead; one that is short as a whole is one segment.
    """
    generator = np.random.Generator(np.random.PCG64(list(seed)))
    found = []
    for document in chosen.tolist():
        start, stop = documents.starts[document : document + 2].tolist()
        offset = int(generator.integers(room)) if stop - start > room else 0
        starts = np.arange(start - offset, stop, room).clip(start, max(start, stop - room))
        found.append(np.unique(starts))
    starts = np.concatenate(found) if found else np.zeros(0, np.int64)
    stops = np.minimum(starts + room, documents.starts[documents.document_of(starts) + 1])
    return Segments(np.stack([starts, stops], 1), np.stack([stops, stops], 1), 0 * starts)
