"""Span-based constituency parsing: the score of a tree is the sum of its labelled spans.

Span representation and margin follow Stern et al. (2017), the network over spans Kitaev and Klein
(2018). A span without a label scores 0, so trees of any arity are binary trees at no cost, and
unary chains are single labels.

B rows   T words of the longest   H width of a state   M hidden width   C labels
N spans of all rows, row by row as in cky.py   n some of them   K gold spans of the largest row
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import check_sizes

NO_LABEL = -1  # label of a span that is not a constituent
UNSEEN_LABEL = -2  # gold label unseen in training: every prediction is wrong
SPANS_PER_CHUNK = 1 << 15  # spans scored at once: a long sentence has millions

LabelledSpan = tuple[int, int, int]  # label, start, end


@dataclass(frozen=True)
class SpanBoundaries:
    """Features of the gaps between words, both ends included."""

    data: Tensor  # (B, T+1, M) a span is the difference of two gaps
    lengths: Tensor  # (B,) on the host


@dataclass(frozen=True)
class BestTree:
    """The labelled spans of one row, outer before inner, and their total score."""

    spans: tuple[LabelledSpan, ...]
    score: float


def gold_spans(rows: Sequence[Sequence[LabelledSpan]]) -> Tensor:
    """Return gold spans (B, K, 3) as label, start, end; shorter rows are padded with -1."""
    out = np.full((len(rows), max(map(len, rows), default=0), 3), -1, dtype=np.int64)
    for row, spans in zip(out, rows, strict=True):
        if spans:
            row[: len(spans)] = spans
    return torch.from_numpy(out)


class SpanScorer(nn.Module):
    """s(i, j, ·) = W₂ relu(norm(W₁ (g_j - g_i) + b₁)) + b₂, one score per label.

    Gap g_k concatenates the first half of the state before it and the second half of the state
    after it: in a bidirectional encoder, the forward and the backward states. The two ends of the
    sentence are learned.
    """

    def __init__(self, input_size: int, outputs: int, hidden: int = 250, dropout: float = 0.0):
        super().__init__()
        check_sizes("head 'brackets'", dropout, hidden=hidden)
        self.ahead = input_size // 2  # width of the forward half of a state
        self.before = nn.Parameter(torch.randn(self.ahead) / input_size**0.5)
        self.after = nn.Parameter(torch.randn(input_size - self.ahead) / input_size**0.5)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.Linear(input_size, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.norm = nn.LayerNorm(hidden)
        self.second = nn.Linear(hidden, outputs)

    def forward(self, states: Padded) -> SpanBoundaries:
        data = states.data  # (B, T, H)
        before = self.before.to(data.dtype).expand(len(data), 1, -1)
        after = self.after.to(data.dtype)
        back = torch.where(states.mask[:, :, None], data[:, :, self.ahead :], after)
        left = torch.cat([before, data[:, :, : self.ahead]], dim=1)
        right = torch.cat([back, after.expand(len(data), 1, -1)], dim=1)
        gaps = torch.cat([left, right], dim=2).float()  # (B, T+1, H)
        # W₁ before the difference: n + 1 products per row instead of n²/2. In full precision:
        # neighbouring gaps are close, and half precision would lose their difference.
        with torch.autocast(gaps.device.type, enabled=False):
            return SpanBoundaries(self.first(self.dropout(gaps)), states.lengths)

    def scores(self, boundaries: SpanBoundaries, row: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return label scores (n, C) of spans."""
        spans = boundaries.data[row, end] - boundaries.data[row, start]  # (n, M)
        with torch.autocast(spans.device.type, enabled=False):
            scores: Tensor = self.second(self.norm(spans + self.bias).relu())  # (n, C)
        return scores

    def loss(
        self, boundaries: SpanBoundaries, gold: Tensor, threads: int = 0
    ) -> tuple[Tensor, int]:
        """Return the summed margin by which the best tree beats the gold tree, and the rows.

        Every span labelled differently from the gold tree adds 1 to its tree (Hamming loss), so the
        gold tree must win by a margin. The search needs no gradient: only the spans of the two
        trees are scored again, with gradient.
        """
        all_spans = _all_spans(boundaries)
        gold_labels = self._gold_labels(boundaries, gold, all_spans)
        best, label = self._best(boundaries, all_spans, gold_labels)
        index, owner = _search_trees(best, boundaries.lengths, threads)
        chosen = label[index]  # (n,)
        wrong = (chosen != gold_labels[index]).float()
        margin = wrong.new_zeros(len(gold)).index_add(0, owner, wrong)  # (B,)
        margin = margin + self._tree_scores(boundaries, all_spans, index, chosen)
        real = (gold[:, :, 1] >= 0) & (gold[:, :, 0] >= 0)
        row = real.nonzero(as_tuple=True)[0]
        name, start, end = gold[real].unbind(1)  # (n,)
        margin = margin - _sum_by_row(
            self.scores(boundaries, row, start, end), name, row, len(gold)
        )
        return margin.relu().sum(), len(gold)

    @torch.no_grad()
    def decode(self, boundaries: SpanBoundaries, threads: int = 0) -> list[BestTree]:
        """Return the best tree of each row."""
        all_spans = _all_spans(boundaries)
        best, label = self._best(boundaries, all_spans)
        index, owner = _search_trees(best, boundaries.lengths, threads)
        labelled = label[index] != NO_LABEL
        index, owner = index[labelled], owner[labelled]
        columns = torch.stack(
            [label[index], all_spans[1][index], all_spans[2][index]], dim=1
        )  # (n, 3)
        totals = best.new_zeros(len(boundaries.lengths)).index_add(0, owner, best[index]).tolist()
        counts = torch.bincount(owner, minlength=len(totals)).tolist()
        spans = iter(map(tuple, columns.tolist()))
        return [
            BestTree(tuple(next(spans) for _ in range(count)), total)
            for count, total in zip(counts, totals, strict=True)
        ]

    @torch.no_grad()
    def _best(
        self,
        boundaries: SpanBoundaries,
        all_spans: tuple[Tensor, ...],
        gold_labels: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the best score (N,) and label (N,) of every span.

        With `gold_labels`, every wrong label gains 1. A span may stay unlabelled, except a whole
        sentence of several words.
        """
        row, start, end = all_spans
        lengths = boundaries.lengths.to(row.device)
        best = torch.empty(len(row), device=row.device)  # (N,)
        label = torch.empty_like(row)  # (N,)
        for at in range(0, len(row), SPANS_PER_CHUNK):
            part = slice(at, at + SPANS_PER_CHUNK)
            scores = self.scores(boundaries, row[part], start[part], end[part])  # (n, C)
            empty = scores.new_zeros(len(scores), 1)
            scores = torch.cat([scores, empty], dim=1)  # (n, C+1)
            if gold_labels is not None:
                gold_label = gold_labels[part]
                # NO_LABEL, -1, is the last column; an unseen label has none: all are wrong.
                seen = (gold_label != UNSEEN_LABEL).float()[:, None]
                column = torch.where(gold_label < 0, scores.shape[1] - 1, gold_label)[:, None]
                scores = (scores + 1).scatter_add(1, column, -seen)
            whole = (start[part] == 0) & (end[part] == lengths[row[part]]) & (end[part] > 1)
            best[part], label[part] = _best_labels(scores, whole)
        return best, label

    @torch.no_grad()
    def all_scores(self, boundaries: SpanBoundaries) -> list[np.ndarray]:
        """Return the label scores (N, C) of all spans of each row."""
        row, start, end = _all_spans(boundaries)
        parts = [
            self.scores(boundaries, *(x[at : at + SPANS_PER_CHUNK] for x in (row, start, end)))
            for at in range(0, len(row), SPANS_PER_CHUNK)
        ]
        counts = torch.bincount(row, minlength=len(boundaries.lengths)).cumsum(0)
        return np.split(torch.cat(parts).cpu().numpy(), counts[:-1].cpu().numpy())

    def _gold_labels(
        self, boundaries: SpanBoundaries, gold: Tensor, all_spans: tuple[Tensor, ...]
    ) -> Tensor:
        """Return the gold label (N,) of every span."""
        n = boundaries.lengths.to(gold.device)
        first = torch.cumsum(n * (n + 1) // 2, 0) - n * (n + 1) // 2  # (B,)
        real = gold[:, :, 1] >= 0
        row = real.nonzero(as_tuple=True)[0]
        name, start, end = gold[real].unbind(1)
        index = first[row] + start * n[row] - start * (start - 1) // 2 + end - start - 1
        out = torch.full_like(all_spans[0], NO_LABEL)
        out[index] = name
        return out

    def _tree_scores(
        self,
        boundaries: SpanBoundaries,
        all_spans: tuple[Tensor, ...],
        index: Tensor,
        label: Tensor,
    ) -> Tensor:
        """Return the summed scores (B,) of labelled spans."""
        index, label = index[label >= 0], label[label >= 0]
        row, start, end = (column[index] for column in all_spans)
        return _sum_by_row(
            self.scores(boundaries, row, start, end), label, row, len(boundaries.lengths)
        )


def _best_labels(scores: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best score and label (n,) from scores (n, C+1), the last of no label.

    Spans that are a `whole` sentence must have a label.
    """
    scores[:, -1].masked_fill_(whole, -torch.inf)
    top, column = scores.max(1)
    return top, torch.where(column == scores.shape[1] - 1, NO_LABEL, column)


def best_spans(scores: np.ndarray, length: int) -> list[LabelledSpan]:
    """Return the labelled spans of the best tree from the label scores (N, C) of all spans."""
    start, end = np.triu_indices(length)
    whole = torch.from_numpy((start == 0) & (end + 1 == length) & (length > 1))
    with_none = np.concatenate([scores, np.zeros((len(scores), 1))], axis=1)  # (N, C+1)
    best, label = _best_labels(torch.from_numpy(with_none).float(), whole)
    index, _ = _search_trees(best, torch.tensor([length]), threads=1)
    chosen = [i for i in index.tolist() if label[i] != NO_LABEL]
    return [(int(label[i]), int(start[i]), int(end[i]) + 1) for i in chosen]


def _sum_by_row(scores: Tensor, label: Tensor, row: Tensor, rows: int) -> Tensor:
    picked = scores.gather(1, label[:, None]).squeeze(1)  # (n,)
    return picked.new_zeros(rows).index_add(0, row, picked)


def _all_spans(boundaries: SpanBoundaries) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, start and end (N,) of every span."""
    from weft.decode.heads.cky import span_count

    lengths = boundaries.lengths.tolist()
    counts = [span_count(n) for n in lengths]
    corners: dict[int, np.ndarray] = {n: np.stack(np.triu_indices(n)) for n in set(lengths)}
    both = np.concatenate([corners[n] for n in lengths], axis=1)
    columns = (np.repeat(np.arange(len(lengths)), counts), both[0], both[1] + 1)
    row, start, end = (torch.from_numpy(c).to(boundaries.data.device) for c in columns)
    return row, start, end


def _search_trees(best: Tensor, lengths: Tensor, threads: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the best trees' spans among the N, and the row of each."""
    # Imported here: Numba takes a moment to import, and scoring does not need it.
    from weft.decode.heads.cky import best_tree, span_count
    from weft.decode.heads.mst import map_rows

    sizes = lengths.tolist()
    ends = np.cumsum([span_count(n) for n in sizes])
    scores = best.cpu().numpy()
    trees: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(sizes)

    def fill(row: int) -> None:
        start = int(ends[row]) - span_count(sizes[row])
        trees[row] = start + best_tree(scores[start : ends[row]], sizes[row])

    map_rows(fill, sorted(range(len(sizes)), key=lambda row: -sizes[row]), threads)
    owner = np.repeat(np.arange(len(sizes)), [len(tree) for tree in trees])
    index = torch.from_numpy(np.concatenate(trees)).to(best.device)
    return index, torch.from_numpy(owner).to(best.device)
