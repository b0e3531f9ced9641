"""Language-model windows over one long token stream.

B rows   T steps of a window   W subtokens of a token
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from weft.batch.loader import BatchLoader, LabelledBatch
from weft.batch.padded import Padded
from weft.batch.token_store import MAX_MEMORY_BYTES, SpillArray


class TokenTypes:
    """The distinct tokens of a text as they stand there: the id of each, and its pieces.

    Two that are written differently have two numbers, though their id may be one.
    """

    def __init__(self, encode_subtokens: Callable[[Sequence[str]], list[list[int]]]):
        self.encode_subtokens = encode_subtokens
        self._numbers: dict[tuple[int, str], int] = {}
        self._rows = np.zeros((1024, 1), np.int32)  # each an id and its pieces, 0 = none

    def numbers(self, ids: Sequence[int], words: Sequence[str]) -> np.ndarray:
        """(T,) which form each token has."""
        numbers = self._numbers
        return np.array([
            number if (number := numbers.get(form)) is not None else self._add(form)
            for form in zip(ids, words, strict=True)
        ], np.int32)  # fmt: skip

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """(..., 1+W) the id of each form, then its pieces."""
        rows: np.ndarray = self._rows[numbers].astype(np.int64)
        return rows

    def _add(self, form: tuple[int, str]) -> int:
        (subtokens,) = self.encode_subtokens([form[1]])
        number, (capacity, wide) = len(self._numbers), self._rows.shape
        if number == capacity or len(subtokens) >= wide:
            more = (capacity if number == capacity else 0, max(len(subtokens) + 1 - wide, 0))
            self._rows = np.pad(self._rows, ((0, more[0]), (0, more[1])))
        self._rows[number, : len(subtokens) + 1] = [form[0], *subtokens]
        self._numbers[form] = number
        return number

    def __len__(self) -> int:
        return len(self._numbers)


class TokenStream:
    """The ids of many texts, one after the other, behind the one that stands before them all.

    With `forms` a token is more than its id, and the numbers of their forms are kept.
    """

    def __init__(
        self,
        first: int,
        folder: Path | None = None,
        memory: int = MAX_MEMORY_BYTES,
        token_types: TokenTypes | None = None,
    ):
        self.ids = SpillArray(np.int32, folder, memory)
        self.token_types = token_types
        self.ids.extend(
            np.array([first], np.int32)
            if token_types is None
            else token_types.numbers([first], [""])
        )
        self._starts, self._lines = array("q"), array("q")

    def append(self, ids: np.ndarray, line: int = 0, words: Sequence[str] = ()) -> None:
        """Add one text; where forms are kept, with its tokens as they are written."""
        self._starts.append(len(self))
        self._lines.append(line)
        self.ids.extend(
            ids if self.token_types is None else self.token_types.numbers(ids.tolist(), words)
        )

    def append_all(self, ids: np.ndarray, ends: np.ndarray, lines: Sequence[int]) -> None:
        """Add several texts: their ids (N,), where each of them ends, and their lines."""
        assert self.token_types is None
        self._starts.extend((np.append(0, ends[:-1]) + len(self)).tolist())
        self._lines.extend(lines)
        self.ids.extend(ids)

    def close(self) -> "TokenStream":
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
        """The number of tokens to predict."""
        return self.ids.size - 1


class LMWindow(NamedTuple):
    """The starts and the length of the rows of a batch."""

    starts: np.ndarray  # (B,)
    steps: int
    back: np.ndarray | None = None  # (B,) where those begin that are read from the end


class LMLoader(BatchLoader):
    """Batches of windows of a stream: contiguous rows in order, or shuffled.

    In order, the stream is cut into as many parts as there are rows, and a row of a batch goes on
    where the same row of the batch before has ended, so that a state can be carried along.
    Shuffled, the cuts lie elsewhere in each epoch. All rows have the same length and no token is
    left out: parts that would be shorter begin a little earlier, in what was already read.

    A stream of forms is read both ways: while one direction goes through a part of the stream from
    its beginning, the other goes through it from its end, so that both can carry their state. At
    every step there is one token of each, (B, T, 2, 1+W), and the id that follows it, (B, T, 2).
    """

    def __init__(
        self,
        stream: TokenStream,
        *,
        rows: int,
        window: int,
        seed: int,
        epochs: int,
        in_order: bool,
        targets_in_input: bool = False,
    ):
        super().__init__(None, rows=rows, budget=rows * window, seed=seed, epochs=epochs)  # type: ignore[arg-type]
        self.stream, self.window = stream, window
        self.in_order, self.targets_in_input = (
            in_order,
            targets_in_input,
        )  # bidirectional: inputs include targets

    def _plan(self, epoch: int) -> Iterator[LMWindow]:
        return self._in_order_windows() if self.in_order else self._shuffled_windows(epoch)

    def _in_order_windows(self) -> Iterator[LMWindow]:
        size, rows = len(self.stream), self.rows
        steps = -(-size // rows)
        starts = np.linspace(0, size - steps, rows).astype(np.int64)
        for start in range(0, steps, self.window):
            now = min(self.window, steps - start)
            yield LMWindow(starts + start, now, starts + steps - start - now)

    def _shuffled_windows(self, epoch: int) -> Iterator[LMWindow]:
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        size = len(self.stream)
        starts = np.arange(-int(random.integers(self.window)), size, self.window)
        starts = random.permutation(np.unique(starts.clip(0, size - self.window)))
        for row in range(0, len(starts), self.rows):
            yield LMWindow(starts[row : row + self.rows], self.window)

    def sample(self, rows: int, steps: int) -> LabelledBatch:
        """Return up to `rows` windows of up to `steps` steps, spread evenly over the stream."""
        steps = min(steps, self.window, len(self.stream))
        room = len(self.stream) - steps
        starts = np.unique(np.linspace(0, room, min(rows, room + 1)).astype(np.int64))
        return self._batch(LMWindow(starts, steps, starts))

    def _batch(self, rows: LMWindow) -> LabelledBatch:
        starts, steps, back = rows
        if self.stream.token_types is not None:
            assert back is not None, "both ways are read in order"
            return self._bidirectional_batch(self.stream.token_types, starts, back, steps)
        ids = np.stack([self.stream.read(start, steps) for start in starts.tolist()])
        data = torch.from_numpy(ids.astype(np.int64))  # (B, T + 1)
        target = data[:, 1:].contiguous()  # (B, T)
        inputs = target if self.targets_in_input else data[:, :-1].contiguous()  # (B, T)
        source = Padded(inputs, torch.full((len(starts),), steps))
        return LabelledBatch(source, starts, target, target.numel())

    def _bidirectional_batch(
        self, forms: TokenTypes, starts: np.ndarray, back: np.ndarray, steps: int
    ) -> LabelledBatch:
        ahead = [self.stream.read(start, steps) for start in starts.tolist()]
        turned = [self.stream.read(start, steps)[::-1] for start in back.tolist()]
        tokens = forms.rows(np.stack([np.stack(ahead), np.stack(turned)], axis=2))
        data = torch.from_numpy(tokens)  # (B, T+1, 2, 1+W)
        target = data[:, 1:, :, 0].contiguous()  # (B, T, 2)
        source = Padded(data[:, :-1].contiguous(), torch.full((len(starts),), steps))
        return LabelledBatch(source, starts, target, len(starts) * steps)
