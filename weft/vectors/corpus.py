"""A corpus as memory-mapped ids: read once in blocks, counted, and numbered by frequency.

Neither the text nor its ids are ever in memory as a whole; only the distinct words are.
"""

from __future__ import annotations

import mmap
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from weft.errors import UserError
from weft.progress import counting
from weft.text.columns import NO_LABEL, Columns
from weft.text.line_source import LineSource
from weft.text.read import read
from weft.text.tables.table import PathOrTable, find_table, list_sources, name_sources
from weft.vectors.sampling import keep
from weft.vectors.tokenise import Chunks, NotText

TokenizerName = Literal["whitespace", "words"]
TOKENIZERS: tuple[TokenizerName, ...] = ("words", "whitespace")

BLOCK_BYTES = 1 << 24  # bytes of text at a time
_PIECE = 1 << 22  # ids at a time, when they are renumbered


@dataclass(frozen=True)
class Corpus:
    """Words by frequency, and the text as their numbers."""

    words: tuple[str, ...]  # most frequent first, ties by word
    counts: np.ndarray  # (V,) int64, of kept words
    ids: np.ndarray  # (N,) int32, memory-mapped, sentence after sentence
    ends: np.ndarray  # (S,) int64: where each sentence ends in ids
    total: int  # running words read, kept or not

    def forget(self, first: int, last: int) -> None:
        """Let go of the memory of some sentences; they are still in the file."""
        mapped = getattr(self.ids, "_mmap", None)
        if mapped is None or not hasattr(mapped, "madvise") or last <= first:
            return
        begin = 4 * int(self.ends[first - 1]) if first else 0
        begin -= begin % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, begin, 4 * int(self.ends[last - 1]) - begin)


def corpus(
    paths: PathOrTable | Sequence[PathOrTable],
    *,
    min_count: int = 5,
    vocab_size: int = 0,
    lowercase: bool = True,
    tokenizer: TokenizerName = "words",
    max_words: int = 10_000,
    folder: Path | None = None,
    watch: Callable[[int], None] | None = None,
) -> Corpus:
    """Read texts, one sentence per line, and number their words; rare words are dropped.

    Progress is shown, or `watch` is called with the number of words read since its last call.
    The tokenizer `words` splits like the `word` tokenizer, `whitespace` at spaces only. Lines of
    more than `max_words` are split. Data in memory are a table with a column of texts, or several;
    a list of strings is a list of files, so pass texts as [texts]. Files may be compressed (.gz,
    .xz); "-" is standard input. The ids are stored in `folder`, or in a temporary file that is
    deleted with the corpus.
    """
    if min_count < 1 or vocab_size < 0 or max_words < 2:
        raise UserError(
            "A corpus needs min_count of 1 or more, vocab_size of 0 or more and max_words of 2 or "
            f"more; got {min_count}, {vocab_size} and {max_words}."
        )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    chunks = Chunks(tokenizer, lowercase)
    paths = _name_texts(paths)
    with tempfile.TemporaryFile(dir=folder) as raw:
        with counting("words read", watch) as count:
            cuts = _number_tokens(paths, chunks, max_words, raw, count)
        if not chunks.total:
            raise UserError(f"{_name_of(paths)}: no words in it. Pass text, one sentence per line.")
        kept, counts, places = rank_by_frequency(
            list(chunks.numbers), chunks.counts, min_count, vocab_size
        )
        if not kept:
            most = int(chunks.counts.max())
            raise UserError(
                f"{_name_of(paths)}: no word occurs {min_count} times; the most frequent one does "
                f"{most}. Lower --min-count, or add text."
            )
        ids, ends = renumber(raw, cuts, places, folder)
    return Corpus(tuple(kept), counts, ids, ends, chunks.total)


