"""The Transformer block (Vaswani et al. 2017): self-attention and a feed-forward network.

B rows   T steps   H hidden width
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.multihead import MultiHeadAttention
from weft.attend.settings import SELF_ATTENTION, Attention
from weft.embed.activations import ACTIVATIONS
from weft.kernels.compile import Compilable


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of matrix products: half precision under autocast, else that of `x`.

    Blocks keep the dtype of their input. With this one the residual stream is as narrow as what
    blocks add to it: norms and sums then move half the bytes.
    """
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class EmbeddingSum(Compilable):
    """The input of the first block: summed embeddings, optionally normalised, with dropout.

    It has no parameters. The compiler fuses these steps; eager mode writes each to memory.
    """

    def forward(
        self, parts: list[Tensor], dropout: nn.Dropout, norm: nn.Module | None, dtype: torch.dtype
    ) -> Tensor:
        total = sum(parts[1:], parts[0])
        dropped: Tensor = dropout(total if norm is None else norm(total))
        return dropped.to(dtype)


class FinalNorm(nn.LayerNorm, Compilable):
    """The layer norm after the last block; keeps the dtype of its input as blocks do."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).to(x.dtype)


class TransformerBlock(Compilable):
    """Self-attention, then a two-layer feed-forward network, each with residual and layer norm.

    Without `inner_dropout`, dropout applies only to what the two add to the residual.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        feed_forward: int,
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
        activation: Literal["gelu", "relu", "gelu-tanh"] = "gelu",
        inner_dropout: bool = True,
        eps: float = 1e-5,
        attention: Attention = SELF_ATTENTION,
    ):
        super().__init__()
        self.norm_first = norm == "pre"
        inner = dropout if inner_dropout else 0.0
        self.attention = MultiHeadAttention(hidden, heads, inner, attention=attention)
        self.attention_norm = nn.LayerNorm(hidden, eps)
        self.feed_in = nn.Linear(hidden, feed_forward)
        self.feed_out = nn.Linear(feed_forward, hidden)
        self.feed_norm = nn.LayerNorm(hidden, eps)
        self.activation_name, self.activation = activation, ACTIVATIONS[activation]()
        self.dropout, self.inner = nn.Dropout(dropout), nn.Dropout(inner)
        for layer in (self.feed_in, self.feed_out):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        return_weights: bool = False,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        options: dict[str, Any] = {
            "mask": mask, "return_weights": return_weights, "causal": causal,
        }  # fmt: skip
        if self.norm_first:
            context, weights = self.attention(self.attention_norm(x), **options)
            x = x + self.dropout(context)  # (B, T, H)
            return x + self.dropout(self._feed_forward(self.feed_norm(x))), weights
        kind = x.dtype  # a norm under autocast would make it wider
        context, weights = self.attention(x, **options)
        x = self.attention_norm(x + self.dropout(context)).to(kind)  # (B, T, H)
        return self.feed_norm(x + self.dropout(self._feed_forward(x))).to(kind), weights

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.inner(self.activation(self.feed_in(x)))
        out: Tensor = self.feed_out(inner)
        return out
