"""The states of a text -> one vector, and the weights of its steps where there are any.

B rows   T steps   H width of a state   Q width of a query
"""

import torch
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import attend, masked_softmax
from weft.attend.settings import ADDITIVE_ATTENTION, DOT_ATTENTION, Attention
from weft.batch import Padded
from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.protocols import Pool
from weft.registry import register

Pooled = tuple[Tensor, Tensor | None]  # (B, H') and, from attention, (B, T)


@register("pool", "none")
class NoPool(nn.Module, Pool):
    """All states as they are, for heads that answer at every word."""

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = input_size

    def forward(self, x: Padded) -> tuple[Padded, None]:
        return x, None


@register("pool", "mean")
class MeanPool(nn.Module, Pool):
    """The average of the real steps; with `normalise`, of length one."""

    def __init__(self, input_size: int, normalise: bool = False):
        super().__init__()
        self.output_size, self.normalise = input_size, normalise

    def forward(self, x: Padded) -> Pooled:
        return _maybe_normalise(_mean(x), self.normalise), None


@register("pool", "sum")
class SumPool(nn.Module, Pool):
    """The sum of the real steps."""

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = input_size

    def forward(self, x: Padded) -> Pooled:
        return x.with_data(x.data).data.sum(1), None


@register("pool", "max")
class MaxPool(nn.Module, Pool):
    """The largest value of each feature over the real steps; with `normalise`, of length one."""

    def __init__(self, input_size: int, normalise: bool = False):
        super().__init__()
        self.output_size, self.normalise = input_size, normalise

    def forward(self, x: Padded) -> Pooled:
        return _maybe_normalise(_max(x), self.normalise), None


@register("pool", "mean+max")
class MeanMaxPool(nn.Module, Pool):
    """Average and maximum, side by side."""

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = 2 * input_size

    def forward(self, x: Padded) -> Pooled:
        both = torch.cat([_mean(x), _max(x)], dim=1)  # (B, 2*H)
        return both, None


@register("pool", "first")
class FirstPool(nn.Module, Pool):
    """The first step: [CLS], where one stands there; with `normalise`, of length one."""

    def __init__(self, input_size: int, normalise: bool = False):
        super().__init__()
        self.output_size, self.normalise = input_size, normalise

    def forward(self, x: Padded) -> Pooled:
        first = _first_step(x)  # (B, H)
        return _maybe_normalise(first, self.normalise), None


@register("pool", "cls")
class CLSPool(nn.Module, Pool):
    """The first step through one more layer, as BERT reads its [CLS] (Devlin et al. 2019).

    The activation is tanh in BERT and RoBERTa, relu in DistilBERT, gelu in ELECTRA.
    """

    def __init__(self, input_size: int, activation: Activation = "tanh", dropout: float = 0.0):
        super().__init__()
        check_sizes("pool 'cls'", dropout)
        self.output_size = input_size
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(input_size, input_size)
        self.activation = ACTIVATIONS[activation]()
        nn.init.normal_(self.dense.weight, std=0.02)  # as BERT begins
        nn.init.zeros_(self.dense.bias)

    def forward(self, x: Padded) -> Pooled:
        first = _first_step(x)  # (B, H)
        vector = self.activation(self.dense(self.dropout(first)))  # (B, H)
        return vector if x.full else vector.masked_fill(~x.mask.any(1, keepdim=True), 0), None


@register("pool", "last")
class LastPool(nn.Module, Pool):
    """The state that has read everything.

    Of a one-way encoder, the last real step; of a two-way one, the forward half of the last real
    step beside the backward half of the first, because that is where each direction ends.
    """

    def __init__(self, input_size: int, directions: int = 1):
        super().__init__()
        self.output_size = input_size
        self.directions = directions

    def forward(self, x: Padded) -> Pooled:
        last = _select_step(x, x.lengths - 1)  # (B, H)
        if self.directions == 1:
            return last, None
        half = self.output_size // 2
        first = _first_step(x)  # (B, H)
        return torch.cat([last[:, :half], first[:, half:]], dim=1), None


@register("pool", "attention")
class AttentionPool(nn.Module, Pool):
    """The average under attention to a learned query; attention.score is additive by default."""

    def __init__(self, input_size: int, attention_config: Attention = ADDITIVE_ATTENTION):
        super().__init__()
        self.output_size = input_size
        self.query = nn.Parameter(torch.randn(input_size) / input_size**0.5)
        sizes = {"query_size": input_size, "memory_size": input_size}
        self.score = registry.build("score", {"kind": attention_config.score}, **sizes)

    def forward(self, x: Padded) -> Pooled:
        query = self.query.to(x.data.dtype).expand(len(x), 1, -1)
        summary, weights = attend(query, x, self.score)
        return summary.squeeze(1), weights.squeeze(1)


@register("pool", "last-attention")
class LastAttentionPool(nn.Module, Pool):
    """q_t = tanh(W h_t + b), s_t = softmax(q_t · q_T), Σ s_t h_t, where T is the last real step.

    Another attention.score than dot takes the place of q_t · q_T.
    """

    def __init__(
        self, input_size: int, hidden: int = 0, attention_config: Attention = DOT_ATTENTION
    ):
        super().__init__()
        self.output_size = input_size
        width = hidden or input_size
        self.query = nn.Linear(input_size, width)
        sizes = {"query_size": width, "memory_size": width}
        self.score = registry.build("score", {"kind": attention_config.score}, **sizes)

    def forward(self, x: Padded) -> Pooled:
        queries = self.query(x.data).tanh()  # (B, T, Q)
        last = _select_step(x.with_data(queries), x.lengths - 1)[..., None]  # (B, Q, 1)
        scores = self.score(queries, last.transpose(1, 2))  # (B, T, 1)
        weights = masked_softmax(scores.squeeze(2), x.mask)  # (B, T)
        summary = weights.to(x.data.dtype)[:, None] @ x.data  # (B, 1, H)
        return summary.squeeze(1), weights


def _maybe_normalise(vector: Tensor, normalise: bool) -> Tensor:
    """The vector (B, H), of length one where that is wanted; zeros stay zeros."""
    return nn.functional.normalize(vector, dim=1) if normalise else vector


def _mean(x: Padded) -> Tensor:
    if x.full and x.data.shape[1]:
        return x.data.sum(1) / x.data.shape[1]
    count = x.lengths.clamp(min=1).to(x.data.device)
    return x.with_data(x.data).data.sum(1) / count[:, None]


def _max(x: Padded) -> Tensor:
    if not x.data.shape[1]:
        return x.data.new_zeros(len(x), x.data.shape[2])
    lowest = torch.finfo(x.data.dtype).min
    largest = x.data.masked_fill(~x.mask[..., None], lowest).max(1).values  # (B, H)
    return largest.masked_fill(~x.mask.any(1, keepdim=True), 0)


def _first_step(x: Padded) -> Tensor:
    """The first step of each row; zeros for rows that have none."""
    if not x.data.shape[1]:
        return x.data.new_zeros(len(x), x.data.shape[2])
    first = x.data[:, 0]  # (B, H)
    return first if x.full else first.masked_fill(~x.mask.any(1, keepdim=True), 0)


def _select_step(x: Padded, steps: Tensor) -> Tensor:
    """One step of each row; zeros for rows that have none."""
    B, T, H = x.data.shape
    if not T:
        return x.data.new_zeros(B, H)
    row = torch.arange(B, device=x.data.device)
    chosen = x.data[row, steps.clamp(min=0).to(x.data.device)]  # (B, H)
    return chosen.masked_fill(~x.mask.any(1, keepdim=True), 0)
