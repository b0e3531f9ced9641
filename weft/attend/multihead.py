"""Multi-head scaled dot-product attention (Vaswani et al. 2017) on PyTorch's fused kernels.

B rows · T query steps · S key steps · H hidden width · N heads · K width per head
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.scores import masked_softmax
from weft.errors import UserError


class MultiHeadAttention(nn.Module):
    """Self-attention, or cross-attention to encoder states of width `memory_size`."""

    def __init__(self, hidden: int, heads: int, dropout: float = 0.0, memory_size: int = 0):
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
            q = self.split_heads(self.query(x))  # (B, N, T, K)
            k, v = self.project_kv(memory)
        return self.attend(q, k, v, mask, causal, return_weights)

    def project_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project steps to queries, keys and values, each (B, N, T, K)."""
        layers = (self.query, self.key, self.value)
        if self.fused_qkv is not None:
            projected = F.linear(x, *self.fused_qkv)  # (B, T, 3*H)
        elif torch.compiler.is_compiling():
            # The compiled cast kernel concatenates for free; one large product beats three.
            weight = torch.cat([layer.weight for layer in layers])  # (3*H, H)
            projected = F.linear(x, weight, torch.cat([layer.bias for layer in layers]))
        else:
            q, k, v = (self.split_heads(layer(x)) for layer in layers)
            return q, k, v
        q, k, v = (self.split_heads(part) for part in projected.chunk(3, dim=-1))
        return q, k, v

    def project_kv(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project encoder states to keys and values; decoders cache them across steps."""
        k = self.split_heads(self.key(memory))  # (B, N, S, K)
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
        if not return_weights:
            return self.merge_heads(self._fused_attention(q, k, v, mask, causal)), None
        weights = self._attention_weights(q, k, mask, causal)  # (B, N, T, S)
        context = F.dropout(weights, self.dropout, self.training).to(v.dtype) @ v  # (B, N, T, K)
        return self.merge_heads(context), weights

    def split_heads(self, x: Tensor) -> Tensor:
        B, T, H = x.shape
        return x.view(B, T, self.heads, H // self.heads).transpose(1, 2)  # (B, N, T, K)

    def merge_heads(self, context: Tensor) -> Tensor:
        steps = context.transpose(1, 2).flatten(2)  # (B, T, N*K)
        merged: Tensor = self.output(steps)
        return merged

    @torch.no_grad()
    def fuse_qkv(self) -> None:
        """Cache the three projections as one matrix; repeated calls refresh it in place."""
        layers = (self.query, self.key, self.value)
        fused = (
            torch.cat([layer.weight for layer in layers]),  # (3*H, H)
            torch.cat([layer.bias for layer in layers]),  # (3*H,)
        )
        if self.fused_qkv is None or self.fused_qkv[0].dtype != fused[0].dtype:
            self.fused_qkv = fused
        for cached, fresh in zip(self.fused_qkv, fused, strict=True):
            cached.copy_(fresh)  # CUDA graphs keep the address

    def _attention_weights(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])  # (B, N, T, S)
        allowed = attention_mask(q, k, mask, causal)
        return scores.softmax(-1) if allowed is None else masked_softmax(scores, allowed)

    def _fused_attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        causal = causal and q.shape[2] > 1  # a single query is the last one and sees every key
        if mask is None and (not causal or q.shape[2] == k.shape[2]):
            # Without a mask tensor PyTorch can choose the flash kernel.
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        allowed = attention_mask(q, k, mask, causal)
        assert allowed is not None
        # Kernels disagree on rows without any allowed key: let those rows attend, then zero them.
        nonempty = allowed.any(-1, keepdim=True)
        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=allowed | ~nonempty, dropout_p=dropout
        )
        return context.masked_fill(~nonempty, 0)


def attention_mask(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Combine padding and causal masks: True where attention is allowed, (B or 1, 1, T or 1, S)."""
    allowed = None
    if mask is not None:
        allowed = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    if causal:
        T, S = q.shape[2], k.shape[2]
        past = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
        allowed = past[None, None] if allowed is None else allowed & past
    return allowed
