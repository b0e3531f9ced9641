"""Tokenised rows, kept in memory while they are small and in a file once they are not.

Rows are read with plain file reads, not through a memory map: pages of a map count as the process's
own memory, and training on a file larger than memory should stay small.
"""

import os
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from weft.batch.label_levels import LabelLevels
from weft.batch.loss_balance import LossBalance
from weft.batch.padded import Padded
from weft.batch.ragged import pad

Target = np.ndarray | int | float  # of one example: a table, a class, a number

MAX_MEMORY_BYTES = 32 * 2**20  # bytes of ids that one store may keep in memory
MAX_CACHE_BYTES = 2**30  # and of cached features


class SpillArray:
    """An append-only array of numbers that moves to an unnamed file when it grows past `memory`."""

    def __init__(
        self, dtype: type[np.generic], folder: Path | None = None, memory: int = MAX_MEMORY_BYTES
    ):
        self.dtype, self.memory, self.folder = np.dtype(dtype), memory, folder
        self.size = 0
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None

    def extend(self, values: np.ndarray) -> None:
        raw = np.ascontiguousarray(values, dtype=self.dtype).tobytes()
        self.size += len(raw) // self.dtype.itemsize
        if self._file is not None:
            self._file.write(raw)
            return
        self._buffer += raw
        if len(self._buffer) > self.memory:
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=2**20)
            self._file.write(self._buffer)
            self._buffer = bytearray()

    def read(self, start: int, stop: int) -> np.ndarray:
        width = self.dtype.itemsize
        if self._file is None:
            return np.frombuffer(self._buffer, self.dtype, stop - start, start * width)
        raw = os.pread(self._file.fileno(), (stop - start) * width, start * width)
        return np.frombuffer(raw, self.dtype)

    def close(self) -> None:
        """End of writing: what is still in the file's buffer becomes readable."""
        if self._file is not None:
            self._file.flush()

    @property
    def on_disk(self) -> bool:
        return self._file is not None


class RaggedTables:
    """Tables of whole numbers, one a row of the store, each with its own number of lines."""

    def __init__(self, width: int, folder: Path | None = None, memory: int = MAX_MEMORY_BYTES):
        self.width = width
        self.data = SpillArray(np.int32, folder, memory)
        self._ends = array("q", [0])

    def append(self, table: np.ndarray) -> None:
        """Add one table (lines, width)."""
        assert table.ndim == 2
        assert table.shape[1] == self.width
        self.data.extend(table.ravel())
        self._ends.append(self._ends[-1] + table.size)

    def close(self) -> None:
        self.data.close()

    def __getitem__(self, row: int) -> np.ndarray:
        numbers = self.data.read(self._ends[row], self._ends[row + 1])
        return numbers.astype(np.int64).reshape(-1, self.width)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """(B,) the lines of each table."""
        ends = np.frombuffer(self._ends, np.int64)
        lines: np.ndarray = (ends[rows + 1] - ends[rows]) // self.width
        return lines

    def padded(self, rows: np.ndarray) -> np.ndarray:
        """(B, longest, width) with -1 behind the end of each."""
        tables = [self[int(row)] for row in rows]
        return pad(tables, np.array([len(table) for table in tables], np.int64), -1)


class FeatureCache:
    """Cached features of a frozen encoder for every step of a store: (steps, width)."""

    def __init__(self, starts: np.ndarray, width: int, folder: Path | None = None):
        self.width, self.starts = width, starts  # (R+1,) steps before each row
        self.data = SpillArray(np.float32, folder, MAX_CACHE_BYTES)
        self.offsets = np.zeros(len(starts) - 1, np.int64)  # where each row is kept

    def add(self, rows: np.ndarray, features: Sequence[np.ndarray]) -> None:
        """Some rows, (length, width) each."""
        for row, states in zip(rows.tolist(), features, strict=True):
            self.offsets[row] = self.data.size
            self.data.extend(states)

    def close(self) -> "FeatureCache":
        self.data.close()
        return self

    def row(self, index: int) -> np.ndarray:
        size = int(self.starts[index + 1] - self.starts[index]) * self.width
        offset = int(self.offsets[index])
        return self.data.read(offset, offset + size).reshape(-1, self.width)


