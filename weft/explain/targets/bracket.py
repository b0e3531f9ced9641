"""Brackets of a constituency parser: scores of the labels of one span.

In a chart parser the score of a tree is the sum of its labelled spans; read as a log-linear model,
exp of it is the weight of the tree among all trees (the inside algorithm sums them). A parser that
merges greedily knows one tree: a softmax labels the node that it makes of the span.

B rows   T words   C labels   N spans of a row
"""

import torch
from torch import Tensor

from weft.decode.heads.crf_dp import accumulation_dtype
from weft.decode.heads.parse import ConstituencyOutput, RecursiveOutput
from weft.decode.heads.span_constituency import SpanBoundaries, SpanScorer

FORBIDDEN_SCORE = -1e4  # of what a constraint forbids: as good as -inf, and it has a gradient

SpanTable = list[tuple[int, int]]  # (N,) start and end of spans


def all_spans(size: int) -> SpanTable:
    """Return every span of a sentence, row by row."""
    return [(i, j) for i in range(size) for j in range(i + 1, size + 1)]


def label_scores(scorer: SpanScorer, boundaries: SpanBoundaries) -> Tensor:
    """(B, N, C + 1) the score of every label of every span; the last column is no constituent.

    All rows have the same length. A span without a label scores 0; a whole sentence of several
    words has one.
    """
    size, rows = boundaries.data.shape[1] - 1, len(boundaries.data)
    device = boundaries.data.device
    start, end = (torch.tensor(x, device=device) for x in zip(*all_spans(size), strict=True))
    row = torch.arange(rows, device=device).repeat_interleave(len(start))
    labels = scorer.scores(boundaries, row, start.repeat(rows), end.repeat(rows))
    labels = labels.to(accumulation_dtype(device)).unflatten(0, (rows, len(start)))  # (B, N, C)
    none = labels.new_zeros(rows, len(start), 1)
    if size > 1:
        none = none.index_fill(1, torch.tensor([size - 1], device=device), FORBIDDEN_SCORE)
    return torch.cat([labels, none], dim=2)


def log_partition(weights: Tensor, size: int) -> Tensor:
    """(B,) the log-sum of all binary trees, of the weights (B, N) of their spans."""
    at = {span: k for k, span in enumerate(all_spans(size))}
    # Inside sums by width: inside[w][:, i] is the span (i, i + w).
    inside = [weights.new_zeros(len(weights), 0)]
    for width in range(1, size + 1):
        count = size - width + 1
        own = weights[:, [at[i, i + width] for i in range(count)]]  # (B, count)
        if width > 1:
            ways = torch.stack(
                [
                    inside[k][:, :count] + inside[width - k][:, k : k + count]
                    for k in range(1, width)
                ]
            )
            own = own + ways.logsumexp(0)
        inside.append(own)
    return inside[size][:, 0]


def bracket_logits(output: ConstituencyOutput | RecursiveOutput, start: int, end: int) -> Tensor:
    """(B, C + 1) logits of the labels of one span, the last of no constituent."""
    if isinstance(output, RecursiveOutput):
        return output.head.merger.span_logits(output.leaves, start, end)
    return bracket_scores(output.head.brackets, output.boundaries, start, end)


def bracket_probs(
    output: ConstituencyOutput | RecursiveOutput, spans: SpanTable
) -> list[list[float]]:
    """Return the probability of every label (C + 1) of some spans of one row."""
    if isinstance(output, RecursiveOutput):
        return [bracket_logits(output, *span)[0].softmax(0).tolist() for span in spans]
    shares = bracket_marginals(output.head.brackets, output.boundaries).tolist()
    table = dict(zip(all_spans(output.boundaries.data.shape[1] - 1), shares, strict=True))
    return [table[span] for span in spans]


def bracket_scores(scorer: SpanScorer, boundaries: SpanBoundaries, start: int, end: int) -> Tensor:
    """(B, C + 1) the log-sum of all trees with each label on one span.

    The last column is of the trees where the span is no constituent. A softmax of it gives the
    marginal probabilities of the labels.
    """
    labels = label_scores(scorer, boundaries)  # (B, N, C + 1)
    size = boundaries.data.shape[1] - 1
    spans = all_spans(size)
    here = spans.index((start, end))
    weights = labels.logsumexp(2)  # (B, N)
    bare = labels[:, :, -1]  # (B, N)
    index = torch.tensor([here], device=labels.device)
    without = weights.index_copy(1, index, bare[:, here : here + 1])
    crossing = [i < start < j < end or start < i < end < j for i, j in spans]
    barred = torch.tensor(crossing, device=labels.device)
    through = torch.where(barred, FORBIDDEN_SCORE, weights)
    through = through.index_fill(1, index, 0.0)
    rest = log_partition(torch.cat([without, through]), size)  # (2 * B,)
    none, others = rest.chunk(2)
    return torch.cat([labels[:, here, :-1] + others[:, None], none[:, None]], dim=1)


def bracket_marginals(scorer: SpanScorer, boundaries: SpanBoundaries) -> Tensor:
    """(N, C + 1) the probability of every label of every span of one row.

    The gradient of the log-sum of all trees: of a label, the share of the trees with it.
    """
    with torch.enable_grad():
        labels = label_scores(scorer, boundaries).detach().requires_grad_()
        total = log_partition(labels.logsumexp(2), boundaries.data.shape[1] - 1).sum()
        (shares,) = torch.autograd.grad(total, labels)
    out = shares[0].clone()
    out[:, -1] = 1 - out[:, :-1].sum(1)
    return out
