"""Vectors of tokens in their context: what BERT, GPT and ELMo have in common as embedders.

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
from weft.tokens.special_tokens import SpecialTokens

SubwordPooling = Literal["first", "mean", "last"]


class ScalarMix(nn.Module):
    """γ Σ s_l h_l, with weights s that are learned and sum to one (Peters et al. 2018)."""

    def __init__(self, layers: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights(self) -> Tensor:
        """(L,) how much of each layer is taken."""
        return self.scores.softmax(0)

    @property
    def summary(self) -> str:
        """What it takes of each layer, in words."""
        names = ["words", *(f"layer {i}" for i in range(1, len(self.scores)))]
        shares = zip(names, self.weights.tolist(), strict=True)
        return ", ".join(f"{name} {share:.0%}" for name, share in shares) + (
            f"; times {self.gamma.item():.2f}"
        )

    def mix_concatenated(self, layers: Tensor) -> Tensor:
        """The mix (B, S, H) of layers that lie side by side (B, S, L*H)."""
        return self(layers.chunk(len(self.scores), -1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        shares = self.weights.to(layers[0].dtype).unbind()
        mixed = sum(share * states for share, states in zip(shares, layers, strict=True))
        return self.gamma.to(layers[0].dtype) * mixed  # (B, S, H)


class Contextual(nn.Module):
    """An embedder whose vector of a token depends on all the others.

    It reads the ids of a text, which the indexer has put in its `frame`; or words, each with the
    pieces it consists of, for which it gives one vector each: that of the `word`'s first piece, of
    its last, or the mean of all. `model` names where its weights come from; the constructor never
    opens it, whoever makes a fresh model does.
    """

    output_size: int
    limit: int | None  # the most steps that can be read, those of the frame included
    frame: SpecialTokens
    word: SubwordPooling
    mix: ScalarMix | None
    subwords = True  # where words are read, their pieces are wanted
    model: str
    frozen = False  # nothing of it learns, but how its layers are mixed
    dropout: nn.Dropout
    weight_dtype: WeightDtype = "float32"  # what its weights are when it only reads, on a processor

    def layers(self, x: Padded) -> list[Tensor]:
        """The states (B, S, H) after the embedding and after each layer; ids in their frame."""
        raise NotImplementedError

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Its parameters from the lowest layer to the highest, for rates and for unfreezing."""
        raise NotImplementedError

    def last(self, x: Padded) -> Tensor:
        """The states (B, S, H) after the last layer."""
        return self.layers(x)[-1]

    def forward(self, x: Padded) -> Padded:
        if self.frozen and self.training:
            return self.from_cached(x, self.frozen_features(x).data)
        return self._embed_with(x, self._states)

    def frozen_features(self, x: Padded) -> Padded:
        """What it makes of each step as long as it does not learn (B, T, L*H): all that is mixed,
        or the last layer."""
        with torch.no_grad():
            mixed = self.mix is not None
            return self._embed_with(
                x, lambda s: torch.cat(self.layers(s), -1) if mixed else self.last(s)
            )

    def from_cached(self, x: Padded, known: Tensor) -> Padded:
        """Its vectors, from what it knows of them."""
        states = known if self.mix is None else self.mix.mix_concatenated(known)
        return x.with_data(F.dropout(states, self.dropout.p, self.training))

    def layer(self, x: Padded, number: int) -> Padded:
        """The vectors of one layer alone, 0 being what the first block reads."""
        return self._embed_with(x, lambda steps: self.layers(steps)[number])

    def step_ids(self, x: Padded) -> Padded:
        """The ids (B, S) that the network itself reads: of words, their pieces in the frame."""
        return self._join_subwords(x.subtokens[0])[0] if x.subtokens else x

    def word_indices(self, x: Padded) -> Tensor:
        """(B, S) the number of the word that each step belongs to; -1: the frame's, or none."""
        steps, first, count = self._join_subwords(x.subtokens[0])
        place = torch.arange(steps.data.shape[1], device=first.device)[:, None]  # (S, 1)
        inside = (place >= first[:, None]) & (place < (first + count)[:, None])  # (B, S, T)
        return torch.where(inside.any(2), inside.long().argmax(2), -1)

    def _embed_with(self, x: Padded, states: Callable[[Padded], Tensor]) -> Padded:
        """What becomes of the steps, of words one vector each."""
        if not x.subtokens:
            return x.with_data(states(x))
        steps, first, count = self._join_subwords(x.subtokens[0])
        return x.with_data(self._pool_subwords(states(steps), first, count))

    def _states(self, x: Padded) -> Tensor:
        return self.last(x) if self.mix is None else self.mix(self.layers(x))

    def _join_subwords(self, pieces: Tensor) -> tuple[Padded, Tensor, Tensor]:
        """Pieces (B, T, P), counted from 1, as rows of ids in their frame.

        With them come the step at which each word begins and how many it has, both (B, T).
        """
        real = pieces > 0  # (B, T, P)
        count = real.sum(2)  # (B, T)
        before, after = (
            torch.tensor(ids, dtype=pieces.dtype, device=pieces.device)
            for ids in (self.frame.before, self.frame.after)
        )
        first = len(before) + count.cumsum(1) - count  # (B, T)
        lengths = len(before) + count.sum(1) + len(after)  # (B,)
        ids = pieces.new_zeros(len(pieces), int(lengths.max()))
        ids[:, : len(before)] = before
        within = (first[..., None] + torch.arange(pieces.shape[2], device=pieces.device))[real]
        row = torch.arange(len(pieces), device=pieces.device)
        ids[row[:, None, None].expand_as(pieces)[real], within] = pieces[real] - 1
        for i in range(len(after)):
            ids[row, lengths - len(after) + i] = after[i]
        return Padded(ids, lengths.cpu()), first, count

    def _pool_subwords(self, states: Tensor, first: Tensor, count: Tensor) -> Tensor:
        """(B, T, H) one vector a word."""
        if self.word == "mean":
            padded = torch.cat([states.new_zeros(len(states), 1, states.shape[2]), states], 1)
            sums = padded.float().cumsum(1)
            end = _gather_steps(sums, first + count) - _gather_steps(sums, first)
            return (end / count.clamp(min=1)[..., None]).to(states.dtype)
        chosen = first if self.word == "first" else first + count - 1
        return _gather_steps(states, chosen.clamp(0, states.shape[1] - 1))


