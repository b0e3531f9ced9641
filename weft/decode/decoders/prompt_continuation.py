"""Continue a prompt with a language model, sliding its window past the longest input.

B rows   T prompt steps   P steps in the window   V words
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput
from weft.protocols import State


class SlidingState(NamedTuple):
    """The ids in the window, and the decoder state after them."""

    seen: Tensor  # (B, P)
    inner: State


class NextTokenModel(Protocol):
    """A language model that can read a prompt and step: neural, or of n-grams."""

    def start(self, batch: int, device: torch.device | None = None) -> State: ...

    def prefill(self, ids: Padded, state: State) -> tuple[DecoderOutput | None, State]: ...

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]: ...


class PromptContinuation:
    """Steps of any language model from the end of a prompt.

    When `limit` steps have been read, the later half is read again as if the text began there, and
    the earlier half is dropped.
    """

    def __init__(self, decoder: NextTokenModel, limit: int | None = None):
        self.decoder, self.limit = decoder, limit

    @torch.no_grad()
    def start(self, ids: Tensor) -> State:
        """Return the state after a prompt (B, T); all rows have the same length, maybe 0."""
        if self.limit is None:
            return self._read(ids)
        seen = ids[:, -self.limit :] if ids.shape[1] > self.limit else ids  # (B, P)
        return SlidingState(seen, self._read(seen))

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        if not isinstance(state, SlidingState):
            return self.decoder.step(ids, state)
        seen, inner = state
        if seen.shape[1] == self.limit:
            seen = seen[:, seen.shape[1] - self.limit // 2 :]  # (B, P)
            inner = self._read(seen)
        logits, inner = self.decoder.step(ids, inner)  # (B, V)
        return logits, SlidingState(torch.cat([seen, ids[:, None]], dim=1), inner)

    def _read(self, ids: Tensor) -> State:
        state = self.decoder.start(len(ids), ids.device)
        if not ids.shape[1]:
            return state
        rows = Padded(ids, torch.full((len(ids),), ids.shape[1]))
        return self.decoder.prefill(rows, state)[1]
