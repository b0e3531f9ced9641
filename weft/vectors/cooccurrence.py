"""Co-occurrence counts of word pairs in bounded memory.

A dense block holds the pairs of frequent words, hashed tables the others. A part of a table that is
full goes to a file; in the end each part is read back by itself, summed and put in random order.
Which part a pair falls into is as good as random, so the whole result is in random order.

V words   N running words   P parts of a table
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import numpy as np

from weft.errors import UserError, unknown_name
from weft.machine import available_cpus

if TYPE_CHECKING:
    from weft.vectors.corpus import Corpus

Distance = Literal["inverse", "none"]
DISTANCES: tuple[Distance, ...] = ("inverse", "none")
DEFAULT_MEMORY_BYTES = 2**30  # bytes that counting may take, beside the corpus
PAIR = np.dtype([("first", np.int32), ("second", np.int32), ("weight", np.float32)])
ENTRY = np.dtype([("key", np.uint64), ("value", np.float64)])
MAX_LOAD = 0.7  # of a table's slots; above it, finding a free one takes long
PARTS_AT_ONCE = 4  # parts that are summed at once, at most
REPORT_WORDS = 2**20  # words counted between two reports
CACHE_LINE_CELLS = 8  # float64 cells of a cache line


_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
_Tables = tuple[tuple[int, int], _Arrays, _Arrays, int]  # of a thread: dense block, hashed table


@dataclass(frozen=True)
class Cooccurrences:
    """The pairs that occur, each once and in random order, in an unnamed file.

    A symmetric pair stands for both orders of its words; any other is a word and one to its left.
    """

    size: int  # V
    pairs: int
    file: IO[bytes]
    symmetric: bool = True
    least: float = 1.0  # the weight of a pair that occurs once, as far apart as the window allows

    def read(self, start: int, stop: int) -> np.ndarray:
        """Pairs start … stop as records of `first`, `second` and `weight`.

        Of a symmetric pair `first` ≤ `second`.
        """
        width = PAIR.itemsize
        raw = os.pread(self.file.fileno(), (stop - start) * width, start * width)
        return np.frombuffer(raw, PAIR)

    def __len__(self) -> int:
        return self.pairs


def cooccurrences(
    corpus: "Corpus",
    window: int = 10,
    *,
    symmetric: bool = True,
    distance: Distance = "inverse",
    threads: int = 0,
    memory: int = DEFAULT_MEMORY_BYTES,
    folder: Path | None = None,
    watch: Callable[[float], None] = lambda share: None,
) -> Cooccurrences:
    """Count 1/distance for every two words at most `window` apart in a sentence, both ways round.

    A word beside itself so counts twice. If not `symmetric`, only words to the left are contexts.
    With `distance` "none" every pair counts 1. `watch` hears the share of the corpus that lies
    behind; `folder` is where the files are put.
    """
    threads = threads or available_cpus()
    words = len(corpus.ids)
    if window < 1:
        raise UserError(f"'window' should be at least 1, got {window}.")
    if distance not in DISTANCES:
        raise unknown_name("distance weighting", distance, DISTANCES)
    if not words:
        raise UserError("The corpus holds no words to count pairs of. Lower the minimum count.")
    parts, slots = _layout(words * window, window, threads, memory)
    # The block has cells for pairs with i ≤ j only.
    block = _DenseBlock.fitting(len(corpus.words), memory // 4 if symmetric else 0)
    shares = np.r_[0.0, 1 / np.arange(1, window + 1) if distance == "inverse" else np.ones(window)]
    counters = [
        _Counter(corpus, (shares, symmetric), (i, threads), block, (parts, slots), folder)
        for i in range(threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        for stop in [*range(REPORT_WORDS, words, REPORT_WORDS), words]:
            list(pool.map(_Counter.count, counters, [stop] * threads))
            watch(stop / words)
        list(pool.map(_Counter.pour, counters))
        del block
        file, pairs = _written(counters, range(parts), pool, folder, symmetric)
    return Cooccurrences(len(corpus.words), pairs, file, symmetric, float(shares[1:].min()))


def _layout(events: int, window: int, threads: int, memory: int) -> tuple[int, int]:
    """Parts of each thread's table and slots of a part."""
    # Half of the memory is for tables. Summing a part takes four times its entries; should no two
    # events have met in a table, PARTS_AT_ONCE parts at once still fit into the other half.
    entries = ENTRY.itemsize * events
    parts = max(8, -(-8 * PARTS_AT_ONCE * entries // memory))
    slots = min(memory // 2 // ENTRY.itemsize, 2 * threads * events) // threads // parts
    least = 2 * window + 8  # for one window above MAX_LOAD, and for an uneven hash
    if memory // 2 // ENTRY.itemsize // threads // parts < 2 * least:
        needed = (64 * PARTS_AT_ONCE * entries * ENTRY.itemsize * threads * least) ** 0.5
        raise UserError(
            f"{memory / 2**20:.0f} MB is too little to count pairs in: {events / window:,.0f} "
            f"words with a window of {window} need {needed / 2**20 + 1:.0f} MB."
        )
    return parts, max(slots, 4 * least)


@dataclass(frozen=True)
class _DenseBlock:
    """Cells for the pairs (i, j ≥ i) of frequent words: those whose ranks have a small product."""

    rows: np.ndarray  # (V,) pair (i, j) has the cell rows[i] + j
    reach: np.ndarray  # (V,) the first j of each row that has none
    cells: np.ndarray

    @classmethod
    def fitting(cls, size: int, memory: int) -> "_DenseBlock":
        """The largest block that takes no more than so many bytes."""
        low, high = 0, size * size
        while low < high:
            middle = (low + high + 1) // 2
            if cls._cells(size, middle) * 8 <= memory:
                low = middle
            else:
                high = middle - 1
        reach = cls._reach(size, low)
        rows, total = np.zeros(size, np.int64), 0
        for i in np.flatnonzero(reach > np.arange(size)):
            # Rows start at cache lines, so that threads share none.
            rows[i] = (
                -(-total // CACHE_LINE_CELLS) * CACHE_LINE_CELLS
                - i // CACHE_LINE_CELLS * CACHE_LINE_CELLS
            )
            total = rows[i] + reach[i]
        return cls(rows, reach, np.zeros(total + CACHE_LINE_CELLS))

    @staticmethod
    def _reach(size: int, product: int) -> np.ndarray:
        return np.minimum(size, product // np.arange(1, size + 1))

    @classmethod
    def _cells(cls, size: int, product: int) -> int:
        wide = cls._reach(size, product) - np.arange(size)
        return int(wide[wide > 0].sum()) + 2 * CACHE_LINE_CELLS * int((wide > 0).sum())


class _Counter:
    """One thread's share of the pairs; every thread reads the whole corpus, none waits."""

    def __init__(
        self,
        corpus: "Corpus",
        weights: tuple[np.ndarray, bool],  # (window + 1,) by distance; if pairs are symmetric
        who: tuple[int, int],
        block: _DenseBlock,
        shape: tuple[int, int],
        folder: Path | None,
    ):
        self.corpus, self.who = corpus, who
        self.block: _DenseBlock | None = block
        self.weights = weights
        self.table = np.zeros(shape, ENTRY)  # (P, slots)
        self.used = np.zeros(shape[0], np.int64)
        self.max_used = int(MAX_LOAD * shape[1])
        self.place = np.zeros(2, np.int64)
        self.file = tempfile.TemporaryFile(dir=folder)
        self.runs: list[list[tuple[int, int]]] = [[] for _ in range(shape[0])]  # (offset, entries)

    def count(self, stop: int) -> None:
        """Read on to a position of the corpus."""
        from weft.vectors.kernels import cooccurrence as kernels

        ids, ends = np.asarray(self.corpus.ids), np.asarray(self.corpus.ends)
        given = (ids, ends, self.place, stop, *self.weights, *self._tables())
        while not kernels.count(*given):
            self._spill()

    def pour(self) -> None:
        """Move what is mine in the dense block to the table, and forget the block."""
        from weft.vectors.kernels import cooccurrence as kernels

        self.place[:] = 0
        while not kernels.flush(self.place, *self._tables()):
            self._spill()
        self.block = None
        self.file.flush()

    def entries(self, part: int) -> Iterator[np.ndarray]:
        """Yield the counts of a part in chunks; keys may repeat across chunks."""
        for offset, entries in self.runs[part]:
            raw = os.pread(self.file.fileno(), entries * ENTRY.itemsize, offset)
            yield np.frombuffer(raw, ENTRY)
        yield self._used_entries(part)

    def _tables(self) -> _Tables:
        block, table = self.block, self.table
        assert block is not None
        dense = (block.rows, block.reach, block.cells)
        return self.who, dense, (table["key"], table["value"], self.used), self.max_used

    def _spill(self) -> None:
        """Write out the parts that are nearly full: the others will be so soon."""
        for part in np.flatnonzero(self.used >= 0.9 * self.max_used).tolist():
            self.runs[part].append((self.file.tell(), int(self.used[part])))
            self.file.write(self._used_entries(part).tobytes())
            self.table[part] = 0
            self.used[part] = 0

    def _used_entries(self, part: int) -> np.ndarray:
        row = self.table[part]
        entries: np.ndarray = row[row["key"] > 0]
        return entries


def _written(
    counters: list[_Counter],
    parts: range,
    pool: ThreadPoolExecutor,
    folder: Path | None,
    symmetric: bool,
) -> tuple[IO[bytes], int]:
    """All parts summed, one after the other, in the file that is kept, and its number of pairs."""
    file, pairs = tempfile.TemporaryFile(dir=folder), 0
    for start in parts[::PARTS_AT_ONCE]:
        some = parts[start : start + PARTS_AT_ONCE]
        sums = pool.map(_sum_duplicates, some, [counters] * len(some), [symmetric] * len(some))
        for summed in sums:
            file.write(summed.tobytes())
            pairs += len(summed)
    file.flush()
    return file, pairs


def _sum_duplicates(part: int, counters: list[_Counter], symmetric: bool) -> np.ndarray:
    """The pairs of one part, in random order."""
    entries = np.concatenate([piece for c in counters for piece in c.entries(part)])
    order = np.argsort(entries["key"], kind="stable")
    keys, values = entries["key"][order], entries["value"][order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else order
    keys = keys[starts] - np.uint64(1)
    out = np.zeros(len(keys), PAIR)
    out["first"], out["second"] = keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)
    weights = np.add.reduceat(values, starts) if len(starts) else values
    twice = symmetric & (out["first"] == out["second"])
    out["weight"] = np.where(twice, 2 * weights, weights)
    np.random.Generator(np.random.PCG64(part)).shuffle(out)
    return out
