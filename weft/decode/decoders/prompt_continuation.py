"""A language model after a prompt: its state, and steps that go on past the longest row it reads.

B rows   T steps of the prompt   P steps that are still seen   V words
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.batch import Padded


class SlidingState(NamedTuple):
    """What a decoder has read, as far as it sees it, and its own state after that."""

    seen: Tensor  # (B, P)
    inner: Any


class PromptContinuation:
    """Steps of a language model of any kind, from the end of a prompt.

    With a limit, that many steps have been read at some point; then the later half is read again
    as if the text began there, and the earlier one is forgotten.
    """

    def __init__(self, decoder: Any, limit: int | None = None):
        self.decoder, self.limit = decoder, limit

    @torch.no_grad()
    def start(self, ids: Tensor) -> Any:
        """The state after a prompt (B, T); the rows are of one length, which may be 0."""
        if self.limit is None:
            return self._read(ids)
        seen = ids[:, -self.limit :] if ids.shape[1] > self.limit else ids  # (B, P)
        return SlidingState(seen, self._read(seen))

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The scores (B, V) of the word after `ids` (B,), and the state that follows."""
        if not isinstance(state, SlidingState):
            return self.decoder.step(ids, state)
        seen, inner = state
        if seen.shape[1] == self.limit:
            seen = seen[:, seen.shape[1] - self.limit // 2 :]  # (B, P)
            inner = self._read(seen)
        scores, inner = self.decoder.step(ids, inner)  # (B, V)
        return scores, SlidingState(torch.cat([seen, ids[:, None]], dim=1), inner)

    def _read(self, ids: Tensor) -> Any:
        state = self.decoder.start(len(ids), ids.device)
        if not ids.shape[1]:
            return state
        rows = Padded(ids, torch.full((len(ids),), ids.shape[1]))
        if hasattr(self.decoder, "prefill"):
            return self.decoder.prefill(rows, state)[1]
        return self.decoder.carry(rows, state).state
