"""Seq2seq head: teacher-forced loss of a target text, and generation by search.

B rows   T steps of the target   S steps of the source   V words of the target
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

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
from weft.protocols import DecoderHead, DecoderState, Seq2SeqDecoder


@dataclass(frozen=True)
class Seq2SeqOutput:
    """Encoder states, or a source still to be encoded, and the decoder that attends to them."""

    head: "Seq2SeqHead"
    encoded: Padded | LazySource  # (B, S, H), or ids (B, S) not encoded yet
    source: Padded | None = None  # (B, S) extended ids, if source words may be copied

    @cached_property
    def memory(self) -> Padded:
        """Encoder states (B, S, H)."""
        return self.encoded.memory if isinstance(self.encoded, LazySource) else self.encoded

    # Here, not in the task: the loss is computed in chunks, and all logits never exist at once.
    def loss(
        self, target: Tensor, smoothing: float = 0.0, sampling: float = 0.0
    ) -> tuple[Tensor, int]:
        """Return the summed loss of target words (B, T, 1), padded with -1, and their number.

        `smoothing` is the label-smoothing fraction; `sampling` is the fraction of training inputs
        replaced by the model's predictions (scheduled sampling, Bengio et al. 2015).
        """
        inputs, targets = self._teacher_forcing(target)
        decoder = self.head.decoder
        assert not isinstance(decoder, PointerGenerator)
        if sampling and decoder.training:
            features = scheduled_sampling(decoder, inputs, decoder.start(self.memory), sampling)
        else:
            features = decoder.features(inputs, self.memory)  # (B, T, F)
        words = decoder.words
        return chunked_loss(features, words.weight, words.bias, targets, smoothing)

    def pointer_loss(self, target: Tensor, coverage: float = 0.0) -> tuple[Tensor, int]:
        """Return the loss of a pointer-generator; `coverage` weighs repeated attention."""
        inputs, targets = self._teacher_forcing(target)
        assert self.source is not None
        assert isinstance(self.head.decoder, PointerGenerator)
        return self.head.decoder.loss(inputs, targets, self.memory, self.source, coverage)

    def _teacher_forcing(self, target: Tensor) -> tuple[Padded, Padded]:
        """Return decoder inputs and targets from target words (B, T, 1), padded with -1."""
        ids = target[:, :, 0]  # (B, T)
        targets = Padded(ids.clamp(min=0), (ids >= 0).sum(1).cpu())
        return shift_right(targets, self.head.bos), targets

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the words of each row's best sequence (T, 1), and their probabilities (T, 1)."""
        best = (row[0] for row in self.generate(self.head.search, self.head.constraints))
        return [
            (
                np.array(hypothesis.ids, np.int64)[:, None],
                np.exp(np.array(hypothesis.logps, np.float64))[:, None],
            )
            for hypothesis in best
        ]

    @torch.no_grad()
    def generate(
        self, settings: SearchSettings, constraints: Constraints = NO_CONSTRAINTS
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each row, best first."""
        head = self.head
        if head.graphs is not None and self.source is None and settings.cuda_graphs != "off":
            encoded = self.encoded if isinstance(self.encoded, LazySource) else self._memory
            return head.graphs.generate(encoded, settings, constraints, bos=head.bos, eos=head.eos)
        step, state = pack_step(head.decoder, self.start(), settings.weight_dtype)
        return search(
            step, state.per_prompt(), settings,
            batch=len(self.memory), bos=head.bos, eos=head.eos, constraints=constraints,
        )  # fmt: skip

    def start(self) -> DecoderState:
        """Return the decoder state before the first word."""
        decoder = self.head.decoder
        if not isinstance(decoder, PointerGenerator):
            return decoder.start(self._memory)
        assert self.source is not None
        ids = self.source.data
        oov_words = int(ids.max()) + 1 - self.head.extended_vocab_start if ids.numel() else 0
        return decoder.start(self._memory, self.source, max(oov_words, 0))

    @property
    def _memory(self) -> Padded:
        """The encoder states in the dtype of the weights; under autocast they may be in half."""
        weight = next(self.head.decoder.parameters())
        return self.memory.with_data(self.memory.data.to(weight.dtype))


class Seq2SeqHead(nn.Module, DecoderHead):
    """A decoder in place of a head: its output is text.

    `extended_vocab_start` is the first id of a copied OOV word; 0: the decoder does not copy. The
    ids in `unwritten` are not text and are never generated.
    """

    reads, task = "text", "seq2seq"
    decoder: Seq2SeqDecoder | PointerGenerator

    def __init__(
        self,
        decoder: Seq2SeqDecoder | PointerGenerator,
        search: SearchSettings,
        bos: int,
        eos: int,
        unwritten: Iterable[int] = (),
    ):
        super().__init__()
        self.constraints = Constraints(forbidden=sorted(unwritten))
        self.decoder, self.search = decoder, search
        self.bos, self.eos = bos, eos
        self.extended_vocab_start = decoder.extended_vocab_start
        self.max_target_length = decoder.max_positions

    @contextmanager
    def greedy_decoding(self) -> Iterator[None]:
        """Decode greedily inside the context: validation during training needs no wide beam."""
        settings = self.search
        self.search = replace(
            settings, method="greedy", num_beams=1, num_return=1, num_beam_groups=1
        )
        try:
            yield
        finally:
            self.search = settings

    @property
    def accepts_lazy_source(self) -> bool:
        """True if the head prefers a source that is not encoded yet."""
        return self.graphs is not None and not self.training and not self.extended_vocab_start

    @property
    def graph_decoder(self) -> Seq2SeqDecoder | None:
        """The decoder, unless it copies: then every source has a vocabulary of another size."""
        return None if isinstance(self.decoder, PointerGenerator) else self.decoder

    def forward(self, states: Padded | LazySource, source: Padded | None = None) -> Seq2SeqOutput:
        if not self.extended_vocab_start:
            return Seq2SeqOutput(self, states)
        assert source is not None
        assert isinstance(states, Padded)
        if states.data.shape[1] != source.data.shape[1]:
            raise UserError(
                "Copying needs one encoder state per source word. Use an encoder without a "
                "stride and without [CLS]."
            )
        return Seq2SeqOutput(self, states, source)
