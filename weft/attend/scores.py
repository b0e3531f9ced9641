"""Attention scores between queries and memory steps, and the summaries they give.

B rows   Q queries   S steps of the memory   E query width   M memory width   H hidden width
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.protocols import WeightMatrices
from weft.registry import register

# (B, Q, E), (B, S, M) -> (B, Q, S). Scores that decoders use step after step come in two parts as
# well: `prepare` works on the memory once, and `compare` takes the queries as they come.
Score = Callable[[Tensor, Tensor], Tensor]


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis where the mask is True; all zero where nothing is.

    At least single precision, also under autocast: half-precision weights need not sum to one.
    """
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    # The lowest finite number and not -inf, which would turn a row without any real step into NaN.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0)


def attend(query: Tensor, memory: Padded, score: Score) -> tuple[Tensor, Tensor]:
    """Return the weighted average of the memory for each query, and the weights."""
    scores = score(query, memory.data)  # (B, Q, S)
    weights = masked_softmax(scores, memory.mask[:, None])  # (B, Q, S)
    summary = weights.to(memory.data.dtype) @ memory.data  # (B, Q, M)
    return summary, weights


def alignment_weights(first: Padded, second: Padded, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of each step of two texts on those of the other, from all scores."""
    to_second = masked_softmax(scores, second.mask[:, None])  # (B, T, S)
    to_first = masked_softmax(scores.transpose(1, 2), first.mask[:, None])  # (B, S, T)
    return to_second, to_first


def soft_align(first: Padded, second: Padded, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Average each text at the steps of the other, weighted by scores (B, T, S) of all pairs.

    Returns (B, T, H) from the second text and (B, S, H) from the first.
    """
    to_second, to_first = alignment_weights(first, second, scores)
    from_second = to_second.to(second.data.dtype) @ second.data  # (B, T, H)
    from_first = to_first.to(first.data.dtype) @ first.data  # (B, S, H)
    return from_second, from_first


@register("score", "additive")
class Additive(nn.Module):
    """u·tanh(W q + W' h + b) (Bahdanau et al. 2015); without `hidden`, as wide as the memory.

    With `coverage`, the attention that a step has had so far is one more term inside the tanh
    (See et al. 2017).
    """

    def __init__(self, query_size: int, memory_size: int, hidden: int = 0, coverage: bool = False):
        super().__init__()
        hidden = hidden or memory_size
        self.query = nn.Linear(query_size, hidden)
        self.memory = nn.Linear(memory_size, hidden, bias=False)
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.cover = nn.Linear(1, hidden, bias=False) if coverage else None

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        return self.compare(query, self.prepare(memory))

    def prepare(self, memory: Tensor) -> Tensor:
        """Project the memory once for all queries, (B, S, H)."""
        keys: Tensor = self.memory(memory)
        return keys

    def compare(self, query: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """Score queries against a prepared memory; `coverage` is (B, S)."""
        if coverage is not None:
            assert self.cover is not None
            had = coverage[..., None].to(self.cover.weight.dtype)  # (B, S, 1)
            keys = keys + self.cover(had)  # (B, S, H)
        pairs = self.query(query)[:, :, None] + keys[:, None]  # (B, Q, S, H)
        scores: Tensor = self.weigh(pairs.tanh()).squeeze(-1)  # (B, Q, S)
        return scores


@register("score", "dot")
class Dot(nn.Module):
    """q·h (Luong et al. 2015); a memory of another width than the query is projected to it."""

    def __init__(self, query_size: int, memory_size: int):
        super().__init__()
        self.project = _project_memory(query_size, memory_size)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        return self.compare(query, self.prepare(memory))

    def prepare(self, memory: Tensor) -> Tensor:
        """Return the memory in the width of the query, (B, S, E)."""
        keys: Tensor = self.project(memory)
        return keys

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries against a prepared memory."""
        return query @ keys.transpose(1, 2)


@register("score", "scaled")
class Scaled(Dot):
    """q·h / √d (Vaswani et al. 2017); a memory of another width is projected to d."""

    def __init__(self, query_size: int, memory_size: int):
        super().__init__(query_size, memory_size)
        self.scale = 1 / math.sqrt(query_size)

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries against a prepared memory."""
        return (query * self.scale) @ keys.transpose(1, 2)


@register("score", "bilinear")
class Bilinear(nn.Module, WeightMatrices):
    """h W q (Luong et al. 2015), for widths that may differ."""

    def __init__(self, query_size: int, memory_size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(memory_size, query_size))
        nn.init.xavier_uniform_(self.weight)

    def weight_matrices(self) -> list[Tensor]:
        """Return W."""
        return [self.weight]

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        turned = query @ self.weight.T  # (B, Q, M)
        return turned @ memory.transpose(1, 2)

    def prepare(self, memory: Tensor) -> Tensor:
        """Project the memory to the query space, (B, S, E)."""
        return memory @ self.weight

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries against a prepared memory."""
        return query @ keys.transpose(1, 2)


@register("score", "trilinear")
class Trilinear(nn.Module):
    """w·[q; h; q ⊙ h] (Seo et al. 2017); a memory of another width is projected to that of q."""

    def __init__(self, query_size: int, memory_size: int):
        super().__init__()
        self.query = nn.Linear(query_size, 1, bias=False)
        self.memory = nn.Linear(query_size, 1, bias=False)
        self.both = nn.Parameter(torch.randn(query_size) / query_size**0.5)
        self.project = _project_memory(query_size, memory_size)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        return self.compare(query, self.prepare(memory))

    def prepare(self, memory: Tensor) -> Tensor:
        """Return the memory in the width of the query, (B, S, E)."""
        keys: Tensor = self.project(memory)
        return keys

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries against a prepared memory, without the (B, Q, S, 3*E) of the formula."""
        product = (query * self.both) @ keys.transpose(1, 2)  # (B, Q, S)
        scores: Tensor = product + self.query(query) + self.memory(keys).transpose(1, 2)
        return scores


def _project_memory(query_size: int, memory_size: int) -> nn.Module:
    """Return the projection of a memory to the width of the query; none where it has it."""
    if query_size == memory_size:
        return nn.Identity()
    return nn.Linear(memory_size, query_size, bias=False)
