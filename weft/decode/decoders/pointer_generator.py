"""Pointer-generator with coverage: copy words of the source (See et al. 2017).

B rows   T steps   S source steps   M width of encoder states   V words   X source OOV words
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
from weft.decode.losses import token_log_probs
from weft.errors import UserError
from weft.protocols import Decoder, DecoderState, Seq2SeqDecoder
from weft.tokens.vocabulary import Vocabulary

UNKNOWN = 1  # the id of UNK


def extend_ids(
    rows: Sequence[Sequence[str]], vocabulary: Vocabulary
) -> tuple[Padded, list[list[str]]]:
    """Return ids of source words, and each row's OOV words, which get ids from V on, in order."""
    oov_words = [list(dict.fromkeys(w for w in row if w not in vocabulary)) for row in rows]
    return ids_with_oov(rows, vocabulary, oov_words), oov_words


def ids_with_oov(
    rows: Sequence[Sequence[str]], vocabulary: Vocabulary, oov_words: Sequence[Sequence[str]]
) -> Padded:
    """Return ids of words, with extended ids for the row's OOV words; others are UNK."""
    id_rows = []
    for row, extra in zip(rows, oov_words, strict=True):
        extended = {word: len(vocabulary) + i for i, word in enumerate(extra)}
        ids = vocabulary.ids(row)
        id_rows.append([extended.get(word, i) for word, i in zip(row, ids, strict=True)])
    return Padded.from_rows(id_rows)


@dataclass(frozen=True)
class PointerState(DecoderState):
    """The state of the inner decoder, and the source."""

    inner: DecoderState | None  # None: only the source
    memory: Tensor  # (B, S, M)
    source: Tensor  # (B, S) extended ids
    real: Tensor  # (B,) rows with a non-empty source
    extra: int  # number of extended ids

    def per_prompt(self) -> "PointerState":
        """Return the state with one set of encoder states for all beams of a prompt."""
        assert self.inner is not None
        return replace(self, inner=self.inner.per_prompt())

    @property
    def num_extended_ids(self) -> int:
        """The number of source words outside the vocabulary that can be copied."""
        return self.extra


