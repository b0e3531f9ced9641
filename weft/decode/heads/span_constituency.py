"""Constituency by scored spans: a tree is worth the sum of its labelled spans.

The span representation and the margin are those of Stern et al. (2017), the small network over
them that of Kitaev and Klein (2018). A span without a label is worth 0, so that trees of any
arity are read as binary ones for free, and unary chains are labels of their own.

B rows   T words of the longest   H width of a state   M hidden width   C labels
N spans of all rows, row by row as in cky.py   n some of them   K most gold spans a row
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import sensible

NO_LABEL = -1  # label of a span that is no constituent
UNSEEN_LABEL = -2  # gold label that training never saw: every answer is wrong
SPANS_PER_CHUNK = 1 << 15  # spans scored at once: a long sentence has millions

LabelledSpan = tuple[int, int, int]  # label, start, end


@dataclass(frozen=True)
class SpanBoundaries:
    """What the spans of a batch are scored from: the gaps between words, ends included."""

    data: Tensor  # (B, T+1, M) a span is the difference of two
    lengths: Tensor  # (B,) on the host


@dataclass(frozen=True)
class BestTree:
    """The labelled spans of one row, outer before inner, and what they are worth together."""

    spans: tuple[LabelledSpan, ...]
    score: float


def gold_spans(rows: Sequence[Sequence[LabelledSpan]]) -> Tensor:
    """Gold spans (B, K, 3) as label, start, end; rows with fewer end in spans that start at -1."""
    out = np.full((len(rows), max(map(len, rows), default=0), 3), -1, dtype=np.int64)
    for row, spans in zip(out, rows, strict=True):
        if spans:
            row[: len(spans)] = spans
    return torch.from_numpy(out)


class SpanScorer(nn.Module):
    """s(i, j, ·) = W₂ relu(norm(W₁ (g_j - g_i) + b₁)) + b₂, one score a label.

    Gap g_k joins the first half of the state before it to the second half of the state after it:
    of a bidirectional encoder, what was read from the left and from the right. The two ends of
    the sentence are learned.
    """

    def __init__(self, input_size: int, outputs: int, hidden: int = 250, dropout: float = 0.0):
        super().__init__()
        sensible("head 'brackets'", dropout, hidden=hidden)
        self.ahead = input_size // 2  # how much of a state was read from the left
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
        # W₁ before the difference rather than after it: n + 1 products a row and not n²/2. In
        # full precision: neighbouring gaps are close, and half of it would lose what differs.
        with torch.autocast(gaps.device.type, enabled=False):
            return SpanBoundaries(self.first(self.dropout(gaps)), states.lengths)

    def scores(self, fences: SpanBoundaries, row: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Label scores (n, C) of chosen spans."""
        spans = fences.data[row, end] - fences.data[row, start]  # (n, M)
        with torch.autocast(spans.device.type, enabled=False):
            return self.second(self.norm(spans + self.bias).relu())

    def loss(self, fences: SpanBoundaries, gold: Tensor, threads: int = 0) -> tuple[Tensor, int]:
        """How far each row's best tree is above the right one, as a sum, and how many rows.

        Every span of a tree that is labelled other than in the right one counts 1 in its favour
        (Hamming loss), so that the right tree must win by a margin. The search needs no gradient:
        only the spans of the two trees are scored a second time, with one.
        """
        where = _all_spans(fences)
        right = self._right(fences, gold, where)
        best, label = self._best(fences, where, right)
        found, owner = _search_trees(best, fences.lengths, threads)
        chosen = label[found]  # (n,)
        wrong = (chosen != right[found]).float()
        margin = wrong.new_zeros(len(gold)).index_add(0, owner, wrong)  # (B,)
        margin = margin + self._worth(fences, where, found, chosen)
        real = (gold[:, :, 1] >= 0) & (gold[:, :, 0] >= 0)
        row = real.nonzero(as_tuple=True)[0]
        name, start, end = gold[real].unbind(1)  # (n,)
        margin = margin - _sum_by_row(self.scores(fences, row, start, end), name, row, len(gold))
        return margin.relu().sum(), len(gold)

    @torch.no_grad()
    def decode(self, fences: SpanBoundaries, threads: int = 0) -> list[BestTree]:
        """The best tree of each row."""
        where = _all_spans(fences)
        best, label = self._best(fences, where)
        found, owner = _search_trees(best, fences.lengths, threads)
        named = label[found] != NO_LABEL
        found, owner = found[named], owner[named]
        columns = torch.stack([label[found], where[1][found], where[2][found]], dim=1)  # (n, 3)
        totals = best.new_zeros(len(fences.lengths)).index_add(0, owner, best[found]).tolist()
        counts = torch.bincount(owner, minlength=len(totals)).tolist()
        spans = iter(map(tuple, columns.tolist()))
        return [
            BestTree(tuple(next(spans) for _ in range(count)), total)
            for count, total in zip(counts, totals, strict=True)
        ]

    @torch.no_grad()
    def _best(
        self, fences: SpanBoundaries, where: tuple[Tensor, ...], right: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The best score (N,) and label (N,) of every span; with `right` ones, wrong ones gain 1.

        A span may stay without a label, except the whole of a sentence of several words.
        """
        row, start, end = where
        most = fences.lengths.to(row.device)
        best = torch.empty(len(row), device=row.device)  # (N,)
        label = torch.empty_like(row)  # (N,)
        for at in range(0, len(row), SPANS_PER_CHUNK):
            part = slice(at, at + SPANS_PER_CHUNK)
            scores = self.scores(fences, row[part], start[part], end[part])  # (n, C)
            empty = scores.new_zeros(len(scores), 1)
            scores = torch.cat([scores, empty], dim=1)  # (n, C+1)
            if right is not None:
                wanted = right[part]
                # EMPTY, -1, is the last column; an unseen label has none, and all are wrong.
                seen = (wanted != UNSEEN_LABEL).float()[:, None]
                column = torch.where(wanted < 0, scores.shape[1] - 1, wanted)[:, None]
                scores = (scores + 1).scatter_add(1, column, -seen)
            whole = (start[part] == 0) & (end[part] == most[row[part]]) & (end[part] > 1)
            scores[:, -1].masked_fill_(whole, -torch.inf)
            top, column = scores.max(1)
            best[part] = top
            label[part] = torch.where(column == scores.shape[1] - 1, NO_LABEL, column)
        return best, label

    def _right(self, fences: SpanBoundaries, gold: Tensor, where: tuple[Tensor, ...]) -> Tensor:
        """The gold label (N,) of every span."""
        n = fences.lengths.to(gold.device)
        first = torch.cumsum(n * (n + 1) // 2, 0) - n * (n + 1) // 2  # (B,)
        real = gold[:, :, 1] >= 0
        row = real.nonzero(as_tuple=True)[0]
        name, start, end = gold[real].unbind(1)
        place = first[row] + start * n[row] - start * (start - 1) // 2 + end - start - 1
        out = torch.full_like(where[0], NO_LABEL)
        out[place] = name
        return out

    def _worth(
        self, fences: SpanBoundaries, where: tuple[Tensor, ...], found: Tensor, label: Tensor
    ) -> Tensor:
        """The sum of the scores (B,) of the spans found, each with its label."""
        found, label = found[label >= 0], label[label >= 0]
        row, start, end = (column[found] for column in where)
        return _sum_by_row(self.scores(fences, row, start, end), label, row, len(fences.lengths))


def _sum_by_row(scores: Tensor, label: Tensor, row: Tensor, rows: int) -> Tensor:
    picked = scores.gather(1, label[:, None]).squeeze(1)  # (n,)
    return picked.new_zeros(rows).index_add(0, row, picked)


def _all_spans(fences: SpanBoundaries) -> tuple[Tensor, Tensor, Tensor]:
    """Row, start and end (N,) of every span."""
    from weft.decode.heads.cky import span_count

    lengths = fences.lengths.tolist()
    counts = [span_count(n) for n in lengths]
    corners: dict[int, np.ndarray] = {n: np.stack(np.triu_indices(n)) for n in set(lengths)}
    both = np.concatenate([corners[n] for n in lengths], axis=1)
    columns = (np.repeat(np.arange(len(lengths)), counts), both[0], both[1] + 1)
    row, start, end = (torch.from_numpy(c).to(fences.data.device) for c in columns)
    return row, start, end


def _search_trees(best: Tensor, lengths: Tensor, threads: int) -> tuple[Tensor, Tensor]:
    """Where the spans of the best trees lie among the N, and the row of each."""
    # Here and not above: the compiler takes a moment to import, and scoring needs none.
    from weft.decode.heads.cky import best_tree, span_count
    from weft.decode.heads.mst import map_rows

    sizes = lengths.tolist()
    ends = np.cumsum([span_count(n) for n in sizes])
    scores = best.cpu().numpy()
    found: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(sizes)

    def fill(row: int) -> None:
        start = int(ends[row]) - span_count(sizes[row])
        found[row] = start + best_tree(scores[start : ends[row]], sizes[row])

    map_rows(fill, sorted(range(len(sizes)), key=lambda row: -sizes[row]), threads)
    owner = np.repeat(np.arange(len(sizes)), [len(places) for places in found])
    places = torch.from_numpy(np.concatenate(found)).to(best.device)
    return places, torch.from_numpy(owner).to(best.device)
