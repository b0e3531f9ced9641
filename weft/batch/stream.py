"""One long text, cut into pieces that a language model learns from.

B rows   T steps of a piece
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from weft.batch.labelled import Batches, Labelled
from weft.batch.padded import Padded
from weft.batch.store import MEMORY, Flat


class Stream:
    """The ids of many texts, one after the other, behind the one that stands before them all."""

    def __init__(self, first: int, folder: Path | None = None, memory: int = MEMORY):
        self.ids = Flat(np.int32, folder, memory)
        self.ids.extend(np.array([first], np.int32))
        self._starts, self._lines = array("q"), array("q")

    def append(self, ids: np.ndarray, line: int = 0) -> None:
        """Add one text."""
        self._starts.append(len(self))
        self._lines.append(line)
        self.ids.extend(ids)

    def close(self) -> "Stream":
        """End of writing; from here on the ids can be read."""
        self.ids.close()
        return self

    def line(self, row: int) -> int:
        """The line of the file that holds the token with this number."""
        return self._lines[bisect_right(self._starts, row) - 1]

    def read(self, start: int, steps: int) -> np.ndarray:
        """(T + 1,) ids: what stands before the token with this number, and the tokens from it."""
        return self.ids.read(start, start + steps + 1)

    def __len__(self) -> int:
        """How many tokens there are to foretell."""
        return self.ids.size - 1


class Piece(NamedTuple):
    """Where the rows of a batch begin, and how many steps each of them has."""

    starts: np.ndarray  # (B,)
    steps: int


class Pieces(Batches):
    """Batches of pieces of a stream: side by side in order, or shuffled.

    In order, the stream is cut into as many parts as there are rows, and a row of a batch goes on
    where the same row of the batch before has ended, so that a state can be carried along.
    Shuffled, the cuts lie elsewhere in each epoch. All rows have the same length and no token is
    left out: parts that would be shorter begin a little earlier, in what was already read.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        rows: int,
        window: int,
        seed: int,
        epochs: int,
        in_order: bool,
        both: bool = False,
    ):
        super().__init__(None, rows=rows, budget=rows * window, seed=seed, epochs=epochs)  # type: ignore[arg-type]
        self.stream, self.window = stream, window
        self.in_order, self.both = in_order, both  # both: what is foretold is among what is read

    def _plan(self, epoch: int) -> Iterator[Piece]:
        return self._side_by_side() if self.in_order else self._shuffled(epoch)

    def _side_by_side(self) -> Iterator[Piece]:
        size, rows = len(self.stream), self.rows
        steps = -(-size // rows)
        starts = np.linspace(0, size - steps, rows).astype(np.int64)
        for start in range(0, steps, self.window):
            yield Piece(starts + start, min(self.window, steps - start))

    def _shuffled(self, epoch: int) -> Iterator[Piece]:
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        size = len(self.stream)
        starts = np.arange(-int(random.integers(self.window)), size, self.window)
        starts = random.permutation(np.unique(starts.clip(0, size - self.window)))
        for row in range(0, len(starts), self.rows):
            yield Piece(starts[row : row + self.rows], self.window)

    def _batch(self, rows: Piece) -> Labelled:
        starts, steps = rows
        ids = np.stack([self.stream.read(start, steps) for start in starts.tolist()])
        data = torch.from_numpy(ids.astype(np.int64))  # (B, T + 1)
        target = data[:, 1:].contiguous()  # (B, T)
        given = target if self.both else data[:, :-1].contiguous()  # (B, T)
        source = Padded(given, torch.full((len(starts),), steps))
        return Labelled(source, starts, target, target.numel())
