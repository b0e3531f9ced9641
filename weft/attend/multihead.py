"""Multi-head scaled dot-product attention (Vaswani et al. 2017) on PyTorch's fused kernels.

B rows   T steps that ask   S steps of the memory   H hidden width   N heads   K width per head
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.scores import masked_softmax
from weft.errors import UserError


class MultiHead(nn.Module):
    """Attention of several heads: to the steps themselves, or to another sequence's.

    `memory_size` is the width of the other sequence where it differs. Plain tensors inside.
    """

    def __init__(self, hidden: int, heads: int, dropout: float = 0.0, memory_size: int = 0):
        super().__init__()
        if heads < 1 or hidden % heads:
            raise UserError(
                f"hidden ({hidden}) must divide into heads ({heads}) without remainder."
            )
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(memory_size or hidden, hidden)
        self.value = nn.Linear(memory_size or hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.beside: tuple[Tensor, Tensor] | None = None
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The mixed steps (B, T, H) and, if `weights` are asked for, those (B, N, T, S).

        `mask` (B, S) is True at real steps of the memory; leave it out when there is no padding.
        With `causal`, the last step sees the whole memory and each earlier one a step less.
        """
        if memory is None:
            return self.mix(*self.three(x), mask, causal, weights)
        return self.look(x, *self.project(memory), mask, causal, weights)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory; a decoder keeps them from step to step."""
        k = self._split(self.key(memory))  # (B, N, S, K)
        v = self._split(self.value(memory))  # (B, N, S, K)
        return k, v

    def look(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The same as `forward` from keys and values; `mask` may also be (B, T, S)."""
        q = self._split(self.query(x))  # (B, N, T, K)
        return self.mix(q, k, v, mask, causal, weights)

    def three(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of steps that attend to themselves, each (B, N, T, K)."""
        layers = (self.query, self.key, self.value)
        if self.beside is not None:
            made = F.linear(x, *self.beside)  # (B, T, 3*H)
            q, k, v = (self._split(part) for part in made.chunk(3, dim=-1))
            return q, k, v
        if not torch.compiler.is_compiling():
            q, k, v = (self._split(layer(x)) for layer in layers)
            return q, k, v
        # Compiled, the matrices are laid side by side in the kernel that casts them anyway, and
        # one large product is faster than three.
        weight = torch.cat([layer.weight for layer in layers])  # (3*H, H)
        made = F.linear(x, weight, torch.cat([layer.bias for layer in layers]))  # (B, T, 3*H)
        q, k, v = (self._split(part) for part in made.chunk(3, dim=-1))
        return q, k, v

    @torch.no_grad()
    def lay_beside(self) -> None:
        """Keep a copy of the matrices of `three` as one, for steps that never learn.

        Called again it writes new weights into the same memory.
        """
        layers = (self.query, self.key, self.value)
        made = (
            torch.cat([layer.weight for layer in layers]),  # (3*H, H)
            torch.cat([layer.bias for layer in layers]),  # (3*H,)
        )
        if self.beside is None or self.beside[0].dtype != made[0].dtype:
            self.beside = made
        for kept, new in zip(self.beside, made, strict=True):
            kept.copy_(new)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The same as `look` from queries (B, N, T, K)."""
        shares = None
        if weights:
            shares = self._weights(q, k, mask, causal)  # (B, N, T, S)
            dropped = F.dropout(shares, self.dropout, self.training)
            mixed = dropped.to(v.dtype) @ v  # (B, N, T, K)
        else:
            mixed = self._fast(q, k, v, mask, causal)  # (B, N, T, K)
        return self.joined(mixed), shares

    def joined(self, mixed: Tensor) -> Tensor:
        """What the heads found (B, N, T, K), as steps (B, T, H)."""
        steps = mixed.transpose(1, 2).flatten(2)  # (B, T, N*K)
        return self.output(steps)

    def _split(self, x: Tensor) -> Tensor:
        B, T, H = x.shape
        return x.view(B, T, self.heads, H // self.heads).transpose(1, 2)

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])  # (B, N, T, S)
        allowed = _allowed(q, k, mask, causal)
        return scores.softmax(-1) if allowed is None else masked_softmax(scores, allowed)

    def _fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        causal = causal and q.shape[2] > 1  # a single step is the last, which sees everything
        if mask is None and (not causal or q.shape[2] == k.shape[2]):
            # Without a mask tensor PyTorch may pick the flash kernel.
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        allowed = _allowed(q, k, mask, causal)
        assert allowed is not None
        # Kernels differ in what they make of a row that may look nowhere: let it look, then erase.
        some = allowed.any(-1, keepdim=True)
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=allowed | ~some, dropout_p=dropout
        )
        return mixed.masked_fill(~some, 0)


def _allowed(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """True where a step may look: (B or 1, 1, T or 1, S)."""
    allowed = mask
    if mask is not None:
        allowed = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    if causal:
        T, S = q.shape[2], k.shape[2]
        past = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
        allowed = past[None, None] if allowed is None else allowed & past
    return allowed
