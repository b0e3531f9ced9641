"""The four scores of multi-head attention, each head with its own weights.

A score is linear in the query and in the key, but for the tanh of the additive one. So each comes
as a map of the queries and a map of the keys, and a comparison of the mapped ones: q·k/√K for all
but the additive. The maps can be merged into the projections (`MultiHeadAttention.projections`),
and every kernel for scaled attention then computes the others too.

B rows   T query steps   S key steps   N heads   K width per head
"""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from weft.protocols import WeightMatrices

MAX_PAIR_ELEMENTS = 2**27  # of the (B, N, T, S, K) of the additive score held at once


class HeadScaled(nn.Module):
    """q·k / √K (Vaswani et al. 2017)."""

    has_kernel = True  # softmax of q·k/√K, of the mapped queries and keys

    def __init__(self, heads: int, width: int):
        super().__init__()
        self.scale = math.sqrt(width)

    def map_query(self, q: Tensor) -> Tensor:
        """Map queries (B, N, T, K) to those that are compared."""
        return q

    def map_key(self, k: Tensor) -> Tensor:
        """Map keys (B, N, S, K) to those that are compared."""
        return k

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        """Score mapped queries against mapped keys."""
        return q @ k.transpose(2, 3) / self.scale  # (B, N, T, S)


class HeadDot(HeadScaled):
    """q·k, not scaled (Luong et al. 2015)."""

    def map_query(self, q: Tensor) -> Tensor:
        """Multiply queries by the √K that the comparison divides by."""
        return q * self.scale


class HeadBilinear(HeadScaled, WeightMatrices):
    """k W q, with one W per head (Luong et al. 2015)."""

    def __init__(self, heads: int, width: int):
        super().__init__(heads, width)
        self.weight = nn.Parameter(torch.empty(heads, width, width))  # (N, K, K)
        bound = math.sqrt(3) / width  # scores start with the variance of scaled ones
        nn.init.uniform_(self.weight, -bound, bound)

    def weight_matrices(self) -> tuple[Tensor, ...]:
        """Return the matrix of each head."""
        return self.weight.unbind()

    def map_query(self, q: Tensor) -> Tensor:
        """Map each query to √K·W q."""
        return (q @ self.weight.transpose(1, 2)) * self.scale


class HeadAdditive(HeadScaled, WeightMatrices):
    """u·tanh(W q + W' k + b), with one u, W, W' and b per head (Bahdanau et al. 2015)."""

    has_kernel = False

    def __init__(self, heads: int, width: int):
        super().__init__(heads, width)
        self.query = nn.Parameter(torch.empty(heads, width, width))  # (N, K, K)
        self.key = nn.Parameter(torch.empty(heads, width, width))  # (N, K, K)
        self.bias = nn.Parameter(torch.zeros(heads, 1, width))  # (N, 1, K)
        self.weigh = nn.Parameter(torch.empty(heads, width, 1))  # (N, K, 1)
        for weight in (self.query, self.key, self.weigh):
            nn.init.uniform_(weight, -(width**-0.5), width**-0.5)

    def weight_matrices(self) -> list[Tensor]:
        """Return the matrices of each head."""
        weights = (self.query, self.key, self.weigh.transpose(1, 2))
        return [head for weight in weights for head in weight.unbind()]

    def map_query(self, q: Tensor) -> Tensor:
        """Map each query to W q + b."""
        return q @ self.query.transpose(1, 2) + self.bias

    def map_key(self, k: Tensor) -> Tensor:
        """Map each key to W' k."""
        return k @ self.key.transpose(1, 2)

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        """Score mapped queries against mapped keys; in chunks of queries where memory is short."""
        B, N, T, K = q.shape
        steps = max(1, MAX_PAIR_ELEMENTS // max(B * N * K * k.shape[2], 1))
        if steps >= T:
            return self._compare_chunk(q, k)
        chunks = q.split(steps, dim=2)
        if torch.is_grad_enabled():  # the backward pass computes each chunk anew
            scores = [
                checkpoint(
                    self._compare_chunk, chunk, k, use_reentrant=False, preserve_rng_state=False
                )
                for chunk in chunks
            ]
        else:
            scores = [self._compare_chunk(chunk, k) for chunk in chunks]
        return torch.cat(scores, dim=2)  # (B, N, T, S)

    def _compare_chunk(self, q: Tensor, k: Tensor) -> Tensor:
        pairs = q[:, :, :, None] + k[:, :, None].to(q.dtype)  # (B, N, T, S, K)
        scores: Tensor = (pairs.tanh() @ self.weigh[:, None]).squeeze(-1)
        return scores  # (B, N, T, S)


HEAD_SCORES: dict[str, type[HeadScaled]] = {
    "additive": HeadAdditive,
    "dot": HeadDot,
    "scaled": HeadScaled,
    "bilinear": HeadBilinear,
}