class TransformerEmbedder(Contextual):
    """One that is a stack of Transformer blocks over tables."""

    causal = False  # whether a step looks back only
    blocks: nn.ModuleList

    def train(self, mode: bool = True) -> "TransformerEmbedder":
        """As usual; but a network that does not learn reads as it always will, without dropout."""
        super().train(mode)
        for part in self.children() if self.frozen else ():
            part.train(mode and part is self.mix)
        return self

    def weights(self, x: Padded) -> list[Tensor]:
        """Where each head of each layer looks: one (B, N, S, S) tensor a layer."""
        states, found = self._embed(x), []
        for block in self.blocks:
            states, shares = block(states, x.mask, return_weights=True, causal=self.causal)
            found.append(shares)
        return found

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Its parameters from the tables up to the last block, with which goes what is above."""
        blocks = [list(block.parameters()) for block in self.blocks]
        for part in self._above():
            blocks[-1] += part.parameters()
        inside = {id(p) for block in blocks for p in block}
        below = [p for p in self.parameters() if id(p) not in inside]
        return [below, *blocks]

    def _above(self) -> list[nn.Module]:
        """What comes behind the last block."""
        return [] if self.mix is None else [self.mix]

    def _freeze(self, lora: int) -> None:
        """Let nothing but the mix learn where that is said, or small changes beside it."""
        if self.frozen or lora:
            for name, p in self.named_parameters():
                p.requires_grad_(name.startswith("mix"))
        for block in self.blocks if lora else ():
            add_lora(block.attention.query, lora)  # type: ignore[union-attr, arg-type]
            add_lora(block.attention.value, lora)  # type: ignore[union-attr, arg-type]

    def _embed(self, x: Padded) -> Tensor:
        """What the first block reads (B, S, H)."""
        raise NotImplementedError

    def _check_length(self, x: Padded) -> None:
        steps = x.data.shape[1]
        if self.limit is not None and steps > self.limit:
            raise UserError(
                f"A text of {steps} tokens, but this model reads at most {self.limit}. Set "
                "data.truncate to head, tail, head+tail or windows."
            )


def _gather_steps(states: Tensor, steps: Tensor) -> Tensor:
    """(B, T, H) the states at some steps (B, T) of each row."""
    return states.gather(1, steps[..., None].expand(-1, -1, states.shape[2]))
