"""BERT-family models (Devlin et al. 2019): words, positions and segments in Transformer blocks.

B rows   S steps   E width of the tables   H hidden width   N heads
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from weft.attend.packed import pack_blocks
from weft.attend.transformer_block import EmbeddingSum, TransformerBlock, compute_dtype
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.contextual import ScalarMix, SubwordPooling, TransformerEmbedder
from weft.errors import UserError
from weft.registry import register
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.vocabulary import CLS, SEP, SPECIALS


@register("embedder", "bert")
class Bert(TransformerEmbedder):
    """A bidirectional Transformer, each block with its layer norm behind (post-norm).

    With fewer `segments` than two it does not tell the texts of a pair apart by a table
    (DistilBERT has none, RoBERTa one). `position_offset` is the first row of the position table in
    use (RoBERTa: 2), `width` the embedding width if it is not the hidden width (ELECTRA). `cls` and
    `sep` are the ids around a text; `double_sep` puts two `sep` between two texts (RoBERTa). With
    `mix` all layers are mixed by learned weights, as in ELMo. `frozen` weights are not trained, and
    dropout applies to the output alone. With `lora` only a change of that rank to each query and
    value matrix is trained.

    With train.precision = "bf16" the sum that runs through the blocks is in half precision too;
    norms and softmax compute in single precision, and weights and their gradients stay in it.
    """

    def __init__(
        self,
        vocabulary_size: int,
        hidden: int = 256,
        layers: int = 4,
        heads: int = 4,
        feed_forward: int = 0,
        max_positions: int = 512,
        segments: int = 2,
        position_offset: int = 0,
        width: int = 0,
        activation: Literal["gelu", "relu", "gelu-tanh"] = "gelu",
        eps: float = 1e-12,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        cls: int = SPECIALS.index(CLS),
        sep: int = SPECIALS.index(SEP),
        double_sep: bool = False,
        subword_pooling: SubwordPooling = "first",
        mix: bool = False,
        frozen: bool = False,
        lora: int = 0,
        model: str = "",
    ):
        super().__init__()
        where = "embedder 'bert'"
        check_sizes(
            where, dropout, hidden=hidden, layers=layers, heads=heads, max_positions=max_positions
        )
        if min(segments, position_offset, width, feed_forward, lora) < 0:
            raise UserError(
                f"{where}: segments, position_offset, width, feed_forward and lora should be 0 "
                "or more."
            )
        if lora and frozen:
            raise UserError(f"{where}: with 'frozen' nothing is learned, with 'lora' a little is.")
        wide = width or hidden
        self.output_size = hidden
        self.max_positions, self.position_offset = max_positions, position_offset
        self.frame = SpecialTokens((cls,), (sep,), (sep, sep) if double_sep else (sep,))
        self.subword_pooling, self.model, self.frozen = subword_pooling, model, frozen
        self.table = nn.Embedding(vocabulary_size, wide)
        self.positions = nn.Embedding(max_positions + position_offset, wide)
        self.segments = nn.Embedding(segments, wide) if segments else None
        self.norm = nn.LayerNorm(wide, eps)
        self.dropout = nn.Dropout(dropout)
        self.entrance = EmbeddingSum()
        self.enter = nn.Identity() if wide == hidden else nn.Linear(wide, hidden)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                hidden, heads, feed_forward or 4 * hidden, "post", dropout, activation,
                inner_dropout=False, eps=eps,
            )
            for _ in range(layers)
        )  # fmt: skip
        for block in self.blocks:
            block.attention.dropout = attention_dropout  # type: ignore[union-attr]
        self.mix = ScalarMix(layers + 1) if mix else None
        self._initialise(lora)

    def _initialise(self, lora: int) -> None:
        """Initialise weights from N(0, 0.02²), as BERT does."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self._freeze(lora)

    def layers(self, x: Padded) -> list[Tensor]:
        """Return the states (B, S, H) after the embedding and after each block."""
        if ready := pack_blocks(self.blocks, self.weight_dtype):
            return ready.layers(x, self._step_embedder(x))
        states = [self._embed(x)]
        mask = None if x.full else x.mask
        for block in self.blocks:
            states.append(block(states[-1], mask)[0])
        return states

    def last(self, x: Padded) -> Tensor:
        """Return the states (B, S, H) after the last block; in training in the compute dtype."""
        if ready := pack_blocks(self.blocks, self.weight_dtype):
            return ready.last(x, self._step_embedder(x))
        states, mask = self._embed(x, compute_dtype(self.table.weight)), None if x.full else x.mask
        for block in self.blocks:
            states, _ = block(states, mask)
        return states if self.training else states.to(self.table.weight.dtype)

    def _embed(self, x: Padded, kind: torch.dtype | None = None) -> Tensor:
        """Embed words, positions and segments for the first block."""
        self._check_length(x)
        positions = torch.arange(x.data.shape[1], device=x.data.device)
        kinds = None if x.second is None else x.segments
        return self._sum(x.data, positions, kinds, kind)  # (B, S, H)

    def _step_embedder(self, x: Padded) -> Callable[[Tensor], Tensor]:
        """Return a function that embeds steps (M, H) by their indices (M,) among all B*S."""
        self._check_length(x)
        ids, segments, steps = x.data.flatten(), x.segments.flatten(), x.data.shape[1]
        return lambda positions: self._sum(ids[positions], positions % steps, segments[positions])

    def _sum(
        self, ids: Tensor, positions: Tensor, kinds: Tensor | None, kind: torch.dtype | None = None
    ) -> Tensor:
        """Sum word, position and segment embeddings; `kinds` is None where all segments are 0."""
        parts = [self.table(ids), self.positions(positions + self.position_offset)]
        if self.segments is not None:
            # No embedding lookup: with so few rows a GPU would sum the gradient one by one.
            table = self.segments.weight
            segments = table[0]  # (E,)
            if kinds is not None and len(table) > 1:
                segments = torch.where((kinds > 0)[..., None], table[1], segments)  # (B, S, E)
            parts.append(segments)
        kind = kind or self.table.weight.dtype
        states: Tensor = self.enter(self.entrance(parts, self.dropout, self.norm, kind))
        return states.to(kind)
