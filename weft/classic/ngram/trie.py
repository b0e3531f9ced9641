"""An n-gram language model: log-probabilities and backoffs in one trie, however it was estimated.

M n-grams   I of them below the order N   V words, which are the first V n-grams   B rows   T steps
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.classic.ngram import kernels as kernels
from weft.classic.ngram.counts import Marks, Sentences, concatenate_sentences, in_parallel
from weft.classic.weights_io import WEIGHTS, damaged_file_error, read
from weft.machine import available_cpus
from weft.storage import atomic_write

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from weft.batch.padded import Padded

ALONE = 200_000  # up to so many scores, other threads cost more than they save
_ARRAYS = ("words", "first", "scores", "backoffs", "marks")


@dataclass(frozen=True)
class NGram:
    """p(word | history): the longest n-gram that was met, or a backoff and a shorter history.

    A state is (B, N − 1) numbers of n-grams: those that end the history, of 1, 2, … words, and −1
    where such an n-gram was never met. A history begins with `bos`.
    """

    words: np.ndarray  # (M,) int32: the last word of each n-gram
    first: np.ndarray  # (I + 1,) int32: where the n-grams that continue another one begin
    scores: np.ndarray  # (M,) float32: natural logarithms of probabilities
    backoffs: np.ndarray  # (I,) float32: what is added where a history does not know the word
    starts: tuple[int, ...]  # (N + 1,) where each order begins, and M
    marks: Marks

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """The vocabulary size."""
        return self.starts[1]

    def parameters(self) -> int:
        """The number of probabilities and backoffs."""
        return len(self.scores) + len(self.backoffs)

    def flat_scores(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities of all words and sentence ends, and where each sentence ends there."""
        ids, ends = concatenate_sentences(sentences, self.size, self.marks)
        into = np.empty(len(ids) + len(ends), dtype=np.float32)
        aims = np.searchsorted(ends, np.arange(1, available_cpus()) * len(ids) / available_cpus())
        cuts = [0, *aims.tolist(), len(ends)]
        marks = (self.marks.bos, self.marks.eos, self.order)
        arrays = (self.words, self.first, self.scores, self.backoffs)
        in_parallel(
            lambda begin, end: kernels.score(*arrays, marks, ids, ends, begin, end, into),
            list(pairwise(cuts)),
        )
        return into, ends + np.arange(1, len(ends) + 1)

    def sentence_scores(self, sentences: Sentences) -> list[np.ndarray]:
        """The log-probability of every word and then of the end, for each sentence."""
        into, ends = self.flat_scores(sentences)
        return np.split(into, ends[:-1]) if len(ends) else []

    def perplexity(self, sentences: Sentences) -> float:
        """exp of the mean negative log-probability of a token; the end of a sentence is one."""
        scores = self.flat_scores(sentences)[0].astype(np.float64)
        return math.exp(-scores.mean()) if np.isfinite(scores).all() else math.inf

    def start(self, batch: int, device: "torch.device | str | None" = None) -> "Tensor":
        """Return the state (B, N − 1) before the first step, whose input is `bos`."""
        import torch

        return torch.full((batch, self.order - 1), -1, dtype=torch.long, device=device)

    def step(self, ids: "Tensor", state: "Tensor") -> tuple["Tensor", "Tensor"]:
        """Log-probabilities (B, V) of what follows ids (B,), and the state after them."""
        import torch

        before, now = (each.contiguous().cpu().numpy() for each in (state, ids))
        nodes = self.follow(now[:, None], before)
        scores = torch.from_numpy(self.spread(nodes))  # (B, V)
        return scores.to(ids.device), torch.from_numpy(nodes).to(ids.device)

    def prefill(self, ids: "Padded", state: "Tensor") -> tuple[None, "Tensor"]:
        """The state after several steps at once, such as a prompt; nothing is scored.

        All rows have the same length.
        """
        import torch

        assert ids.full
        nodes = self.follow(ids.data.cpu().numpy(), state.contiguous().cpu().numpy())
        return None, torch.from_numpy(nodes).to(state.device)

    def follow(self, ids: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The state (B, N − 1) after ids (B, T), from the state before them."""
        # No n-gram is longer than these, and so older words change nothing.
        nodes = self._follow(ids[:, -self.order :], before)
        return nodes[-1] if len(nodes) else before

    def __call__(self, ids: "Padded") -> "Tensor":
        """Log-probabilities (B, T, V) of what follows each of the ids, which begin with `bos`."""
        import torch

        data = ids.data.cpu().numpy()  # (B, T)
        nodes = self._follow(data, self.start(len(data)).numpy())  # (T, B, N - 1)
        rows = nodes.transpose(1, 0, 2).reshape(data.size, self.order - 1)
        scores = torch.from_numpy(self.spread(rows)).view(*data.shape, self.size)  # (B, T, V)
        return scores.to(ids.data.device)

    def _follow(self, ids: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The states (T, B, N − 1) after each of the ids (B, T)."""
        nodes = np.empty((ids.shape[1], *before.shape), dtype=np.int64)
        for t, now in enumerate(nodes):
            kernels.follow(self.words, self.first, before, ids[:, t].copy(), now)
            before = now
        return nodes

    def spread(self, nodes: np.ndarray) -> np.ndarray:
        """Log-probabilities (B, V) of all words after states (B, N − 1)."""
        into = np.empty((len(nodes), self.size), dtype=np.float32)
        arrays = (self.words, self.first, self.scores, self.backoffs)
        if into.size < ALONE:
            kernels.spread(*arrays, nodes, 0, len(nodes), into)
            return into
        cuts = np.linspace(0, len(nodes), available_cpus() + 1).astype(int).tolist()
        spans = list(pairwise(cuts))
        in_parallel(lambda begin, end: kernels.spread(*arrays, nodes, begin, end, into), spans)
        return into

    def save(self, folder: Path) -> None:
        """Write weights.safetensors."""
        from safetensors.numpy import save_file

        marks = np.array([*list(asdict(self.marks).values())[:4], *self.marks.others], np.int64)
        arrays = {name: getattr(self, name) for name in _ARRAYS[:-1]}
        with atomic_write(folder / WEIGHTS) as part:
            save_file({**arrays, "marks": marks}, part)

    @classmethod
    def load(cls, folder: Path) -> "NGram":
        """The model that `save` wrote."""
        arrays = read("ngram", folder / WEIGHTS, _ARRAYS)
        trouble = _trouble(**arrays)
        if trouble:
            raise damaged_file_error("ngram", folder / WEIGHTS, trouble)
        pad, unk, bos, eos, *others = arrays.pop("marks").tolist()
        size = int(arrays["first"][0])
        starts = order_starts(arrays["first"], size, len(arrays["words"]))
        return cls(**arrays, starts=starts, marks=Marks(pad, unk, bos, eos, tuple(others)))


def order_starts(first: np.ndarray, size: int, total: int) -> tuple[int, ...]:
    """Return the start of each order in a trie of `total` n-grams with `size` unigrams."""
    starts = [0, size]
    while starts[-1] < total:
        starts.append(int(first[starts[-1]]))
    return tuple(starts)


def _trouble(
    words: np.ndarray,
    first: np.ndarray,
    scores: np.ndarray,
    backoffs: np.ndarray,
    marks: np.ndarray,
) -> str:
    """Why compiled code may not run on these arrays; '' where it may."""
    wanted: Iterable[tuple[np.ndarray, type]] = (
        (words, np.int32),
        (first, np.int32),
        (scores, np.float32),
        (backoffs, np.float32),
        (marks, np.int64),
    )
    if any(array.ndim != 1 or array.dtype != kind for array, kind in wanted):
        return "its arrays are not of the kinds they should be"
    if len(words) != len(scores) or len(first) != len(backoffs) + 1 or len(marks) < 4:
        return "its arrays are not of the lengths they should be"
    size = int(first[0])
    if not 0 < size <= len(words) or first[-1] != len(words) or (np.diff(first) < 0).any():
        return "its n-grams do not form a tree"
    # Each order ends where a node's children begin; the last has none.
    starts, inner = [0, size], len(backoffs)
    while starts[-1] <= inner and first[starts[-1]] > starts[-1] and starts[-1] < len(words):
        starts.append(int(first[starts[-1]]))
    if starts[-1] != len(words) or starts[-2] != inner:
        return "its n-grams do not form a tree"
    if words.min() < 0 or words.max() >= size or marks.min() < 0 or marks.max() >= size:
        return f"it holds words that are not below {size}"
    return ""
