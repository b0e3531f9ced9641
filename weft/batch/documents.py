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
        """The number of tokens."""
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
        flat = [space * bool(i) + one for sentences in split for i, one in enumerate(sentences)]
        ids, begins = _encode(flat, tokenizer, words)
        start = 0
        for (_, line), sentences in zip(chunk, split, strict=True):
            stop = start + len(sentences)
            out.append(ids[start:stop], line, begins[start:stop])
            start = stop
    return out.close()


def _encode(
    texts: Sequence[str], tokenizer: Tokenizer, words: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the ids of each text and, with `words`, flags where words begin."""
    if not words:
        return tokenizer.encode_ids(texts), []
    encoded = tokenizer.encode_batch(texts)
    begins = [np.diff(tokens.words, prepend=-2) != 0 for tokens in encoded]
    return [tokens.ids for tokens in encoded], begins


class Segments(NamedTuple):
    """Token ranges of the two segments of rows; a single segment has an empty second."""

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
        """The number of rows."""
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
    documents: Documents, chosen: np.ndarray, capacity: int, short: float, seed: Sequence[int]
) -> Segments:
    """Draw segment pairs of at most `capacity` tokens together (Devlin et al. 2019).

    Sentences of a document are taken until they fill the capacity, or with probability `short` a
    random part of it, and split at a sentence end. The second part then follows the first; or,
    with probability 1/2, sentences of another document replace it, and it comes again in the next
    row. Pairs that are too long lose tokens of the longer segment, at a random end. A sentence
    that fills the capacity alone is split anywhere, and so is the replacement of its second part.
    """
    draw = random.Random(str(list(seed)))
    several = len(documents.nonempty) > 1
    rows: list[tuple[int, int, int, int, int, bool]] = []
    for document in chosen.tolist():
        rows += _split_document(documents, document, capacity, short, several, draw)
    start, cut, stop, wanted, owner, inside = np.array(rows, np.int64).reshape(-1, 6).T
    strange = wanted > 0
    first, second = np.stack([start, cut], 1), np.stack([cut, stop], 1)
    generator = np.random.Generator(np.random.PCG64(list(seed)))
    second[strange] = _draw_random_next(
        documents, owner[strange], wanted[strange], inside[strange] > 0, generator
    )
    return Segments(*_trim(first, second, capacity, generator), strange.astype(np.int64))


def _split_document(
    documents: Documents,
    document: int,
    capacity: int,
    short: float,
    several: bool,
    draw: random.Random,
) -> Iterator[tuple[int, int, int, int, int, bool]]:
    """Start, cut and end of the rows of a document, and of those whose second part is to come from
    elsewhere how many tokens it should have; the document, and whether the cut is in a sentence."""
    low, high = documents.documents[document : document + 2].tolist()
    ends = documents.sentences[low + 1 : high + 1].tolist()
    start = int(documents.starts[document])
    while ends and ends[-1] - start > 1:
        target = draw.randint(2, capacity) if draw.random() < short else capacity
        last = min(bisect_left(ends, start + target), len(ends) - 1)
        stop = ends[last]
        if stop - start > 2 * capacity:  # far too long for one row: split it
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
    index = np.searchsorted(written, owner)
    other = generator.integers(0, max(len(written) - 1, 1), len(owner))
    other = written[other + (other >= index)]
    low, high = documents.documents[other], documents.documents[other + 1]
    start = documents.sentences[generator.integers(low, high)]
    anywhere = generator.integers(documents.starts[other], documents.starts[other + 1])
    start = np.where(inside, anywhere, start)
    last = np.minimum(np.searchsorted(documents.sentences, start + wanted), high)
    return np.stack([start, documents.sentences[last]], 1)


def _trim(
    first: np.ndarray, second: np.ndarray, capacity: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Both without what is too much, which the longer one loses first."""
    a, b = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
    fits = a + b <= capacity
    kept_b = np.where(fits, b, np.minimum(b, np.maximum(capacity // 2, capacity - a)))
    kept_a = np.where(fits, a, np.minimum(a, capacity - kept_b))
    out = []
    for part, size, kept in ((first, a, kept_a), (second, b, kept_b)):
        front = generator.binomial(size - kept, 0.5)
        out.append(np.stack([part[:, 0] + front, part[:, 0] + front + kept], 1))
    return out[0], out[1]


def single_segments(
    documents: Documents, chosen: np.ndarray, capacity: int, seed: Sequence[int]
) -> Segments:
    """Cut documents into segments of `capacity` tokens; no token is left out.

    Where documents are cut is another place each time. What would be a shorter piece at the end of
    a document begins a little earlier instead; one that is short as a whole is one segment.
    """
    generator = np.random.Generator(np.random.PCG64(list(seed)))
    parts = []
    for document in chosen.tolist():
        start, stop = documents.starts[document : document + 2].tolist()
        offset = int(generator.integers(capacity)) if stop - start > capacity else 0
        starts = np.arange(start - offset, stop, capacity).clip(start, max(start, stop - capacity))
        parts.append(np.unique(starts))
    starts = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    stops = np.minimum(starts + capacity, documents.starts[documents.document_of(starts) + 1])
    return Segments(np.stack([starts, stops], 1), np.stack([stops, stops], 1), 0 * starts)
