"""Decomposable attention (Parikh et al. 2016): attend, compare, aggregate.

B rows   T steps of a text   S steps of the other   E width of a step   H hidden width
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import alignment_weights, masked_softmax, soft_align
from weft.attend.settings import DOT_ATTENTION, Attention
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.encode.pair.bi_encoder import Concat
from weft.errors import UserError
from weft.protocols import Pair, PairJoin
from weft.registry import register


@register("pair", "decomposable")
class Decomposable(nn.Module, Pair):
    """Each word is compared with what it is aligned to in the other text; no order is read.

    e_ij = F(a_i)·F(b_j), β_i = Σ_j softmax_j(e_ij) b_j, v_i = G([a_i; β_i]), and the same with the
    texts exchanged. The aggregation is a `sum` pool, and its H an `mlp` head. `intra` puts before
    it the attention within each text: [a_i; Σ_j softmax_j(f_ij + d_{i−j}) a_j], where all distances
    beyond `distances` share one bias. `null` is a word in front of each text to be aligned to by
    words that have no counterpart. Another attention.score than dot replaces both products.
    """

    encodes_separately = True
    directions = 1
    has_attention = True

    def __init__(
        self,
        input_size: int,
        hidden: int = 200,
        layers: int = 2,
        dropout: float = 0.2,
        intra: bool = False,
        distances: int = 10,
        null: bool = True,
        attention_config: Attention = DOT_ATTENTION,
    ):
        super().__init__()
        check_sizes("pair 'decomposable'", dropout, hidden=hidden, layers=layers)
        if distances < 0:
            raise UserError(f"pair 'decomposable': 'distances' should be 0 or more: {distances}.")
        self.output_size, self.distances, self.leading = hidden, distances, int(null)
        self.null = nn.Parameter(torch.randn(input_size) / input_size**0.5) if null else None
        self.within = None
        sizes = {"query_size": hidden, "memory_size": hidden}
        width = input_size
        if intra:
            self.within = _feed_forward(input_size, hidden, layers, dropout)
            self.bias = nn.Parameter(torch.zeros(2 * distances + 2))  # the last: farther away
            self.within_score = registry.build("score", {"kind": attention_config.score}, **sizes)
            width = 2 * input_size
        self.attend = _feed_forward(width, hidden, layers, dropout)
        self.score = registry.build("score", {"kind": attention_config.score}, **sizes)
        self.compare = _feed_forward(2 * width, hidden, layers, dropout)

    def forward(self, first: Padded, second: Padded) -> tuple[Padded, Padded]:
        """(B, T, E) and (B, S, E) -> what the comparison says of each step."""
        first, second = (self._self_align(self._with_null(x)) for x in (first, second))
        beta, alpha = soft_align(first, second, self._scores(first, second))
        return self._compare(first, beta), self._compare(second, alpha)

    def attention_weights(self, first: Padded, second: Padded) -> tuple[Tensor, Tensor]:
        """Return the soft alignment of each text with the other, the null words first."""
        first, second = (self._self_align(self._with_null(x)) for x in (first, second))
        return alignment_weights(first, second, self._scores(first, second))

    def _scores(self, first: Padded, second: Padded) -> Tensor:
        scores: Tensor = self.score(self.attend(first.data), self.attend(second.data))  # (B, T, S)
        return scores

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return Concat(width)

    def _compare(self, x: Padded, other: Tensor) -> Padded:
        compared = self.compare(torch.cat([x.data, other], dim=2))  # (B, T, H)
        return x.with_data(compared)

    def _with_null(self, x: Padded) -> Padded:
        if self.null is None:
            return x
        null = self.null.to(x.data.dtype).expand(len(x), 1, -1)
        return Padded(torch.cat([null, x.data], dim=1), x.lengths + 1)

    def _self_align(self, x: Padded) -> Padded:
        """Each step beside the average of its own text, as it looks from there."""
        if self.within is None:
            return x
        seen = self.within(x.data)  # (B, T, H)
        scores = self.within_score(seen, seen) + self._distance(x.data.shape[1])  # (B, T, T)
        weights = masked_softmax(scores, x.mask[:, None])  # (B, T, T)
        context = weights.to(x.data.dtype) @ x.data  # (B, T, E)
        return x.with_data(torch.cat([x.data, context], dim=2))

    def _distance(self, steps: int) -> Tensor:
        """(T, T) the bias d_{i−j} of each pair of steps."""
        positions = torch.arange(steps, device=self.bias.device)
        distance = positions[:, None] - positions  # (T, T)
        far = distance.abs() > self.distances
        return self.bias[(distance + self.distances).masked_fill(far, 2 * self.distances + 1)]


def _feed_forward(width: int, hidden: int, layers: int, dropout: float) -> nn.Sequential:
    """A feed-forward network with ReLUs, the last one too."""
    parts: list[nn.Module] = []
    for before, after in pairwise([width] + [hidden] * layers):
        parts += [nn.Dropout(dropout), nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts)
