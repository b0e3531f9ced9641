"""Masked language modelling batches, with new masks whenever a row comes again.

B rows   T steps of a window   M masked positions of a row, at most
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from weft.batch.bucketing import Position
from weft.batch.documents import Documents, Segments, segment_pairs, shuffle_pools, single_segments
from weft.batch.loader import BatchLoader, LabelledBatch
from weft.batch.padded import Padded
from weft.tokens.special_tokens import SpecialTokens

PREFETCH_BATCHES = 8  # batches prepared ahead
EXTRA_WHOLE_WORD_TOKENS = 8  # places that whole words may have beyond the share


@dataclass(frozen=True)
class Masking:
    """Masking settings and the layout of rows.

    Of the chosen tokens 80 % become `mask`, 10 % one of `words`, and 10 % stay as they are.
    """

    mask: int
    words: np.ndarray  # ids that may stand in the place of others: none that are special
    frame: SpecialTokens
    window: int = 128
    mask_fraction: float = 0.15  # of the tokens that are chosen
    whole_words: bool = False  # all tokens of a chosen word
    next_sentence: bool = True  # rows are two segments, of which the second follows or does not
    short_fraction: float = 0.1  # of the rows that are shorter on purpose
    long_window: int = 512  # for the last `long_share` of the training
    long_fraction: float = 0.0

    def capacity(self, window: int) -> int:
        """Return how many document tokens fit a window."""
        return window - self.frame.num_added(pair=self.next_sentence)

    def max_masked(self, window: int) -> int:
        """Return the maximum number of masked tokens in a row."""
        return (
            int(self.mask_fraction * self.capacity(window))
            + 1
            + (EXTRA_WHOLE_WORD_TOKENS if self.whole_words else 0)
        )


class MLMLabels(NamedTuple):
    """The labels of a masked batch, one row each."""

    is_random_next: Any  # (B,) 1 where the second segment does not follow the first
    num_masked: Any  # (B,) how many tokens of the whole batch are chosen
    num_rows: Any  # (B,) how many rows the whole batch has
    positions: Any  # (B, M) steps that are chosen, -1 behind the last
    ids: Any  # (B, M) what stood there, -1 behind the last

    @classmethod
    def of(cls, target: Any) -> "MLMLabels":
        """The parts of a target (B, 3+2*M)."""
        wide = (target.shape[1] - 3) // 2
        return cls(
            target[:, 0], target[:, 1], target[:, 2], target[:, 3 : 3 + wide], target[:, 3 + wide :]
        )


class MLMSample(NamedTuple):
    """The rows of one batch, before they are read."""

    segments: Segments
    window: int
    seed: tuple[int, ...]


class MLMLoader(BatchLoader):
    """Batches of segments of documents, all as wide as their window.

    What is drawn depends on the seed, the epoch and the number of the batch alone. With
    `long_share`, the last part of the training reads long windows, of which a batch holds fewer.
    """

    def __init__(
        self, documents: Documents, masking: Masking, *, rows: int, seed: int, epochs: int
    ):
        budget = rows * masking.window
        super().__init__(None, rows=rows, budget=budget, seed=seed, epochs=epochs)  # type: ignore[arg-type]
        self.documents, self.masking = documents, masking

    def __iter__(self) -> Iterator[tuple[LabelledBatch, Position]]:
        return _prefetch(super().__iter__())

    def sample(self, rows: int) -> LabelledBatch:
        """Return up to `rows` rows of the first batch, always the same ones."""
        first = next(self._plan(0))
        return self._batch(first._replace(segments=first.segments.select(slice(0, rows))))

    def _plan(self, epoch: int) -> Iterator[MLMSample]:
        draw = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = draw.permutation(self.documents.nonempty)
        number = 0
        for window, some in self._phases(epoch, order):
            for segments in self._batches(some, window, epoch, draw):
                yield MLMSample(segments, window, (self.seed, epoch, number))
                number += 1

    def _phases(self, epoch: int, order: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The window of each part of an epoch: the documents that are read long come last."""
        masking = self.masking
        if not masking.long_fraction:
            return [(masking.window, order)]
        tokens = np.cumsum(np.diff(self.documents.starts)[order])
        part = min(
            max(self._long_from_epoch - epoch, 0.0), 1.0
        )  # of this epoch, before it is turned to long
        cut = int(np.searchsorted(tokens, part * tokens[-1])) if part < 1 else len(order)
        return [(masking.window, order[:cut]), (masking.long_window, order[cut:])]

    def is_long(self, fraction: float) -> bool:
        """Return whether windows are long after this fraction of training."""
        return bool(self.masking.long_fraction) and fraction * self.epochs > self._long_from_epoch

    def long_is_ahead(self, fraction: float) -> bool:
        """Return whether long windows are still ahead after this fraction of training."""
        return bool(self.masking.long_fraction) and fraction * self.epochs <= self._long_from_epoch

    @cached_property
    def _long_from_epoch(self) -> float:
        """After how many epochs windows are long, so that the right share of batches is.

        From the same documents long windows need not make as many batches as short ones.
        """
        masking = self.masking
        some = next(shuffle_pools(self.documents, self.documents.nonempty), np.zeros(0, np.int64))
        short, long = (
            self._segments(some, window, (self.seed,)).size / self._batch_rows(window)
            for window in (masking.window, masking.long_window)
        )
        wanted = long * (1 - masking.long_fraction)
        return self.epochs * wanted / max(wanted + short * masking.long_fraction, 1e-9)

    def _batch_rows(self, window: int) -> int:
        """Return how many rows of a window a batch has."""
        return max(1, self.rows * self.masking.window // window)

    def _segments(self, some: np.ndarray, window: int, seed: Sequence[int]) -> Segments:
        capacity = self.masking.capacity(window)
        if self.masking.next_sentence:
            return segment_pairs(self.documents, some, capacity, self.masking.short_fraction, seed)
        return single_segments(self.documents, some, capacity, seed)

    def _batches(
        self, order: np.ndarray, window: int, epoch: int, draw: np.random.Generator
    ) -> Iterator[Segments]:
        rows, left = self._batch_rows(window), None
        for pool, some in enumerate(shuffle_pools(self.documents, order)):
            segments = self._segments(some, window, (self.seed, epoch, window, pool))
            segments = segments.select(draw.permutation(segments.size))
            left = segments if left is None else left + segments
            whole = left.size - left.size % rows
            for start in range(0, whole, rows):
                yield left.select(slice(start, start + rows))
            left = left.select(slice(whole, None))
        if left is not None and left.size:
            yield left

    def _batch(self, rows: MLMSample) -> LabelledBatch:
        ids, real, segments = self._read_rows(rows)  # (B, T), (B, T)
        begins = None
        if self.masking.whole_words:
            assert self.documents.begins is not None
            begins = np.ones(ids.shape, bool)
            begins[real] = np.concatenate(_segment_tokens(self.documents.begins, segments))
            begins[:, 1:] |= ~real[:, :-1]  # what is left of a word that a segment begins in
        draw = np.random.Generator(np.random.PCG64(list(rows.seed)))
        positions = choose_positions(real, begins, self.masking, rows.window, draw)  # (B, M)
        right = np.where(positions >= 0, np.take_along_axis(ids, positions.clip(0), 1), -1)
        mask_tokens(ids, positions, self.masking, draw)
        frame, sizes = self.masking.frame, _segment_lengths(segments)
        lengths = sizes.sum(1) + frame.num_added(pair=self.masking.next_sentence)
        second = len(frame.before) + sizes[:, 0] + len(frame.between)
        count = np.full((len(ids), 1), (positions >= 0).sum())
        target = [
            segments.is_random_next[:, None],
            count,
            np.full_like(count, len(ids)),
            positions,
            right,
        ]
        source = Padded(
            torch.from_numpy(ids), torch.from_numpy(lengths),
            second=torch.from_numpy(second) if self.masking.next_sentence else None,
        )  # fmt: skip
        return LabelledBatch(
            source, segments.first[:, 0], torch.from_numpy(np.concatenate(target, 1)), len(ids)
        )

    def _read_rows(self, rows: MLMSample) -> tuple[np.ndarray, np.ndarray, Segments]:
        """The ids (B, T) of rows in their frame, and where they are tokens of documents (B, T)."""
        frame, segments = self.masking.frame, rows.segments
        a, b = _segment_lengths(segments).T[:, :, None]  # (B, 1)
        steps = np.arange(rows.window)
        out = np.zeros((segments.size, rows.window), np.int64)
        out[:, : len(frame.before)] = frame.before
        begin = len(frame.before)
        real = (steps >= begin) & (steps < begin + a)
        if self.masking.next_sentence:
            _write_ids(out, frame.between, begin + a[:, 0])
            begin = begin + a + len(frame.between)
            real |= (steps >= begin) & (steps < begin + b)
            _write_ids(out, frame.after, (begin + b)[:, 0])
        else:
            _write_ids(out, frame.after, (begin + a)[:, 0])
        out[real] = np.concatenate(_segment_tokens(self.documents.ids, segments))
        return out, real, segments


def choose_positions(
    real: np.ndarray,
    begins: np.ndarray | None,
    masking: Masking,
    window: int,
    draw: np.random.Generator,
) -> np.ndarray:
    """(B, M) the steps of each row that are chosen among its real ones (B, T), -1 behind the last.

    Of n tokens `share` · n are, rounded up or down by chance, so that the share holds on average;
    at least one. Of whole words the one that would go beyond is taken by chance.
    """
    most = min(masking.max_masked(window), real.shape[1])
    wanted = masking.mask_fraction * real.sum(1)  # (B,)
    keys = draw.random(real.shape)  # (B, T)
    if begins is not None:
        words = np.cumsum(begins & real, axis=1)  # (B, T) the number of each token's word, from 1
        keys = np.take_along_axis(keys, words.clip(max=real.shape[1] - 1), 1)
    keys[~real] = 2.0
    some = min(most + 1, real.shape[1]) - 1
    order = np.argpartition(keys, some, axis=1)[:, : some + 1]  # (B, M+1) the lowest keys
    order = np.take_along_axis(order, np.argsort(np.take_along_axis(keys, order, 1), 1), 1)
    if begins is None:
        count = np.maximum((wanted + draw.random(len(real))).astype(np.int64), 1)  # (B,)
        count = np.minimum(count, real.sum(1))
        return np.where(np.arange(most) < count[:, None], order[:, :most], -1)
    there = np.take_along_axis(real, order, 1)
    taken = _choose_whole_words(np.take_along_axis(words, order, 1), wanted, most, draw) & there
    return np.where(taken, order, -1)[:, :most]


def _choose_whole_words(
    words: np.ndarray, wanted: np.ndarray, most: int, draw: np.random.Generator
) -> np.ndarray:
    """(B, K) which tokens are taken of words that come in this order, side by side.

    `own` (B, K) is the word of each; one that ends behind `most` is not taken.
    """
    new = np.ones((len(words), 1), bool)
    first = np.concatenate([new, words[:, 1:] != words[:, :-1]], axis=1)
    last = np.concatenate([first[:, 1:], new], axis=1)
    steps = np.arange(words.shape[1])
    start = np.maximum.accumulate(np.where(first, steps, 0), axis=1)  # (B, K) of the own word
    ends = np.where(last, steps + 1, words.shape[1])
    stop = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]  # (B, K)
    # With this chance for the word at the border, the expected number of tokens is the wanted one.
    prob = (wanted[:, None] - start) / (stop - start)
    luck = np.take_along_axis(draw.random(words.shape), start, 1)
    taken = (luck < prob) & (stop <= most)
    chosen: np.ndarray = taken | (~taken.any(1, keepdims=True) & (start == 0) & (stop <= most))
    return chosen


