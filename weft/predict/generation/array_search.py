"""Text from steps over arrays: n-gram models and exports, without torch.

N rows   B prompts   T steps of a prompt   V words
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from weft.batch.indexer import Row
from weft.decode.search.array_search import Arrays, search, stream
from weft.decode.search.results import Hypothesis, StreamDelta
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.predict.generation.batch import GenerationBatch, TextSearch, first_input
from weft.predict.output import EngineInput
from weft.tasks.target_vocabulary import TargetVocabulary

SEEN = "seen"  # the ids (N, P) in the window of a state


class ArraySearch(TextSearch):
    """The searches of NumPy."""

    members = ()

    def __init__(self, size: int, bos: int, limit: int | None = None):
        self.size, self.bos, self.limit = size, bos, limit

    def read_prompts(self, ids: Sequence[Sequence[int]]) -> GenerationBatch:
        raise UserError("This model answers a source; it does not continue texts.")

    def read_sources(
        self, inputs: Sequence[EngineInput], names: Sequence[str], settings: SearchSettings
    ) -> Iterator[tuple[Sequence[Row], GenerationBatch]]:
        raise UserError("This model continues texts; it does not answer a source.")

    def search(
        self, job: GenerationBatch, settings: SearchSettings, eos: int
    ) -> list[list[Hypothesis]]:
        return search(
            job.step, job.state, settings, batch=len(job.rows), bos=job.first, eos=eos,
            rules=job.rules,
        )  # fmt: skip

    def stream(
        self, job: GenerationBatch, settings: SearchSettings, eos: int
    ) -> Iterator[list[StreamDelta]]:
        yield from stream(
            job.step, job.state, settings, batch=len(job.rows), bos=job.first, eos=eos,
            rules=job.rules,
        )  # fmt: skip


class NextTokenArrays(Protocol):
    """A language model that reads ids and steps, over arrays."""

    def begin(self, batch: int) -> Arrays:
        """Return the state before the first id."""

    def read(self, ids: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        """Return the logits (B, V) of what follows ids (B, T), and the state after them."""


class PromptSearch(ArraySearch):
    """Searches from the end of a prompt, with a window that slides.

    When `limit` steps have been read, the later half is read again as if the text began there, and
    the earlier half is dropped.
    """

    def __init__(self, model: NextTokenArrays, size: int, bos: int, limit: int | None = None):
        super().__init__(size, bos, limit)
        self.model = model

    def read_prompts(self, ids: Sequence[Sequence[int]]) -> GenerationBatch:
        read = np.array(ids, np.int64)  # (B, T)
        seen = read[:, :-1]
        if self.limit is None:
            state = self._read_all(seen)
        else:
            state = self._read_all(seen[:, -self.limit :]) | {SEEN: seen[:, -self.limit :]}
        before = [list(one[1:]) for one in ids]
        return GenerationBatch(list(range(len(ids))), self._step, state, read[:, -1], before)

    def _read_all(self, ids: np.ndarray) -> Arrays:
        state = self.model.begin(len(ids))
        return self.model.read(ids, state)[1] if ids.shape[1] else state

    def _step(
        self, ids: np.ndarray, state: Arrays, prompts: np.ndarray
    ) -> tuple[np.ndarray, Arrays]:
        if self.limit is None:
            return self.model.read(ids[:, None], state)
        seen = state[SEEN]
        inner = {name: value for name, value in state.items() if name != SEEN}
        if seen.shape[1] == self.limit:
            seen = seen[:, seen.shape[1] - self.limit // 2 :]
            inner = self._read_all(seen)
        logits, inner = self.model.read(ids[:, None], inner)
        return logits, inner | {SEEN: np.concatenate([seen, ids[:, None]], 1)}


class NGrams(Protocol):
    """An n-gram model: its states are the n-grams (B, N − 1) that end a history."""

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""

    @property
    def size(self) -> int:
        """The vocabulary size."""

    @property
    def marks(self) -> Any:
        """The ids of special tokens."""

    def follow(self, ids: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return the states after ids (B, T)."""

    def spread(self, nodes: np.ndarray) -> np.ndarray:
        """Return the log-probabilities (B, V) of all words after the states."""


class NGramSteps(NextTokenArrays):
    """The steps of an n-gram model."""

    def __init__(self, ngrams: NGrams):
        self.ngrams = ngrams

    def begin(self, batch: int) -> Arrays:
        return {"nodes": np.full((batch, self.ngrams.order - 1), -1, np.int64)}

    def read(self, ids: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        nodes = self.ngrams.follow(ids, np.ascontiguousarray(state["nodes"]))
        return self.ngrams.spread(nodes), {"nodes": nodes}


def ngram_search(ngrams: NGrams, space: TargetVocabulary) -> PromptSearch:
    """Return the search of an n-gram model."""
    return PromptSearch(NGramSteps(ngrams), ngrams.size, first_input(space, ngrams.marks.bos))
