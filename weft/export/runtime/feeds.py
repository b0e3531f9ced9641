"""Rows of an indexer -> the input arrays of a graph, batch by batch.

B rows   T steps   D distinct words   W sub-tokens of a word   N windows   S steps of a window
P steps of a word
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.batch.bucketing import order_batches
from weft.batch.indexer import Row
from weft.batch.ragged import pad
from weft.export.runtime.metadata import Reads
from weft.export.runtime.trees import tree_feeds
from weft.tokens.truncate import split_word_windows

MAX_ROWS, MAX_STEPS = 256, 4096  # of a batch: a larger one leaves the cache of a CPU
# A graph computes the padding, too. Of a thousand texts of 1 to 256 tokens, MiniLM needs a third of
# the time that batches cut by their size alone take (bench/export.py).
MAX_PADDING, FEW_ROWS = 0.1, 4
SECOND = "_2"  # ending of the inputs of a second text
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class RowBatches:
    """Rows that a graph reads in batches of similar length."""

    rows: Sequence[Row]
    pairs: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> np.ndarray:
        """The number of steps (R,) of each row."""
        return np.array([len(row.ids) for row in self.rows], np.int64)

    def batches(self, max_padding: float = MAX_PADDING) -> Iterator[np.ndarray]:
        """Yield the numbers of the rows of each batch."""
        return order_batches(
            self.lengths, rows=MAX_ROWS, budget=MAX_STEPS, max_padding=max_padding, few=FEW_ROWS
        )


def build_feeds(rows: Sequence[Row], reads: Reads, pairs: bool) -> Arrays:
    """Return the inputs of a graph for a batch of rows."""
    if not reads.is_bi_encoder:
        feeds = _side_feeds(rows, [slice(None)] * len(rows), reads)
        if pairs:
            feeds["second"] = np.array([row.second for row in rows], np.int64)
        elif reads.input_kind == "pairs":  # one text: no step is of a second one
            feeds["second"] = feeds["lengths"]
        return feeds
    if not pairs:  # one text: the other side reads its first step, and nobody reads that
        feeds = _side_feeds(rows, [slice(None)] * len(rows), reads)
        return feeds | _side_feeds(rows, [slice(0, 1)] * len(rows), reads, SECOND)
    return _side_feeds(rows, [slice(0, row.second) for row in rows], reads) | _side_feeds(
        rows, [slice(row.second, None) for row in rows], reads, SECOND
    )


def _side_feeds(
    rows: Sequence[Row], parts: Sequence[slice], reads: Reads, side: str = ""
) -> Arrays:
    """Return the inputs that are made of some steps of each row."""
    ids = [row.ids[part] for row, part in zip(rows, parts, strict=True)]
    lengths = np.array([len(one) for one in ids], np.int64)
    padded = pad(ids, lengths)
    feeds = {f"lengths{side}": lengths, "vectors" if reads.features else f"ids{side}": padded}
    if reads.input_kind == "trees":
        feeds |= tree_feeds(rows, padded.shape[1], reads.arity)
    kinds = len(rows[0].subtokens) if rows else 0
    for kind in range(kinds):
        words = [row.subtokens[kind][part] for row, part in zip(rows, parts, strict=True)]
        if reads.subwords and kind == 0:
            feeds |= subword_feeds(words, reads)
        else:
            feeds |= _spelling_feeds(words, lengths, f"{kind - reads.subwords}{side}")
    return feeds


def _spelling_feeds(
    rows: Sequence[Sequence[Sequence[int]]], lengths: np.ndarray, name: str
) -> Arrays:
    """Return each distinct word once, after an empty one for the padding, and where it stands."""
    numbers: dict[tuple[int, ...], int] = {(): 0}
    index = [
        np.array([numbers.setdefault(tuple(word), len(numbers)) for word in row], np.int64)
        for row in rows
    ]
    words = [np.array(word, np.int64) for word in numbers]
    sizes = np.array([len(word) for word in words], np.int64)
    return {f"spelled_{name}": pad(words, sizes), f"spelling_{name}": pad(index, lengths)}


def subword_feeds(rows: Sequence[Sequence[Sequence[int]]], reads: Reads) -> Arrays:
    """Return the sub-tokens of words in their frame, and the steps of each word.

    Sub-tokens are counted from 1. A row that is longer than the network reads becomes windows that
    overlap.
    """
    frame = reads.special_tokens()
    before, after = len(frame.before), frame.after
    most = None if reads.max_positions is None else reads.max_positions - before - len(after)
    word_steps: list[list[tuple[int, range]]] = []  # the window of each word, and its steps there
    windows: list[np.ndarray] = []
    for row in rows:
        sizes = [len(word) for word in row]
        whole = most is None or sum(sizes) <= most
        parts = [(0, len(row), 0, len(row))] if whole else split_word_windows(sizes, most or 0)
        own: list[tuple[int, range]] = []
        for start, stop, first, last in parts:
            begins = np.cumsum([before, *sizes[start:stop]]).tolist()[first - start : last - start]
            for at, size in zip(begins, sizes[first:last], strict=True):
                steps = _pooled_steps(range(at, at + size), reads.subword_pooling)
                own.append((len(windows), steps))
            pieces = [i - 1 for word in row[start:stop] for i in word]
            windows.append(np.array([*frame.before, *pieces, *after], np.int64))
        word_steps.append(own)
    lengths = np.array([len(one) for one in windows], np.int64)
    longest = int(lengths.max())
    widest = max((len(steps) for row in word_steps for _, steps in row), default=1)
    index = np.full((len(rows), max(map(len, rows)), widest), -1, np.int64)
    for row_index, own in zip(index, word_steps, strict=True):
        for word_index, (window, steps) in zip(row_index, own, strict=False):
            word_index[: len(steps)] = np.array(steps) + window * longest
    return {"steps": pad(windows, lengths), "step_lengths": lengths, "word_steps": index}


def _pooled_steps(steps: range, pooling: str) -> range:
    """Return the steps of a word that its vector is made of."""
    return steps if pooling == "mean" else steps[:1] if pooling == "first" else steps[-1:]