def mask_tokens(
    ids: np.ndarray, positions: np.ndarray, masking: Masking, draw: np.random.Generator
) -> None:
    """Replace ids (B, T) at positions (B, M) by masks and random words."""
    row, column = np.nonzero(positions >= 0)
    step = positions[row, column]
    # One from every n-th part of [0, 1), so that the shares hold in every batch, not on average.
    luck = (draw.permutation(len(row)) + draw.random(len(row))) / max(len(row), 1)
    other = masking.words[draw.integers(0, len(masking.words), len(row))]
    now = np.where(luck < 0.8, masking.mask, np.where(luck < 0.9, other, ids[row, step]))
    ids[row, step] = now


def _segment_lengths(segments: Segments) -> np.ndarray:
    """(B, 2) the tokens of both segments."""
    return np.stack([part[:, 1] - part[:, 0] for part in segments[:2]], 1)


def _segment_tokens(flat: Any, segments: Segments) -> list[np.ndarray]:
    """The tokens of rows, first and second segment in turn."""
    out = []
    for a, b, c, d in np.concatenate([segments.first, segments.second], 1).tolist():
        out += [flat.read(a, b), flat.read(c, d)] if d > c else [flat.read(a, b)]
    return out


def _write_ids(out: np.ndarray, ids: Sequence[int], steps: np.ndarray) -> None:
    """Put ids into each row of (B, T) from a step of its own on."""
    for i, one in enumerate(ids):
        out[np.arange(len(out)), steps + i] = one


def _prefetch(batches: Iterator[Any]) -> Iterator[Any]:
    """The same, made by a thread of its own, so that a device need not wait for the next."""
    ready: queue.Queue[Any] = queue.Queue(PREFETCH_BATCHES)
    over = threading.Event()

    def offer(item: Any) -> bool:
        while not over.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def work() -> None:
        try:
            for one in batches:
                if not offer((one, None)):
                    return
            offer((None, None))
        except BaseException as error:
            offer((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        while True:
            one, error = ready.get()
            if error is not None:
                raise error
            if one is None:
                return
            yield one
    finally:
        over.set()
