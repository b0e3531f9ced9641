"""The steps of an exported decoder for the search of PyTorch, with all of its settings.

N rows of a state   B prompts   V words
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.batch.indexer import Row
from weft.decode.search.state import PerPrompt
from weft.export.runtime.engine import OnnxEngine, StartedTexts
from weft.predict.output import EngineInput

State = dict[str, Any]


class SourceBatch(NamedTuple):
    """A batch of encoded sources, and one step of their decoder."""

    rows: list[Row]
    step: Callable[[Tensor, State], tuple[Tensor, State]]
    state: State
    first: int  # id before a text
    extra_ids: int  # of words that only the sources have


def torch_batches(engine: OnnxEngine, inputs: Sequence[EngineInput]) -> Iterator[SourceBatch]:
    """Yield batches of sources that an export has encoded."""
    rows = engine.index(inputs)
    for start in engine.start_texts(rows):
        state = {
            "dynamic": {name: torch.from_numpy(one) for name, one in start.state.items()},
            "static": PerPrompt({n: torch.from_numpy(one) for n, one in start.static.items()}),
        }
        own = [rows.rows[i] for i in start.rows.tolist()]
        yield SourceBatch(own, _make_step(engine, start), state, engine.info.gives["bos"],
                          start.copied)  # fmt: skip


def _make_step(
    engine: OnnxEngine, start: StartedTexts
) -> Callable[[Tensor, State], tuple[Tensor, State]]:
    def step(ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the log-probabilities (N, V) of the word after ids (N,), and the next state."""
        before = {name: one.numpy() for name, one in state["dynamic"].items()}
        shared = state["static"].value  # (B, ...) of all beams of a prompt
        times = len(ids) // max(len(next(iter(shared.values()), ids)), 1)
        static = {name: one.repeat_interleave(times, 0).numpy() for name, one in shared.items()}
        scores, after = engine.advance_texts(ids.numpy(), before, static, start.copied)
        following = {name: torch.from_numpy(one) for name, one in after.items()}
        return torch.from_numpy(scores), {**state, "dynamic": following}

    return step
