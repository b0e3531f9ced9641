"""What a decoder says of a memory: the loss of a text that is right, or the text it would write.

B rows   T steps of the target   S steps of the source   V words of the target
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.likelihood import chunked_loss, inputs, scheduled
from weft.decode.search import NO_RULES, search
from weft.decode.search_found import Hypothesis
from weft.decode.search_rules import Rules
from weft.decode.search_settings import Settings


@dataclass(frozen=True)
class SequenceScores:
    """A memory, and the decoder that reads it."""

    head: "Sequence"
    memory: Padded  # (B, S, H)

    def loss(
        self, target: Tensor, smoothing: float = 0.0, sampling: float = 0.0
    ) -> tuple[Tensor, int]:
        """The summed loss of target words (B, T, 1), -1 behind their end, and how many there are.

        `smoothing` spreads that share of the right answer over all words; `sampling` is the share
        of inputs that are the model's own words while it learns (Bengio et al. 2015).
        """
        ids = target[:, :, 0]  # (B, T)
        lengths = (ids >= 0).sum(1).cpu()
        right = Padded(ids.clamp(min=0), lengths)
        given = inputs(right, self.head.first)
        decoder = self.head.decoder
        if sampling and decoder.training:
            features = scheduled(decoder, given, decoder.start(self.memory), sampling)
        else:
            features = decoder.read(given, self.memory).features  # (B, T, F)
        words = decoder.words
        return chunked_loss(features, words.weight, words.bias, right, smoothing)

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The words of the best sequence of each row (T, 1), and the probability of each (T, 1)."""
        found = (row[0] for row in self.written(self.head.search))
        return [
            (np.array(one.ids, np.int64)[:, None], np.exp(np.array(one.logps, np.float64))[:, None])
            for one in found
        ]

    @torch.no_grad()
    def written(self, settings: Settings, rules: Rules = NO_RULES) -> list[list[Hypothesis]]:
        """The sequences of each row, best first."""
        head = self.head
        state = head.decoder.start(self.memory).shared()
        return search(
            head.decoder.step, state, settings, batch=len(self.memory), bos=head.first,
            eos=head.last, rules=rules,
        )  # fmt: skip


class Sequence(nn.Module):
    """A decoder in the place of a head: its answer is a text."""

    reads, task = "text", "seq2seq"

    def __init__(self, decoder: Any, search: Settings, first: int, last: int):
        super().__init__()
        self.decoder, self.search = decoder, search
        self.first, self.last = first, last  # the tokens that begin and end a text

    def forward(self, states: Padded) -> SequenceScores:
        return SequenceScores(self, states)