class PointerGenerator(nn.Module, Decoder):
    """Any decoder with attention, extended to copy source words.

    P(w) = p P_vocabulary(w) + (1-p) Σ a_i over the source positions i of w, where p is a gate on
    context, state and input. Source ids are extended: OOV words have ids from V on. Computed in
    log space and at least float32.
    """

    causal, reads_source = True, True

    def __init__(self, decoder: Seq2SeqDecoder, memory_size: int):
        super().__init__()
        if not decoder.attends:
            raise UserError(
                "Copying needs attention, but decoder 'rnn' has none. "
                'Set decoder.source = "attention".'
            )
        self.decoder = decoder
        self.max_positions = decoder.max_positions
        self.extended_vocab_start = decoder.words.size
        width = decoder.words.table.embedding_dim
        self.gate = nn.Linear(memory_size + decoder.hidden_size + width, 1)

    @property
    def base_decoder(self) -> Seq2SeqDecoder:
        """The decoder that writes words of the vocabulary."""
        return self.decoder

    @property
    def words(self) -> OutputLayer:  # type: ignore[override]  # a property, so that it is saved once
        """Input embedding and output layer of the vocabulary."""
        return self.decoder.words

    def start(self, memory: Padded, source: Padded, extra: int = 0) -> PointerState:
        """Return the initial state; `extra` is the number of extended ids."""
        clean = memory.with_data(memory.data).data  # (B, S, M)
        inner = self.decoder.start(memory, weights=True)
        return PointerState(inner, clean, source.data, memory.mask.any(1), extra)

    def step(self, ids: Tensor, state: PointerState) -> tuple[Tensor, PointerState]:
        """Return log-probabilities (B, V+X) of the word after `ids` (B,), and the next state."""
        output, inner = self.decoder.step_features(self._inside(ids), state.inner)
        logp = self._log_probs(output, ids[:, None], state)[:, 0]
        return logp, replace(state, inner=inner)

    def forward(self, targets: Padded, memory: Padded, source: Padded, extra: int = 0) -> Tensor:
        """Return log-probabilities (B, T, V+X) of every word at every step."""
        output = self.decoder.read(targets.with_data(self._inside(targets.data)), memory)
        return self._log_probs(output, targets.data, self._source_state(memory, source, extra))

    def loss(
        self, inputs: Padded, targets: Padded, memory: Padded, source: Padded, coverage: float = 0.0
    ) -> tuple[Tensor, int]:
        """Return the summed loss of the targets given decoder inputs, and their number.

        Only the targets are scored. `coverage` weighs Σ min(a, accumulated a) of each step.
        """
        output = self.decoder.read(inputs.with_data(self._inside(inputs.data)), memory)
        state = self._source_state(memory, source, 0)
        write, copy = self._gates(output, inputs.data, state)  # (B, T)
        words, gold = self.decoder.words, targets.data
        inside = gold < words.size  # (B, T)
        flat = token_log_probs(
            output.features.flatten(0, 1), words.weight, words.bias, self._inside(gold).flatten()
        )
        lowest = torch.finfo(flat.dtype).min
        written = torch.where(inside, flat.view(gold.shape) + write, lowest)  # (B, T)
        assert output.weights is not None
        same = state.source[:, None] == gold[:, :, None]  # (B, T, S)
        copied = _log((output.weights * same).sum(2), lowest) + copy  # (B, T)
        logps = torch.logaddexp(written, copied.clamp(min=lowest))  # (B, T)
        total = -logps.masked_fill(~targets.mask, 0).sum()
        if coverage:
            accumulated = output.weights.cumsum(1) - output.weights  # (B, T, S)
            repeated = torch.minimum(output.weights, accumulated).sum(2)  # (B, T)
            total = total + coverage * repeated.masked_fill(~targets.mask, 0).sum()
        return total, int(targets.lengths.sum())

    def _inside(self, ids: Tensor) -> Tensor:
        """Replace extended ids by UNK."""
        return torch.where(ids < self.decoder.words.size, ids, UNKNOWN)

    def _source_state(self, memory: Padded, source: Padded, extra: int) -> PointerState:
        clean = memory.with_data(memory.data).data  # (B, S, M)
        return PointerState(None, clean, source.data, memory.mask.any(1), extra)

    def _gates(
        self, output: DecoderOutput, ids: Tensor, state: PointerState
    ) -> tuple[Tensor, Tensor]:
        """Return log p and log (1-p), (B, T); p is 1 for an empty source."""
        assert output.weights is not None
        context = output.weights.to(state.memory.dtype) @ state.memory  # (B, T, M)
        vectors = self.decoder.words.embed(self._inside(ids))  # (B, T, E)
        dtype = vectors.dtype
        joined = torch.cat([context.to(dtype), output.hidden.to(dtype), vectors], dim=2)
        gate = self.gate(joined).squeeze(2)  # (B, T)
        gate = gate.float() if gate.dtype != torch.double else gate
        lowest = torch.finfo(gate.dtype).min
        real = state.real[:, None]
        return (
            F.logsigmoid(gate).masked_fill(~real, 0),
            F.logsigmoid(-gate).masked_fill(~real, lowest),
        )

    def _log_probs(self, output: DecoderOutput, ids: Tensor, state: PointerState) -> Tensor:
        """Return log-probabilities (B, T, V+X)."""
        assert output.weights is not None
        write, copy = self._gates(output, ids, state)
        logits = self.decoder.words.logits(output.features)  # (B, T, V)
        logp = logits.to(write.dtype).log_softmax(2) + write[..., None]
        lowest = torch.finfo(logp.dtype).min
        written = F.pad(logp, (0, state.extra), value=lowest)  # (B, T, V+X)
        ids = state.source[:, None].expand(output.weights.shape)  # (B, T, S)
        probs = torch.zeros_like(written).scatter_add(2, ids, output.weights.to(written.dtype))
        copied = _log(probs, lowest) + copy[..., None]
        return torch.logaddexp(written, copied.clamp(min=lowest))


def _log(probs: Tensor, lowest: float) -> Tensor:
    """Return the logarithm; for zero, half the lowest number, so that sums stay finite."""
    positive = probs > 0
    return torch.where(positive, torch.where(positive, probs, 1).log(), lowest / 2)
