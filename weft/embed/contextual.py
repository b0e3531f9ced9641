"""Contextual embedders: the common base of BERT, GPT and their layers' scalar mix.

B rows   T tokens or words   P pieces of a word   S steps of the network   H hidden width
L layers
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.lora import add_lora
from weft.batch import Padded
from weft.errors import UserError
from weft.kernels.cpu.linear import WeightDtype
from weft.protocols import Embedder
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.truncate import split_word_windows

WINDOWS_AT_ONCE = 16  # in inference

SubwordPooling = Literal["first", "mean", "last"]


class ScalarMix(nn.Module):
    """γ Σ s_l h_l, with weights s that are learned and sum to one (Peters et al. 2018)."""

    def __init__(self, layers: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights(self) -> Tensor:
        """(L,) the softmax-normalised weight of each layer."""
        return self.scores.softmax(0)

    @property
    def summary(self) -> str:
        """The layer weights as text."""
        names = ["words", *(f"layer {i}" for i in range(1, len(self.scores)))]
        weights = zip(names, self.weights.tolist(), strict=True)
        return ", ".join(f"{name} {weight:.0%}" for name, weight in weights) + (
            f"; times {self.gamma.item():.2f}"
        )

    def mix_concatenated(self, layers: Tensor) -> Tensor:
        """Mix concatenated layers (B, S, L*H) into (B, S, H)."""
        return self.forward(layers.chunk(len(self.scores), -1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        weights = self.weights.to(layers[0].dtype).unbind()
        mixed = sum(weight * states for weight, states in zip(weights, layers, strict=True))
        return self.gamma.to(layers[0].dtype) * mixed  # (B, S, H)


class Contextual(nn.Module, Embedder):
    """An embedder whose vector of a token depends on all the others.

    Its input is token ids within the special tokens of its `frame`, or words with their subword
    ids. Words get one vector each: that of the first or last subword, or the mean of all
    (`subword_pooling`).
    `model` names the source of its weights; the constructor never opens it, the caller does.
    """

    output_size: int
    max_positions: int | None  # maximum steps, special tokens included
    frame: SpecialTokens
    subword_pooling: SubwordPooling
    mix: ScalarMix | None
    subwords = True
    reads_windows = True
    has_frozen_features = True
    model: str
    frozen = False  # only the scalar mix is trained
    dropout: nn.Dropout
    weight_dtype: WeightDtype = "float32"  # of weights in CPU inference

    @property
    def scalar_mix(self) -> ScalarMix | None:
        return self.mix

    def layers(self, x: Padded) -> list[Tensor]:
        """Return the states (B, S, H) after the embedding and after each layer."""
        raise NotImplementedError

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Return its parameters from the lowest layer to the highest, for rates and unfreezing."""
        raise NotImplementedError

    def last(self, x: Padded) -> Tensor:
        """Return the states (B, S, H) after the last layer."""
        return self.layers(x)[-1]

    def forward(self, x: Padded) -> Padded:
        if self.frozen and self.training:
            return self.from_cached(x, self.frozen_features(x).data)
        return self._embed_with(x, self._states)

    def frozen_features(self, x: Padded) -> Padded:
        """Return the cacheable features of a frozen network (B, T, L*H): all mixed layers, or
        the last one."""
        with torch.no_grad():
            mixed = self.mix is not None
            return self._embed_with(
                x, lambda s: torch.cat(self.layers(s), -1) if mixed else self.last(s)
            )

    def from_cached(self, x: Padded, features: Tensor) -> Padded:
        """Return the vectors from cached features."""
        states = features if self.mix is None else self.mix.mix_concatenated(features)
        return x.with_data(F.dropout(states, self.dropout.p, self.training))

    def layer(self, x: Padded, number: int) -> Padded:
        """Return the vectors of one layer; 0 is the input of the first block."""
        return self._embed_with(x, lambda steps: self.layers(steps)[number])

    def step_ids(self, x: Padded) -> Padded:
        """Return the ids (B, S) the network reads: of words, their subwords in the frame."""
        return self._join_subwords(x.subtokens[0])[0] if x.subtokens else x

    def word_indices(self, x: Padded) -> Tensor:
        """Return the word index of each step (B, S); -1 for special tokens and padding."""
        steps, first, count = self._join_subwords(x.subtokens[0])
        index = torch.arange(steps.data.shape[1], device=first.device)[:, None]  # (S, 1)
        inside = (index >= first[:, None]) & (index < (first + count)[:, None])  # (B, S, T)
        return torch.where(inside.any(2), inside.long().argmax(2), -1)

    def _embed_with(self, x: Padded, states: Callable[[Padded], Tensor]) -> Padded:
        """Apply `states` to the steps, pooling subwords where words are read."""
        if not x.subtokens:
            return x.with_data(states(x))
        steps, first, count = self._join_subwords(x.subtokens[0])
        if self.max_positions is not None and steps.data.shape[1] > self.max_positions:
            return x.with_data(self._embed_windows(x.subtokens[0], count, states))
        return x.with_data(self._pool_subwords(states(steps), first, count))

    def _embed_windows(
        self, subtokens: Tensor, count: Tensor, states: Callable[[Padded], Tensor]
    ) -> Tensor:
        """Read rows of words (B, T, P) in overlapping windows; return a vector per word (B, T, H).

        Without gradients, a bounded number of windows is read at once.
        """
        assert self.max_positions is not None
        most = self.max_positions - len(self.frame.before) - len(self.frame.after)
        windows = [
            (row, *window)
            for row, sizes in enumerate(count.tolist())
            for window in split_word_windows(sizes, most)
        ]
        chunk = len(windows) if torch.is_grad_enabled() else WINDOWS_AT_ONCE
        out: Tensor | None = None
        for at in range(0, len(windows), chunk):
            some = windows[at : at + chunk]
            longest = max(stop - start for _, start, stop, _, _ in some)
            rows = subtokens.new_zeros(len(some), longest, subtokens.shape[2])
            for i, (row, start, stop, _, _) in enumerate(some):
                rows[i, : stop - start] = subtokens[row, start:stop]
            steps, first, own = self._join_subwords(rows)
            vectors = self._pool_subwords(states(steps), first, own)  # (N, T, H)
            if out is None:
                out = vectors.new_zeros(*subtokens.shape[:2], vectors.shape[2])
            places = [
                (row, word, i, word - start)
                for i, (row, start, _, first_word, last) in enumerate(some)
                for word in range(first_word, last)
            ]
            to_row, to_word, window, step = torch.tensor(places, device=rows.device).unbind(1)
            out = out.index_put((to_row, to_word), vectors[window, step])
        assert out is not None
        return out

    def _states(self, x: Padded) -> Tensor:
        return self.last(x) if self.mix is None else self.mix(self.layers(x))

    def _join_subwords(self, subtokens: Tensor) -> tuple[Padded, Tensor, Tensor]:
        """Join subword ids (B, T, P), counted from 1, into rows of ids in their frame.

        Also returns the first step and the number of steps of each word, both (B, T).
        """
        real = subtokens > 0  # (B, T, P)
        count = real.sum(2)  # (B, T)
        before, after = (
            torch.tensor(ids, dtype=subtokens.dtype, device=subtokens.device)
            for ids in (self.frame.before, self.frame.after)
        )
        first = len(before) + count.cumsum(1) - count  # (B, T)
        lengths = len(before) + count.sum(1) + len(after)  # (B,)
        ids = subtokens.new_zeros(len(subtokens), int(lengths.max()))
        ids[:, : len(before)] = before
        within = (first[..., None] + torch.arange(subtokens.shape[2], device=subtokens.device))[
            real
        ]
        row = torch.arange(len(subtokens), device=subtokens.device)
        ids[row[:, None, None].expand_as(subtokens)[real], within] = subtokens[real] - 1
        for i in range(len(after)):
            ids[row, lengths - len(after) + i] = after[i]
        return Padded(ids, lengths.cpu()), first, count

    def _pool_subwords(self, states: Tensor, first: Tensor, count: Tensor) -> Tensor:
        """Pool subword states into one vector per word (B, T, H)."""
        if self.subword_pooling == "mean":
            padded = torch.cat([states.new_zeros(len(states), 1, states.shape[2]), states], 1)
            sums = padded.float().cumsum(1)
            end = _gather_steps(sums, first + count) - _gather_steps(sums, first)
            return (end / count.clamp(min=1)[..., None]).to(states.dtype)
        chosen = first if self.subword_pooling == "first" else first + count - 1
        return _gather_steps(states, chosen.clamp(0, states.shape[1] - 1))


