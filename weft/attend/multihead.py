"""Multi-head attention (Vaswani et al. 2017), on PyTorch's fused kernels where the score has one.

B rows · T query steps · S key steps · H hidden width · N heads · K width per head
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.head_scores import HEAD_SCORES, HeadScaled
from weft.attend.scores import masked_softmax
from weft.attend.settings import SELF_ATTENTION, Attention, MaskPattern
from weft.errors import UserError


class MultiHeadAttention(nn.Module):
    """Self-attention, or cross-attention to encoder states of width `memory_size`.

    Queries and keys between the methods are those that the score compares: its maps are applied
    with the projections.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        dropout: float = 0.0,
        memory_size: int = 0,
        attention: Attention = SELF_ATTENTION,
    ):
        super().__init__()
        if heads < 1 or hidden % heads:
            raise UserError(f"hidden ({hidden}) must be divisible by heads ({heads}).")
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(memory_size or hidden, hidden)
        self.value = nn.Linear(memory_size or hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.fused_qkv: tuple[Tensor, Tensor] | None = None  # inference only, see fuse_qkv
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        assert attention.score is not None
        self.score = HEAD_SCORES[attention.score](heads, hidden // heads)
        self.pattern = MaskPattern(attention.mask or "full", attention.window)

    @property
    def has_kernel(self) -> bool:
        """True if kernels for scaled attention, full or causal, compute it."""
        return self.score.has_kernel and self.pattern.has_kernel

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        return_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return attended steps (B, T, H) and, on request, attention weights (B, N, T, S).

        `mask` (B, S) is True at real key steps; omit it when there is no padding. With `causal`,
        the last query sees every key and each earlier query one key fewer.
        """
        if memory is None:
            q, k, v = self.project_qkv(x)
        else:
            q = self.project_query(x)  # (B, N, T, K)
            k, v = self.project_kv(memory)
        return self.attend(q, k, v, mask, causal, return_weights)

    def project_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project steps to queries, keys and values, each (B, N, T, K)."""
        layers = (self.query, self.key, self.value)
        if self.fused_qkv is not None:
            projected = F.linear(x, *self.fused_qkv)  # (B, T, 3*H)
            q, k, v = (self.split_heads(part) for part in projected.chunk(3, dim=-1))
            return q, k, v
        if torch.compiler.is_compiling():
            # The compiled cast kernel concatenates for free; one large product beats three.
            weight = torch.cat([layer.weight for layer in layers])  # (3*H, H)
            projected = F.linear(x, weight, torch.cat([layer.bias for layer in layers]))
            q, k, v = (self.split_heads(part) for part in projected.chunk(3, dim=-1))
        else:
            q, k, v = (self.split_heads(layer(x)) for layer in layers)
        return self.score.map_query(q), self.score.map_key(k), v

    def project_query(self, x: Tensor) -> Tensor:
        """Project steps to queries."""
        return self.score.map_query(self.split_heads(self.query(x)))  # (B, N, T, K)

    def project_kv(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project encoder states to keys and values; decoders cache them across steps."""
        k = self.score.map_key(self.split_heads(self.key(memory)))  # (B, N, S, K)
        v = self.split_heads(self.value(memory))  # (B, N, S, K)
        return k, v

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        return_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with projected queries (B, N, T, K), keys and values (B, N, S, K).

        `mask` may also be (B, T, S), with a row for each query.
        """
        causal = causal or self.pattern.mask == "causal"
        if self.score.has_kernel and not return_weights:
            return self.merge_heads(self._fused_attention(q, k, v, mask, causal)), None
        allowed = self._allowed(q, k, mask, causal)
        context, weights = self._weighted_sum(q, k, v, allowed)
        return self.merge_heads(context), weights if return_weights else None

    def attend_allowed(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        """Attend where `allowed` (B, 1, T, S) is True, in place of the mask; (B, T, H)."""
        if self.score.has_kernel:
            return self.merge_heads(masked_attention(q, k, v, allowed, 0.0))
        return self.merge_heads(self._weighted_sum(q, k, v, allowed)[0])

    def split_heads(self, x: Tensor) -> Tensor:
        B, T, H = x.shape
        return x.view(B, T, self.heads, H // self.heads).transpose(1, 2)  # (B, N, T, K)

    def merge_heads(self, context: Tensor) -> Tensor:
        steps = context.transpose(1, 2).flatten(2)  # (B, T, N*K)
        merged: Tensor = self.output(steps)
        return merged

    def projections(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight (H, I) and bias (H,) of queries, keys and values, score maps merged in."""
        maps = ((self.query, self.score.map_query), (self.key, self.score.map_key))
        merged = [self._merge_map(layer, score_map) for layer, score_map in maps]
        return [*merged, (self.value.weight, self.value.bias)]

    def _merge_map(
        self, layer: nn.Linear, score_map: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the projection followed by an affine map of each head, as one projection."""
        if type(self.score) is HeadScaled:
            return layer.weight, layer.bias
        columns = torch.cat([layer.weight.T, layer.bias[None], torch.zeros_like(layer.bias)[None]])
        mapped = score_map(self.split_heads(columns[None]))  # (1, N, I+2, K)
        rows = mapped.transpose(1, 2).flatten(2)[0]  # (I+2, H)
        return (rows[:-2] - rows[-1]).T.contiguous(), rows[-2]

    @torch.no_grad()
    def fuse_qkv(self) -> None:
        """Cache the three projections as one matrix; repeated calls refresh it in place."""
        weights, biases = zip(*self.projections(), strict=True)
        fused = torch.cat(weights), torch.cat(biases)  # (3*H, H) and (3*H,)
        if self.fused_qkv is None or self.fused_qkv[0].dtype != fused[0].dtype:
            self.fused_qkv = fused
        for cached, fresh in zip(self.fused_qkv, fused, strict=True):
            cached.copy_(fresh)  # CUDA graphs keep the address

    def _weighted_sum(
        self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the context (B, N, T, K) and the weights (B, N, T, S) that it is a sum with."""
        scores = self.score.compare(q, k)  # (B, N, T, S)
        weights = scores.softmax(-1) if allowed is None else masked_softmax(scores, allowed)
        context = F.dropout(weights, self.dropout, self.training).to(v.dtype) @ v  # (B, N, T, K)
        return context, weights

    def _fused_attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        causal = causal and q.shape[2] > 1  # a single query is the last one and sees every key
        plain = mask is None and self.pattern.has_kernel
        if plain and (not causal or q.shape[2] == k.shape[2]):
            # Without a mask tensor PyTorch can choose the flash kernel.
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        allowed = self._allowed(q, k, mask, causal)
        assert allowed is not None
        return masked_attention(q, k, v, allowed, dropout)

    def _allowed(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
        """Combine padding and self-attention masks: (B or 1, 1, T or 1, S), None if all may."""
        allowed = None
        if mask is not None:
            allowed = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
        pattern = self.pattern.mask_steps(q.shape[2], k.shape[2], causal, q.device)
        if pattern is None:
            return allowed
        return pattern[None, None] if allowed is None else allowed & pattern


def masked_attention(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, dropout: float = 0.0
) -> Tensor:
    """Scaled attention where `allowed` is True; zeros of a query that may attend to nothing."""
    # Kernels disagree on rows without any allowed key: let those rows attend, then zero them.
    nonempty = allowed.any(-1, keepdim=True)
    context = F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed | ~nonempty, dropout_p=dropout
    )
    return context.masked_fill(~nonempty, 0)
