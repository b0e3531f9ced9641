"""What a decoder says of a memory: the loss of a text that is right, or the text it would write.

B rows   T steps of the target   S steps of the source   V words of the target
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.decoders.packed import pack_step
from weft.decode.decoders.pointer_generator import PointerGenerator
from weft.decode.losses import chunked_loss, scheduled_sampling, shift_right
from weft.decode.search.constraints import Constraints
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.search import NO_CONSTRAINTS, search
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError


@dataclass(frozen=True)
class Seq2SeqOutput:
    """A memory, or what one can be made of, and the decoder that reads it."""

    head: "Seq2SeqHead"
    given: Padded | LazySource  # (B, S, H), or ids (B, S) still
    source: Padded | None = None  # (B, S) extended ids, where words of the source may be copied

    @cached_property
    def memory(self) -> Padded:
        """What the decoder reads (B, S, H)."""
        return self.given.memory if isinstance(self.given, LazySource) else self.given

    def loss(
        self, target: Tensor, smoothing: float = 0.0, sampling: float = 0.0
    ) -> tuple[Tensor, int]:
        """The summed loss of target words (B, T, 1), -1 behind their end, and how many there are.

        `smoothing` spreads that share of the right answer over all words; `sampling` is the share
        of inputs that are the model's own words while it learns (Bengio et al. 2015).
        """
        given, right = self._teaching(target)
        decoder = self.head.decoder
        if sampling and decoder.training:
            features = scheduled_sampling(decoder, given, decoder.start(self.memory), sampling)
        else:
            features = decoder.features(given, self.memory)  # (B, T, F)
        words = decoder.words
        return chunked_loss(features, words.weight, words.bias, right, smoothing)

    def pointer_loss(self, target: Tensor, coverage: float = 0.0) -> tuple[Tensor, int]:
        """The same where words may be copied; `coverage` weighs attention that is given twice."""
        given, right = self._teaching(target)
        assert self.source is not None
        return self.head.decoder.loss(given, right, self.memory, self.source, coverage)

    def _teaching(self, target: Tensor) -> tuple[Padded, Padded]:
        """What goes in and what should come out, from target words (B, T, 1), -1 behind an end."""
        ids = target[:, :, 0]  # (B, T)
        right = Padded(ids.clamp(min=0), (ids >= 0).sum(1).cpu())
        return shift_right(right, self.head.first), right

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The words of the best sequence of each row (T, 1), and the probability of each (T, 1)."""
        found = (row[0] for row in self.written(self.head.search, self.head.rules))
        return [
            (np.array(one.ids, np.int64)[:, None], np.exp(np.array(one.logps, np.float64))[:, None])
            for one in found
        ]

    @torch.no_grad()
    def written(
        self, settings: SearchSettings, constraints: Constraints = NO_CONSTRAINTS
    ) -> list[list[Hypothesis]]:
        """The sequences of each row, best first."""
        head = self.head
        if head.graphs is not None and self.source is None and settings.cuda_graphs != "off":
            ends = {"bos": head.first, "eos": head.last}
            given = self.given if isinstance(self.given, LazySource) else self._memory
            return head.graphs.written(given, settings, constraints, **ends)
        step, state = pack_step(head.decoder, self.start(), settings.weight_dtype)
        return search(
            step, state.shared(), settings, batch=len(self.memory), bos=head.first, eos=head.last,
            constraints=constraints,
        )  # fmt: skip

    def start(self) -> Any:
        """The decoder's state before the first word."""
        decoder = self.head.decoder
        if self.source is None:
            return decoder.start(self._memory)
        ids = self.source.data
        beyond = int(ids.max()) + 1 - self.head.beyond if ids.numel() else 0
        return decoder.start(self._memory, self.source, max(beyond, 0))

    @property
    def _memory(self) -> Padded:
        """The memory in the precision of the weights, where a GPU has read in half of it."""
        weight = next(self.head.decoder.parameters())
        return self.memory.with_data(self.memory.data.to(weight.dtype))


class Seq2SeqHead(nn.Module):
    """A decoder in the place of a head: its answer is a text.

    `beyond` is the first id that stands for a copied word; 0: the decoder does not copy. The ids
    of `unwritten` are no text, and no answer has them.
    """

    reads, task = "text", "seq2seq"

    def __init__(
        self,
        decoder: Any,
        search: SearchSettings,
        first: int,
        last: int,
        unwritten: Iterable[int] = (),
    ):
        super().__init__()
        self.rules = Constraints(forbidden=sorted(unwritten))
        self.decoder, self.search = decoder, search
        self.first, self.last = first, last  # the tokens that begin and end a text
        self.graphs: Any = None  # of the decoder's steps, where a device takes them
        self.beyond = decoder.decoder.words.size if isinstance(decoder, PointerGenerator) else 0

    @contextmanager
    def greedy_decoding(self) -> Iterator[None]:
        """Greedy for a while: to see how a training goes, a wide search is not worth its time."""
        kept = self.search
        self.search = replace(kept, method="greedy", num_beams=1, num_return=1, num_beam_groups=1)
        try:
            yield
        finally:
            self.search = kept

    @property
    def accepts_lazy_source(self) -> bool:
        """Whether it had rather be given a source that is still unread."""
        return self.graphs is not None and not self.training and not self.beyond

    def forward(self, states: Padded | LazySource, source: Padded | None = None) -> Seq2SeqOutput:
        if not self.beyond:
            return Seq2SeqOutput(self, states)
        assert source is not None
        assert isinstance(states, Padded)
        if states.data.shape[1] != source.data.shape[1]:
            raise UserError(
                "Copying needs a state for every word of the source. Use an encoder without a "
                "stride and without [CLS]."
            )
        return Seq2SeqOutput(self, states, source)