class TransformerEmbedder(Contextual):
    """A contextual embedder made of Transformer blocks over embedding tables."""

    causal = False  # attend to earlier steps only
    has_attention = True
    table: nn.Embedding
    blocks: nn.ModuleList

    def train(self, mode: bool = True) -> "TransformerEmbedder":
        """Set the mode; a frozen network stays in eval mode, without dropout."""
        super().train(mode)
        for part in self.children() if self.frozen else ():
            part.train(mode and part is self.mix)
        return self

    @property
    def token_table(self) -> nn.Embedding:
        return self.table

    def attention_weights(self, x: Padded) -> list[Tensor]:
        """Return the attention weights, one (B, N, S, S) tensor per layer."""
        states, layers = self._embed(x), []
        for block in self.blocks:
            states, weights = block(states, x.mask, return_weights=True, causal=self.causal)
            layers.append(weights)
        return layers

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Return its parameters from the tables to the last block, which takes what is above."""
        blocks = [list(block.parameters()) for block in self.blocks]
        for part in self._above():
            blocks[-1] += part.parameters()
        inside = {id(p) for block in blocks for p in block}
        below = [p for p in self.parameters() if id(p) not in inside]
        return [below, *blocks]

    def _above(self) -> list[nn.Module]:
        """Return the modules after the last block."""
        return [] if self.mix is None else [self.mix]

    def _freeze(self, lora: int) -> None:
        """Freeze all but the scalar mix if `frozen` or `lora`, and add LoRA updates."""
        if self.frozen or lora:
            for name, p in self.named_parameters():
                p.requires_grad_(name.startswith("mix"))
        for block in self.blocks if lora else ():
            add_lora(block.attention.query, lora)  # type: ignore[union-attr, arg-type]
            add_lora(block.attention.value, lora)  # type: ignore[union-attr, arg-type]

    def _embed(self, x: Padded) -> Tensor:
        """Return the input of the first block (B, S, H)."""
        raise NotImplementedError

    def _check_length(self, x: Padded) -> None:
        steps = x.data.shape[1]
        if self.max_positions is not None and steps > self.max_positions:
            raise UserError(
                f"A text of {steps} tokens, but this model reads at most {self.max_positions}. Set "
                "data.truncate to head, tail, head+tail or windows."
            )


def _gather_steps(states: Tensor, steps: Tensor) -> Tensor:
    """Gather the states (B, T, H) at given steps (B, T) of each row."""
    return states.gather(1, steps[..., None].expand(-1, -1, states.shape[2]))
