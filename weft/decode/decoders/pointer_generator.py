"""Copying words of the source: the pointer-generator with coverage (See et al. 2017).

B rows   T steps   S steps of the source   M width of the memory   V words   X words beyond them
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput
from weft.decode.losses import token_log_probs
from weft.errors import UserError
from weft.tokens.vocabulary import Vocabulary

UNKNOWN = 1  # the id of UNK


def extend_ids(
    rows: Sequence[Sequence[str]], vocabulary: Vocabulary
) -> tuple[Padded, list[list[str]]]:
    """Ids of source words, and each row's strangers: these get ids from V on, in their order."""
    strangers = [list(dict.fromkeys(w for w in row if w not in vocabulary)) for row in rows]
    return ids_with_oov(rows, vocabulary, strangers), strangers


def ids_with_oov(
    rows: Sequence[Sequence[str]], vocabulary: Vocabulary, strangers: Sequence[Sequence[str]]
) -> Padded:
    """Ids of words where the strangers of the same row have ids too; others are UNK."""
    made = []
    for row, extra in zip(rows, strangers, strict=True):
        beyond = {word: len(vocabulary) + i for i, word in enumerate(extra)}
        ids = vocabulary.ids(row)
        made.append([beyond.get(word, i) for word, i in zip(row, ids, strict=True)])
    return Padded.from_rows(made)


class PointerState(NamedTuple):
    """The decoder's own state, and the source."""

    inner: Any
    memory: Tensor  # (B, S, M)
    source: Tensor  # (B, S) extended ids
    real: Tensor  # (B,) rows that have a source at all
    extra: int

    def per_prompt(self) -> "PointerState":
        """The same with the decoder's own memory shared between the beams of a prompt."""
        return self._replace(inner=self.inner.per_prompt())


class PointerGenerator(nn.Module):
    """Any decoder with attention, which may write a word of the source instead of its own.

    P(w) = p P_vocabulary(w) + (1-p) Σ a_i over the places i where w stands in the source, where p
    is a gate on context, state and input. Source ids are extended: a word outside of the
    vocabulary has an id from V on. All in log space and at least single precision.
    """

    causal, reads_source = True, True

    def __init__(self, decoder: Any, memory_size: int):
        super().__init__()
        if not getattr(decoder, "attends", True):
            raise UserError(
                "Copying follows attention, but decoder 'rnn' has none. "
                'Set decoder.source = "attention".'
            )
        self.decoder = decoder
        self.limit = decoder.limit
        width = decoder.words.table.embedding_dim
        self.gate = nn.Linear(memory_size + decoder.hidden_size + width, 1)

    def start(self, memory: Padded, source: Padded, extra: int = 0) -> PointerState:
        """The state before the first word; `extra` is how many ids lie beyond the vocabulary."""
        clean = memory.with_data(memory.data).data  # (B, S, M)
        inner = self.decoder.start(memory, weights=True)
        return PointerState(inner, clean, source.data, memory.mask.any(1), extra)

    def step(self, ids: Tensor, state: PointerState) -> tuple[Tensor, PointerState]:
        """Log-probabilities (B, V+X) of the word after `ids` (B,), and the state that follows."""
        read, inner = self.decoder.step_features(self._inside(ids), state.inner)
        scores = self._scores(read, ids[:, None], state)[:, 0]
        return scores, state._replace(inner=inner)

    def forward(self, targets: Padded, memory: Padded, source: Padded, extra: int = 0) -> Tensor:
        """Log-probabilities (B, T, V+X) of every word at every step."""
        read = self.decoder.read(targets.with_data(self._inside(targets.data)), memory)
        return self._scores(read, targets.data, self._standing(memory, source, extra))

    def loss(
        self, given: Padded, targets: Padded, memory: Padded, source: Padded, coverage: float = 0.0
    ) -> tuple[Tensor, int]:
        """The summed loss of the targets when the decoder reads `given`, and their number.

        Only the targets are scored. `coverage` weighs Σ min(a, what a had before) of each step.
        """
        read = self.decoder.read(given.with_data(self._inside(given.data)), memory)
        state = self._standing(memory, source, 0)
        write, copy = self._gates(read, given.data, state)  # (B, T)
        words, wanted = self.decoder.words, targets.data
        inside = wanted < words.size  # (B, T)
        flat = token_log_probs(
            read.features.flatten(0, 1), words.weight, words.bias, self._inside(wanted).flatten()
        )
        lowest = torch.finfo(flat.dtype).min
        written = torch.where(inside, flat.view(wanted.shape) + write, lowest)  # (B, T)
        assert read.weights is not None
        same = state.source[:, None] == wanted[:, :, None]  # (B, T, S)
        copied = _log((read.weights * same).sum(2), lowest) + copy  # (B, T)
        right = torch.logaddexp(written, copied.clamp(min=lowest))  # (B, T)
        total = -right.masked_fill(~targets.mask, 0).sum()
        if coverage:
            had = read.weights.cumsum(1) - read.weights  # (B, T, S)
            again = torch.minimum(read.weights, had).sum(2)  # (B, T)
            total = total + coverage * again.masked_fill(~targets.mask, 0).sum()
        return total, int(targets.lengths.sum())

    def _inside(self, ids: Tensor) -> Tensor:
        """A copied stranger is read as UNK."""
        return torch.where(ids < self.decoder.words.size, ids, UNKNOWN)

    def _standing(self, memory: Padded, source: Padded, extra: int) -> PointerState:
        clean = memory.with_data(memory.data).data  # (B, S, M)
        return PointerState(None, clean, source.data, memory.mask.any(1), extra)

    def _gates(
        self, read: DecoderOutput, ids: Tensor, state: PointerState
    ) -> tuple[Tensor, Tensor]:
        """The logarithms of p and of 1-p, (B, T); where there is no source, p is 1."""
        assert read.weights is not None
        context = read.weights.to(state.memory.dtype) @ state.memory  # (B, T, M)
        vectors = self.decoder.words.embed(self._inside(ids))  # (B, T, E)
        wide = vectors.dtype
        joined = torch.cat([context.to(wide), read.hidden.to(wide), vectors], dim=2)
        opening = self.gate(joined).squeeze(2)  # (B, T)
        opening = opening.float() if opening.dtype != torch.double else opening
        lowest = torch.finfo(opening.dtype).min
        real = state.real[:, None]
        return (
            F.logsigmoid(opening).masked_fill(~real, 0),
            F.logsigmoid(-opening).masked_fill(~real, lowest),
        )

    def _scores(self, read: DecoderOutput, ids: Tensor, state: PointerState) -> Tensor:
        """Log-probabilities (B, T, V+X)."""
        assert read.weights is not None
        write, copy = self._gates(read, ids, state)
        scores = self.decoder.words.logits(read.features)  # (B, T, V)
        logp = scores.to(write.dtype).log_softmax(2) + write[..., None]
        lowest = torch.finfo(logp.dtype).min
        written = F.pad(logp, (0, state.extra), value=lowest)  # (B, T, V+X)
        place = state.source[:, None].expand(read.weights.shape)  # (B, T, S)
        share = torch.zeros_like(written).scatter_add(2, place, read.weights.to(written.dtype))
        copied = _log(share, lowest) + copy[..., None]
        return torch.logaddexp(written, copied.clamp(min=lowest))


def _log(share: Tensor, lowest: float) -> Tensor:
    """The logarithm; of nothing, half of the lowest number, which more can be added to."""
    some = share > 0
    return torch.where(some, torch.where(some, share, 1).log(), lowest / 2)
