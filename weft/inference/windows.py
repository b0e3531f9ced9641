"""Score the tokens of texts in windows that overlap as context, with any language model.

Importable without torch. N tokens of a text   W sub-tokens of a token
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from weft.batch.bucketing import order_batches

MAX_ROWS, MAX_TOKENS = 256, 32768  # per batch
SORTED_TEXTS = 8192  # independent texts sorted by length together
MAX_BLOCK_IDS = 2**20  # ids of running text in memory at a time


class ScoringWindow(NamedTuple):
    """A window of one text, and the tokens in it that are scored."""

    text: int
    low: int  # the first token in the window
    start: int  # the first token that is scored
    stop: int  # after the last that is scored
    high: int  # after the last in the window


@dataclass(frozen=True)
class WindowSettings:
    """The windows of a language model, and what stands before a text."""

    row_steps: int  # of a window
    new_steps: int  # of them, those that are scored
    is_bidirectional: bool
    bos_row: np.ndarray  # (1,) or (1, 1+W)


class MaskedRow(NamedTuple):
    """A row with its special tokens, and its masked steps."""

    ids: np.ndarray  # (T,)
    steps: list[int]
    offsets: np.ndarray | None = None  # (T, 2) of the tokens in the text; 0, 0 of special tokens


# Windows, the ids that each reads and the ids that it predicts -> the log-probabilities (R,) of the
# scored ones, window by window.
ScoreBatch = Callable[
    [Sequence[ScoringWindow], Sequence[np.ndarray], Sequence[np.ndarray]], np.ndarray
]


@dataclass(frozen=True)
class TextScorer:
    """Scores texts window by window with a function that scores a batch of windows."""

    settings: WindowSettings
    score_batch: ScoreBatch

    def score(self, texts: Iterable[np.ndarray], running: bool = False) -> Iterator[np.ndarray]:
        """Yield the log-probabilities (N,) of the ids (N,) of each text, in order.

        With `running` the texts are one continuous text; otherwise they are independent. Tokens
        with sub-tokens come as (N, 1+W).
        """
        stream = iter(texts)
        if running:
            yield from self._score_running(stream)
            return
        while chunk := list(islice(stream, SORTED_TEXTS)):
            yield from self._score_windows(
                [np.concatenate([self.settings.bos_row, ids]) for ids in chunk]
            )

    def _score_running(self, texts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Score block by block; each starts with the end of the previous one as context."""
        sizes = self.settings
        past = sizes.bos_row
        while block := _read_block(texts):
            text = np.concatenate([past, *block])
            (log_probs,) = self._score_windows([text], len(past) - 1)
            past = text[-(sizes.row_steps - sizes.new_steps + 1) :]
            yield from np.split(log_probs, np.cumsum([len(ids) for ids in block])[:-1])

    def _score_windows(self, texts: Sequence[np.ndarray], context: int = 0) -> list[np.ndarray]:
        """Return the log-probabilities of each text, without the first token and `context` more."""
        sizes = self.settings
        out = [np.zeros(max(len(ids) - 1 - context, 0), np.float32) for ids in texts]
        both = sizes.is_bidirectional
        rows = [
            row
            for i, ids in enumerate(texts)
            for row in split_windows(
                len(ids) - 1, context, sizes.row_steps, sizes.new_steps, both, i
            )
        ]
        lengths = np.array([row.high - row.low for row in rows], np.int64)
        for chosen in order_batches(lengths, rows=MAX_ROWS, budget=MAX_TOKENS):
            batch = [rows[i] for i in chosen]
            # Inputs are one step before the predicted tokens, unless both sides are read.
            inputs, targets = (
                [texts[r.text][r.low + 1 - back : r.high + 1 - back] for r in batch]
                for back in (0 if both else 1, 0)
            )
            scored = self.score_batch(batch, inputs, targets)
            ends = np.cumsum([row.stop - row.start for row in batch])
            for row, values in zip(batch, np.split(scored, ends[:-1]), strict=True):
                out[row.text][row.start - context : row.stop - context] = values
        return out


def reverse_text(tokens: np.ndarray) -> np.ndarray:
    """Reverse a text whose last token is the end marker, which stays last.

    The end marker also stands before a text, so a reversed text ends with it as well.
    """
    return np.concatenate([tokens[:-1][::-1], tokens[-1:]])


def _read_block(texts: Iterator[np.ndarray]) -> list[np.ndarray]:
    block, size = [], 0
    for ids in texts:
        block.append(ids)
        size += ids.size
        if size >= MAX_BLOCK_IDS:
            break
    return block


def split_windows(
    count: int, context: int, view: int, fresh: int, both: bool = False, text: int = 0
) -> Iterator[ScoringWindow]:
    """Yield windows over `count` tokens in which all but the first `context` are scored once.

    A window has at most `view` tokens; except in the first, only `fresh` of them are scored. With
    `both` sides read, the context is split between them.
    """
    start = context
    right = (view - fresh) // 2 if both else 0
    while start < count:
        capacity = fresh + right if start else view
        stop = count if count - start <= capacity else start + capacity - right
        high = min(stop + right, count)
        yield ScoringWindow(text, max(0, high - view), start, stop, high)
        start = stop
