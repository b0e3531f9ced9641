"""GPT (Radford et al. 2018, 2019) as an embedder: each token in the context of those before it.

B rows   S steps   H hidden width   N heads
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from weft.attend.packed import pack_blocks
from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.contextual import ScalarMix, SubwordPooling, TransformerEmbedder
from weft.errors import UserError
from weft.registry import register
from weft.tokens.special_tokens import SpecialTokens


@register("embedder", "gpt")
class Gpt(TransformerEmbedder):
    """A Transformer that looks back only, each block with its layer norm in front, as GPT-2.

    `cls` and `sep` are the ids put before and behind a text, -1: none; only the last token has
    read everything, so a pool over the whole text is "last" or "mean". With `mix` all layers are
    mixed by learned weights, as ELMo does; `frozen` weights are not learned. With `lora` they are
    not either, but a change of that rank to each query and value matrix is.
    """

    causal = True
    predicts_next = True  # state · table gives the logits of the next token

    def __init__(
        self,
        vocabulary_size: int,
        hidden: int = 384,
        layers: int = 6,
        heads: int = 6,
        feed_forward: int = 0,
        max_positions: int = 256,
        activation: Literal["gelu", "relu", "gelu-tanh"] = "gelu-tanh",
        eps: float = 1e-5,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        cls: int = -1,
        sep: int = -1,
        subword_pooling: SubwordPooling = "last",
        mix: bool = False,
        frozen: bool = False,
        lora: int = 0,
        model: str = "",
    ):
        super().__init__()
        where = "embedder 'gpt'"
        check_sizes(
            where, dropout, hidden=hidden, layers=layers, heads=heads, max_positions=max_positions
        )
        if min(feed_forward, lora) < 0:
            raise UserError(f"{where}: feed_forward and lora should be 0 or more.")
        if lora and frozen:
            raise UserError(f"{where}: with 'frozen' nothing is learned, with 'lora' a little is.")
        self.output_size, self.max_positions = hidden, max_positions
        before, after = ((i,) if i >= 0 else () for i in (cls, sep))
        self.frame = SpecialTokens(before, after, after)
        self.subword_pooling, self.model, self.frozen = subword_pooling, model, frozen
        self.table = nn.Embedding(vocabulary_size, hidden)
        self.positions = nn.Embedding(max_positions, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                hidden, heads, feed_forward or 4 * hidden, "pre", dropout, activation,
                inner_dropout=False, eps=eps,
            )
            for _ in range(layers)
        )  # fmt: skip
        for block in self.blocks:
            block.attention.dropout = attention_dropout  # type: ignore[union-attr]
        self.norm = nn.LayerNorm(hidden, eps)
        self.mix = ScalarMix(layers + 1) if mix else None
        self._initialise(layers, lora)

    def _initialise(self, layers: int, lora: int) -> None:
        """Initialise from N(0, 0.02²), scaled down where layers add to the residual, as GPT-2."""
        for name, p in self.named_parameters():
            last = name.endswith(("output.weight", "feed_out.weight"))
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)
        self._freeze(lora)

    def _above(self) -> list[nn.Module]:
        return [self.norm, *super()._above()]

    def layers(self, x: Padded) -> list[Tensor]:
        """Return the states (B, S, H) after the embedding and each block, the last one normed."""
        if ready := pack_blocks(self.blocks, self.weight_dtype):
            states = ready.layers(x, self._step_embedder(x), causal=True)
            return [*states[:-1], self.norm(states[-1])]
        states = [self._embed(x)]
        for block in self.blocks:
            states.append(block(states[-1], causal=True)[0])
        return [*states[:-1], self.norm(states[-1])]

    def last(self, x: Padded) -> Tensor:
        """Return the states (B, S, H) after the last block."""
        if ready := pack_blocks(self.blocks, self.weight_dtype):
            return self._norm(ready.last(x, self._step_embedder(x), causal=True))
        # No mask is needed: padding is at the end, and attention is causal.
        states = self._embed(x)
        for block in self.blocks:
            states, _ = block(states, causal=True)
        return self._norm(states)

    def _norm(self, states: Tensor) -> Tensor:
        normed: Tensor = self.norm(states)
        return normed

    def _embed(self, x: Padded) -> Tensor:
        """Embed words and positions for the first block."""
        self._check_length(x)
        positions = torch.arange(x.data.shape[1], device=x.data.device)
        states = self._sum(x.data, positions)  # (B, S, H)
        return states

    def _step_embedder(self, x: Padded) -> Callable[[Tensor], Tensor]:
        """Return a function that embeds steps (M, H) by their indices (M,) among all B*S."""
        self._check_length(x)
        ids, steps = x.data.flatten(), x.data.shape[1]
        return lambda positions: self._sum(ids[positions], positions % steps)

    def _sum(self, ids: Tensor, positions: Tensor) -> Tensor:
        summed: Tensor = self.table(ids) + self.positions(positions)
        dropped: Tensor = self.dropout(summed)
        return dropped
