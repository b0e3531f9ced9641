"""Word vectors on a GPU: the tables go there, the text passes by in parts, the tables come back.

Some hundred programs learn at once, each from its own stretch of the text, and all add to the
same tables. A row that many of them move at the same time would be pushed by each towards the
same goal and go past it; how often that happens follows from the word's frequency, and such rows
are moved less, as in `kernels_pieces.merge`.

V words   N words of a part   S sentences
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import UserError
from weft.vectors import sampling as aims
from weft.vectors.kernels.fasttext import PULL

if TYPE_CHECKING:
    from weft.runtime import Runtime
    from weft.vectors.corpus import Corpus
    from weft.vectors.kernels.word2vec import SubwordTables, Targets, Weights
    from weft.vectors.word2vec import Word2VecSettings

PART = 4_000_000  # words at a time, at least
PROGRAMS = 528  # that learn at once; more are faster, and further apart from one another
SAME = 16  # rows of a word's pieces together

Chunk = tuple[int, int, float, float]  # sentences and rates, from … to


class Gpu:
    """The tables of a training on a GPU."""

    def __init__(
        self,
        corpus: Corpus,
        settings: Word2VecSettings,
        weights: Weights,
        targets: Targets,
        pieces: SubwordTables | None,
        runtime: Runtime,
    ) -> None:
        self.corpus, self.settings, self.weights = corpus, settings, weights
        self.runtime, self.device = runtime, runtime.device
        self.kept = torch.from_numpy(aims.keep(corpus.counts, settings.sample) / 2.0**32)
        self.kept = self.kept.to(self.device, torch.float32)  # (V,)
        self.width = max(16, _power(settings.width))
        self.inputs = self._there(weights.inputs)
        self.outputs = self._there(weights.outputs)
        self.sure = torch.from_numpy(targets.sure.astype(np.int64)).to(self.device)
        self.alias = torch.from_numpy(targets.alias).to(self.device)
        self.pieces = None
        if pieces is not None:
            self.pieces = tuple(
                torch.from_numpy(array).to(self.device) for array in (pieces.ends, pieces.rows)
            )
        self.random = torch.Generator(self.device)
        self.random.manual_seed(settings.seed)
        moves_in, moves_out = _moves(corpus, settings, pieces)
        self.moves_in = torch.from_numpy(moves_in).to(self.device, torch.float32)
        self.moves_out = torch.from_numpy(moves_out).to(self.device, torch.float32)

    def run(self, chunks: Iterable[Chunk], watch: Callable[[int], None]) -> None:
        """Learn from one part after the other, and bring the tables back."""
        for number, part in enumerate(self._parts(chunks)):
            ids, ends = self._part(part)
            self.learn(ids, ends, part[0][2], part[-1][3], number)
            watch(len(ids))
        self.runtime.wait()
        for mine, theirs in (
            (self.inputs, self.weights.inputs),
            (self.outputs, self.weights.outputs),
        ):
            width = min(self.width, theirs.shape[1])
            theirs[:, :width] = mine[:, :width].cpu().numpy()

    def compile(self) -> None:
        """Build the program, or find what was built, by learning nothing from three words."""
        ids = torch.zeros(3, dtype=torch.int32, device=self.device)
        self.learn(ids, torch.tensor([3], device=self.device), 0.0, 0.0, 0)
        self.runtime.wait()

    def learn(self, ids: Tensor, ends: Tensor, start: float, stop: float, number: int) -> None:
        """One pass over a part: thin out frequent words, then learn from the windows."""
        ids, left, right = self._windows(ids, ends)
        self._launch(ids, left, right, start, stop, number)

    def _parts(self, chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
        """Chunks together until they have the words of a part."""
        part: list[Chunk] = []
        words = 0
        for chunk in chunks:
            part.append(chunk)
            words += self._stop(chunk[1]) - self._stop(chunk[0])
            if words >= PART:
                yield part
                part, words = [], 0
        if part:
            yield part

    def _part(self, chunks: Sequence[Chunk]) -> tuple[Tensor, Tensor]:
        """The ids of some chunks, one after the other, and where their sentences end."""
        ids, ends, before = [], [], 0
        for first, last, _, _ in chunks:
            begin, stop = self._stop(first), self._stop(last)
            ids.append(self.corpus.ids[begin:stop])
            ends.append(self.corpus.ends[first:last] - begin + before)
            before += stop - begin
        joined = [torch.from_numpy(np.concatenate(arrays)) for arrays in (ids, ends)]
        for first, last, _, _ in chunks:
            self.corpus.forget(first, last)
        return tuple(array.to(self.device) for array in joined)  # type: ignore[return-value]

    def _stop(self, sentence: int) -> int:
        """Return the end of the sentences before this one."""
        return int(self.corpus.ends[sentence - 1]) if sentence else 0

    def _windows(self, ids: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The words that stay, and the window of each: from `left` to before `right`."""
        stays = torch.rand(len(ids), generator=self.random, device=self.device) < self.kept[ids]
        before = torch.cat([stays.new_zeros(1, dtype=torch.int64), stays.cumsum(0)])  # (N + 1,)
        ends = before[ends]  # (S,)
        ids = ids[stays]
        here = torch.arange(len(ids), device=self.device)
        sentence = torch.searchsorted(ends, here, right=True)
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        reach = torch.randint(
            1, self.settings.window + 1, here.shape, generator=self.random, device=self.device
        )
        left = torch.maximum(here - reach, begins[sentence])
        right = torch.minimum(here + reach + 1, ends[sentence])
        return ids, left.int(), right.int()

    def _launch(
        self, ids: Tensor, left: Tensor, right: Tensor, start: float, stop: float, number: int
    ) -> None:
        from weft.vectors.kernels.triton import pieces, windows

        settings = self.settings
        calm_in, calm_out = (
            _calm(n, PULL * max(start, 1e-9)) for n in (self.moves_in, self.moves_out)
        )
        common = (
            ids, left, right, len(ids), self.inputs, self.outputs, calm_in, calm_out,
            self.sure, self.alias, len(self.sure), start, stop - start,
            settings.seed * 1_000_003 + number,
        )  # fmt: skip
        around = max(16, _power(2 * settings.window))
        shape: dict[str, Any] = {
            "NEGATIVE": settings.negative, "A": around, "W": self.width, "num_stages": 1,
        }  # fmt: skip
        drawn, warps = _power(settings.negative + 1), max(1, self.width // 128)
        if self.pieces is None:
            shape |= {"G": max(16, drawn), "num_warps": warps}
            windows[(PROGRAMS,)](*common, AVERAGED=settings.method == "cbow", **shape)
        else:
            shape |= {"K": drawn, "P": SAME, "num_warps": min(4 * warps, 16)}
            pieces[(PROGRAMS,)](*common, *self.pieces, **shape)

    def _there(self, table: np.ndarray) -> Tensor:
        """A table on the GPU, its rows as wide as a power of two."""
        wide = torch.zeros(len(table), self.width, device=self.device)
        width = min(self.width, table.shape[1])
        wide[:, :width] = torch.from_numpy(table[:, :width]).to(self.device)
        return wide


def usable(runtime: Runtime, settings: Word2VecSettings) -> None:
    """Refuse what the GPU does not do here, before any work is done."""
    if settings.deterministic:
        raise UserError("--deterministic needs the processor: leave --device out, or use cpu.")
    if settings.loss != "negative":
        raise UserError("Hierarchical softmax needs the processor: leave --device out, or use cpu.")
    try:
        import triton  # noqa: F401
    except ImportError:
        raise UserError(
            f"Word vectors on '{runtime.device}' need Triton, which comes with torch for NVIDIA "
            "GPUs on Linux. Leave --device out."
        ) from None


def _moves(
    corpus: Corpus, settings: Word2VecSettings, pieces: SubwordTables | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many programs update each input and output row at once."""
    noise = (settings.negative, settings.power)
    around, aimed = aims.moves(corpus.counts, settings.sample, settings.window, noise)
    if pieces is None:
        return PROGRAMS * around, PROGRAMS * aimed
    words = settings.window + 1  # in a window, at the mean
    rows = np.zeros(int(pieces.rows.max()) + 1)
    np.add.at(rows, pieces.rows, np.repeat(around / words, np.diff(pieces.ends, prepend=0)))
    return PROGRAMS * rows, PROGRAMS * words * aimed


def _calm(moves: Tensor, pull: float) -> Tensor:
    """Return the fraction of n simultaneous updates to keep, for a step of 1 − e^(−n·pull)."""
    way = (moves * pull).clamp(min=1e-6)
    return -torch.expm1(-way) / way


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << max(number - 1, 0).bit_length()