class TokenStore:
    """Rows of token ids with their targets, line numbers and optional subtokens.

    With `columns`, a target is a table of that many columns, not a number or a row of them; with
    `trees`, each row comes with the parents of its steps; with `features`, the steps of a row are
    vectors of that many numbers and no ids; with `pairs`, a row holds two texts; with `marks`, each
    word comes with that many numbers for the head.
    """

    def __init__(
        self,
        subtokens: int = 0,
        folder: Path | None = None,
        memory: int = MAX_MEMORY_BYTES,
        columns: int = 0,
        trees: bool = False,
        features: int = 0,
        pairs: bool = False,
        marks: int = 0,
    ):
        self.ids = SpillArray(np.float32 if features else np.int32, folder, memory)
        self.features = features
        self._ends = array("q", [0])
        self._lines = array("q")
        self._targets: Any = RaggedTables(columns, folder, memory) if columns else []
        self._subtokens = [_Subtokens(folder, memory) for _ in range(subtokens)]
        self._parents = RaggedTables(1, folder, memory) if trees else None
        self._second = array("q") if pairs else None
        self._weights = array("d")
        self._marks = RaggedTables(marks, folder, memory) if marks else None
        self.ends = self.lengths = self.lines = np.zeros(0, np.int64)
        self.targets: Any = np.zeros(0, np.int64)
        self.cached: Sequence[FeatureCache] = ()  # of each frozen encoder
        self.balance: LossBalance | None = None  # of uneven classes, in the loss
        self.levels: LabelLevels | None = None  # of labels in a tree, in the loss
        self.groups: Sequence[np.ndarray] = ()  # the rows of each class, to sample them alike
        self.row_weights: np.ndarray | None = None  # (R,) of their losses; None: all are 1

    def append(
        self,
        ids: np.ndarray,
        target: Target,
        line: int = 0,
        subtokens: Sequence[list[list[int]]] = (),
        parents: np.ndarray | None = None,
        second: int = 0,
        weight: float = 1.0,
        marks: np.ndarray | None = None,
    ) -> None:
        """Add one row; `subtokens` holds, for each subtoken encoder, a list of ids per token."""
        if weight != 1 and not self._weights:
            self._weights.extend([1.0] * (len(self._ends) - 1))
        if weight != 1 or self._weights:
            self._weights.append(weight)
        if self._second is not None:
            self._second.append(second)
        self.ids.extend(ids.ravel())
        self._ends.append(self.ids.size // (self.features or 1))
        self._lines.append(line)
        if isinstance(self._targets, list) and not self._targets:
            self._targets = _targets_like(target)
        self._targets.append(target)
        for store, rows in zip(self._subtokens, subtokens, strict=True):
            store.append(rows)
        if self._parents is not None:
            assert parents is not None
            self._parents.append(parents[:, None])
        if self._marks is not None:
            assert marks is not None
            self._marks.append(marks)

    def close(self) -> "TokenStore":
        """End of writing; from here on rows can be read."""
        self.ids.close()
        for subtokens in self._subtokens:
            subtokens.close()
        for tables in (self._parents, self._marks):
            if tables is not None:
                tables.close()
        self.ends = np.frombuffer(self._ends, np.int64)
        self.lengths = np.diff(self.ends)
        self.lines = np.frombuffer(self._lines, np.int64)
        if self._weights:
            self.row_weights = np.frombuffer(self._weights, np.float64)
        if isinstance(self._targets, RaggedTables):
            self._targets.close()
            self.targets = self._targets
            return self
        kind = np.float32 if _is_float(self._targets) else np.int64
        self.targets = np.asarray(self._targets, dtype=kind)
        self._targets = []
        return self

    def line(self, row: int) -> int:
        """The line of the file that a row came from."""
        return int(self.lines[row])

    def row(self, index: int) -> np.ndarray:
        start, stop = int(self.ends[index]), int(self.ends[index + 1])
        if not self.features:
            return self.ids.read(start, stop)
        wide = self.features
        return self.ids.read(start * wide, stop * wide).reshape(-1, wide)

    def subtokens(self, index: int, kind: int = 0) -> np.ndarray:
        """Return the subtokens (T, W) of a row's tokens, padded with 0."""
        return self._subtokens[kind].row(int(self.ends[index]), int(self.ends[index + 1]))

    def padded(self, rows: np.ndarray) -> Padded:
        """The rows as one padded batch."""
        lengths = self.lengths[rows]
        data = pad([self.row(i) for i in rows], lengths)
        subtokens = tuple(
            torch.from_numpy(pad([p.row(self.ends[i], self.ends[i + 1]) for i in rows], lengths))
            for p in self._subtokens
        )
        parents = None
        if self._parents is not None:
            parents = torch.from_numpy(self._parents.padded(rows)[:, :, 0])
        second = None
        if self._second is not None:
            second = torch.from_numpy(np.frombuffer(self._second, np.int64)[rows])
        cached = tuple(
            torch.from_numpy(pad([one.row(int(i)) for i in rows], lengths)) for one in self.cached
        )
        return Padded(
            torch.from_numpy(data),
            torch.from_numpy(lengths.copy()),
            subtokens,
            parents,
            second,
            cached,
            None if self._marks is None else torch.from_numpy(self._marks.padded(rows)),
        )

    def __len__(self) -> int:
        return len(self.lengths)


class _Subtokens:
    """Lists of subtoken ids, one per token, all padded to the longest."""

    def __init__(self, folder: Path | None, memory: int):
        self.data = SpillArray(np.int32, folder, memory)
        self.counts = SpillArray(np.int32, folder, memory)
        self._starts = array("q", [0])
        self.width = 0

    def append(self, rows: list[list[int]]) -> None:
        self.counts.extend(np.array([len(row) for row in rows], np.int32))
        self.data.extend(np.array([subtoken for row in rows for subtoken in row], np.int32))
        for row in rows:
            self._starts.append(self._starts[-1] + len(row))
            self.width = max(self.width, len(row))

    def close(self) -> None:
        self.data.close()
        self.counts.close()

    def row(self, start: int, stop: int) -> np.ndarray:
        """(tokens, W) for the tokens start … stop."""
        counts = self.counts.read(int(start), int(stop)).astype(np.int64)
        out = np.zeros((len(counts), self.width), np.int64)
        out[np.arange(self.width) < counts[:, None]] = self.data.read(
            self._starts[int(start)], self._starts[int(stop)]
        )
        return out


def _targets_like(first: Target) -> "list[Target] | array[Any]":
    """Return what holds the targets of rows: plain numbers take a tenth of the space of objects."""
    if isinstance(first, np.ndarray):
        return []
    return array("d" if isinstance(first, float) else "q")


def _is_float(targets: Sequence[Target]) -> bool:
    first = targets[0] if len(targets) else 0
    return isinstance(first, float) or (
        isinstance(first, np.ndarray) and np.issubdtype(first.dtype, np.floating)
    )
