"""Self-attention blocks (Vaswani et al. 2017), with the layer norm before or after each part.

B rows   T steps   H hidden width   N heads
"""

from typing import Literal

import torch
from torch import Tensor, nn

from weft.attend.packed import pack_blocks
from weft.attend.settings import SELF_ATTENTION, Attention
from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.position import LearnedPositions, SinusoidalPositions
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import register


@register("encoder", "transformer")
class TransformerEncoder(nn.Module, Encoder):
    """A stack of self-attention blocks over positions.

    `feed_forward` is the inner width of the feed-forward networks, 4·hidden if 0. With `cls` a
    learned [CLS] step is put first, `leading` steps in all, for the pool "first" to read.
    `max_positions` bounds learned positions, [CLS] included; the attribute is how many tokens can
    be read, None for any number. Embeddings of deviation 1 (lookup's `scale`) match the size of
    the sinusoids. Dropout is where the paper has it, after each part and on the sum of words and
    positions; with `inner_dropout` on attention weights and inside feed-forward layers as well.
    attention.score and attention.mask (scaled and full without them) hold for every head.
    """

    has_attention = True

    def __init__(
        self,
        input_size: int,
        hidden: int = 128,
        layers: int = 2,
        heads: int = 4,
        feed_forward: int = 0,
        norm: Literal["pre", "post"] = "pre",
        positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal",
        max_positions: int = 512,
        cls: bool = False,
        dropout: float = 0.1,
        activation: Literal["gelu", "relu"] = "gelu",
        inner_dropout: bool = True,
        attention_config: Attention = SELF_ATTENTION,
    ):
        super().__init__()
        where = "encoder 'transformer'"
        check_sizes(
            where, dropout, hidden=hidden, layers=layers, heads=heads, max_positions=max_positions
        )
        if feed_forward < 0:
            raise UserError(
                f"{where}: 'feed_forward' should be 0 (4 times hidden) or more, got {feed_forward}."
            )
        self.output_size = hidden
        self.leading = int(cls)
        self.max_positions = max_positions - self.leading if positions == "learned" else None
        same = input_size == hidden
        self.enter = nn.Identity() if same else nn.Linear(input_size, hidden)
        self.cls = nn.Parameter(torch.randn(hidden) * 0.02) if cls else None
        self.positions: nn.Module = nn.Identity()
        if positions != "none":
            kind = SinusoidalPositions if positions == "sinusoidal" else LearnedPositions
            self.positions = kind(hidden, max_positions)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                hidden, heads, feed_forward or 4 * hidden, norm, dropout, activation,
                inner_dropout, attention=attention_config,
            )
            for _ in range(layers)
        )  # fmt: skip
        # Pre-norm blocks leave their sum unnormalised.
        self.norm = nn.LayerNorm(hidden) if norm == "pre" else nn.Identity()

    def forward(self, x: Padded) -> Padded:
        x, states = self._embed(x)
        if ready := pack_blocks(self.blocks):
            flat = states.flatten(0, 1)
            return x.with_data(self.norm(ready.last(x, lambda positions: flat[positions])))
        mask = None if x.full else x.mask
        for block in self.blocks:
            states, _ = block(states, mask)
        return x.with_data(self.norm(states))

    def attention_weights(self, x: Padded) -> list[Tensor]:
        """Return the attention weights, one (B, N, T, T) tensor per layer."""
        x, states = self._embed(x)
        layers = []
        for block in self.blocks:
            states, weights = block(states, x.mask, return_weights=True)
            layers.append(weights)
        return layers

    def _embed(self, x: Padded) -> tuple[Padded, Tensor]:
        """The first states, with [CLS] in front where there is one."""
        states = self.enter(x.data)  # (B, T, H)
        if self.cls is not None:
            front = self.cls.to(states.dtype).expand(len(x), 1, -1)
            x = Padded(torch.cat([front, states], dim=1), x.lengths + 1)
            states = x.data
        return x, self.dropout(self.positions(states))