def _number_tokens(
    paths: list[str],
    chunks: Chunks,
    max_words: int,
    into: IO[bytes],
    watch: Callable[[int], None],
) -> np.ndarray:
    """Write the number of every word to a file; where the sentences end."""
    cuts: list[np.ndarray] = []
    for path in paths:
        line = 1
        for block in _blocks(path):
            try:
                ids, ends = chunks.read(block, max_words)
            except NotText as error:
                raise _bad(path, line, block, error.chunk) from error
            cuts.append(ends + into.tell() // 4)
            into.write(ids.data)
            line += block.count(b"\n")
            watch(len(ids))
        # The last line of a file ends there, with a line feed or without.
        cuts.append(np.array([into.tell() // 4], np.int64))
        chunks.open = 0
    into.flush()
    ends = np.concatenate(cuts)
    return ends[np.diff(ends, prepend=0) > 0]


def _name_texts(paths: PathOrTable | Sequence[PathOrTable]) -> list[str]:
    """Return the files, or the names of tables; a list of lists holds texts."""
    if isinstance(paths, (list, tuple)) and paths and all(isinstance(p, list) for p in paths):
        return name_sources(paths, ("texts",))
    return name_sources(list_sources(paths), ("texts",))


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, or the texts of a table, as bytes."""
    if find_table(path) is None:
        yield from LineSource(path).raw()
        return
    for example in read(path, columns=Columns(label=NO_LABEL), keep_empty=True):
        yield example.text.encode() + b"\n"


def _blocks(path: str) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines."""
    held: list[bytes] = []
    size = 0
    for line in _lines(path):
        held.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _bad(path: str, line: int, block: bytes, chunk: bytes) -> UserError:
    """The error for a chunk that is not text, with its line."""
    place = re.search(rb"(?<!\S)" + re.escape(chunk) + rb"(?!\S)", block)
    line += block.count(b"\n", 0, place.start() if place else 0)
    try:
        chunk.decode()
        found = "NUL byte: this is not text. Give text, or remove it (tr -d '\\0' < FILE)."
    except UnicodeDecodeError as error:
        found = f"byte 0x{chunk[error.start]:02x} is not UTF-8"
        if b"\0" in block:
            found += ", and there are NUL bytes: this is not text. Give text."
        else:
            found += ". Convert the file (iconv -f LATIN1 -t UTF-8 FILE)."
    return UserError(f"{_name_of([path])}:{line}: {found}")


def _name_of(paths: Sequence[str | Path]) -> str:
    return ", ".join("standard input" if str(path) == "-" else str(path) for path in paths)


def rank_by_frequency(
    names: Sequence[str], counts: np.ndarray, min_count: int, size: int
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Kept words and their counts by frequency, and the new number of each old one, or −1."""
    often = np.flatnonzero(counts >= min_count)
    order = sorted(often.tolist(), key=lambda i: (-counts[i], names[i]))
    order = order[: size or None]
    places = np.full(len(counts), -1, np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return [names[i] for i in order], counts[order], places


def renumber(
    raw: IO[bytes], cuts: np.ndarray, places: np.ndarray, folder: Path | None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids in a file under their new numbers, and their sentences, without the words left out."""
    raw.seek(0)
    ends = np.empty_like(cuts)
    kept, first, sentence = 0, 0, 0
    into: IO[bytes]
    into = tempfile.TemporaryFile() if folder is None else open(folder / "ids.int32", "w+b")
    with into:
        while piece := raw.read(4 * _PIECE):
            ids = places[np.frombuffer(piece, np.int32)]
            keep = ids >= 0
            sofar = np.cumsum(keep)
            last = int(np.searchsorted(cuts, first + len(ids), side="right"))
            ends[sentence:last] = kept + sofar[cuts[sentence:last] - first - 1]
            into.write(ids[keep].data)
            kept, first, sentence = kept + int(sofar[-1]), first + len(ids), last
        into.flush()
        mapped = np.memmap(into, np.int32, mode="r", shape=(kept,))
    return mapped, ends[np.diff(ends, prepend=0) > 0]


def subsample(corpus: Corpus, sample: float, seed: int = 1, folder: Path | None = None) -> Corpus:
    """The corpus without some occurrences of frequent words, dropped as in word2vec.

    A word of frequency f is kept with probability √(sample / f) + sample / f; the counts stay.
    """
    kept = keep(corpus.counts, sample)
    random = np.random.Generator(np.random.PCG64(seed))
    ends, total = np.empty_like(corpus.ends), 0
    into: IO[bytes]
    into = tempfile.TemporaryFile() if folder is None else open(folder / "sampled.int32", "w+b")
    with into:
        for start in range(0, len(corpus.ids), _PIECE):
            ids = np.asarray(corpus.ids[start : start + _PIECE])
            stays = random.integers(0, 2**32, len(ids), dtype=np.uint64) < kept[ids]
            sofar = np.cumsum(stays)
            first, last = np.searchsorted(corpus.ends, [start, start + len(ids)], side="right")
            ends[first:last] = total + sofar[corpus.ends[first:last] - start - 1]
            into.write(np.ascontiguousarray(ids[stays]).data)
            total += int(sofar[-1])
        into.flush()
        if not total:
            raise UserError(f"sample = {sample:g} leaves no word of the corpus. Use a higher one.")
        mapped = np.memmap(into, np.int32, mode="r", shape=(total,))
    ends = ends[np.diff(ends, prepend=0) > 0]
    return Corpus(corpus.words, corpus.counts, mapped, ends, corpus.total)
