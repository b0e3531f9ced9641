"""Texts from exported decoders, step by step: answers to sources, and continued prompts.

N rows   B prompts   T steps of a prompt   V words
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.batch.indexer import Row
from weft.decode.search.array_search import Arrays, ArrayStep, search
from weft.decode.search.results import Hypothesis
from weft.decode.search.rules import Constraints
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.export.runtime.session import Session
from weft.predict.generation.array_search import ArraySearch, NextTokenArrays
from weft.predict.generation.batch import GenerationBatch, check_whole
from weft.predict.output import EngineInput

if TYPE_CHECKING:
    from weft.export.runtime.engine import OnnxEngine

MAX_READ = 4096  # steps of all prompts that are read together
DTYPES = {"float32": np.float32, "int64": np.int64}


class StartedTexts(NamedTuple):
    """The state of a batch before the first word of its texts."""

    numbers: np.ndarray  # of the rows
    rows: list[Row]
    state: Arrays  # what every step replaces
    static: Arrays
    copied: int  # words that only the sources have


class SourceSearch(ArraySearch):
    """Answers to sources, by an encoder and the steps of a decoder."""

    def __init__(self, engine: "OnnxEngine"):
        gives = engine.info.gives
        super().__init__(gives["size"], gives["bos"])
        self.engine, self.eos = engine, gives["eos"]
        self.settings = SearchSettings(**gives["search"])
        self.rules = Constraints(forbidden=gives["forbidden"])

    def answer(self, start: StartedTexts) -> list[Hypothesis]:
        """Return the best text for each row, by the search of the model."""
        found = search(
            self._stepper(start), start.state, self.settings, batch=len(start.rows), bos=self.bos,
            eos=self.eos, rules=self.rules,
        )  # fmt: skip
        return [hypotheses[0] for hypotheses in found]

    def read_sources(
        self, inputs: Sequence[EngineInput], names: Sequence[str], settings: SearchSettings
    ) -> Iterator[tuple[Sequence[Row], GenerationBatch]]:
        if settings.coverage_penalty:
            raise UserError(
                "generate.coverage_penalty needs the attention of the decoder, which an export "
                "does not give. Use the model that it was made from."
            )
        for start in self.engine.start_texts(self.engine.index(inputs)):
            check_whole(start.rows, names, self.engine.indexer)
            yield (
                start.rows,
                GenerationBatch(
                    [row.text for row in start.rows], self._stepper(start), start.state, self.bos,
                    [[] for _ in start.rows], extra_ids=start.copied,
                ),
            )  # fmt: skip

    def _stepper(self, start: StartedTexts) -> ArrayStep:
        def step(ids: np.ndarray, state: Arrays, prompts: np.ndarray) -> tuple[np.ndarray, Arrays]:
            own = {name: value[prompts] for name, value in start.static.items()}
            return self.engine.advance_texts(ids, state, own, start.copied)

        return step


class ExportedSteps(NextTokenArrays):
    """A language model that reads ids from state to state."""

    def __init__(self, session: Session, graph: Mapping[str, Any]):
        self.session = session
        self.shapes = {
            name.removeprefix("state."): (DTYPES[dtype], shape)
            for name, (dtype, shape) in graph["inputs"].items()
            if name.startswith("state.")
        }

    def begin(self, batch: int) -> Arrays:
        # Sizes with a name, such as that of a cache, are 0 before the first step.
        return {
            name: np.zeros((batch, *(n if isinstance(n, int) else 0 for n in shape[1:])), dtype)
            for name, (dtype, shape) in self.shapes.items()
        }

    def feeds(self, ids: np.ndarray, state: Arrays, targets: np.ndarray) -> Arrays:
        """Return the inputs of the graph."""
        return {"ids": ids, "targets": targets, **{f"state.{n}": v for n, v in state.items()}}

    def read(self, ids: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        size = max(1, MAX_READ // len(ids))
        names = ["logits", *(f"next.{name}" for name in self.shapes)]
        unused = np.zeros((len(ids), 1), np.int64)  # targets
        for at in range(0, ids.shape[1], size):
            found = self.session(self.feeds(ids[:, at : at + size], state, unused), names)
            state = {name: found[f"next.{name}"] for name in self.shapes}
        return found["logits"], state
