"""A recursive network that parses by greedy merging, trained by a margin (Socher et al. 2011).

Any two neighbours c₁, c₂ could become a node p = tanh(W [c₁; c₂] + b) of score u · p; the best pair
is merged until one node is left. A tree scores the sum of its nodes. Trees of any arity are sets of
binary trees: those that cross no constituent. Among them training takes the one that merging finds
when it may not cross any.

B rows   R rows searched   T words of the longest   H width of a node   C labels   M merges, T - 1
K gold spans of the largest row   N nodes of all trees   n some of them
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.span_constituency import UNSEEN_LABEL, BestTree
from weft.embed.activations import check_sizes
from weft.encode.tree_cells import TreeRNNCell
from weft.encode.tree_levels import plan_levels
from weft.errors import UserError
from weft.protocols import WeightMatrices

ABSENT = -1  # the cell of a merge that a shorter row does not have
Update = Literal["max-violation", "tree"]
IGNORED = -100  # label of a node that costs nothing


@dataclass(frozen=True)
class LeafStates:
    """The states of the words, the leaves of every tree."""

    data: Tensor  # (B, T, H)
    lengths: Tensor  # (B,) on the host


@dataclass(frozen=True)
class Merges:
    """The nodes made in each row, in order, from `start` to `end`; children meet at `split`."""

    start: Tensor  # (R, M)
    split: Tensor  # (R, M)
    end: Tensor  # (R, M)
    states: Tensor  # (R, M, H) of the nodes made


class GreedyMerger(nn.Module, WeightMatrices):
    """p = tanh(W [c₁; c₂] + b), score u · p, label softmax(V p + v), the last label being none.

    A leaf is tanh of its state, as in 'tree-rnn'; with `hidden` other than that state's width, of a
    projection of it. A wrong node of the predicted tree costs `margin` (κ in the paper). `update`
    compares whole trees, as in the paper ("tree"), or up to the merge where the violation is
    largest ("max-violation", Huang et al. 2012).
    """

    def __init__(
        self,
        input_size: int,
        outputs: int,
        hidden: int = 0,
        margin: float = 0.1,
        dropout: float = 0.0,
        update: Update = "max-violation",
    ):
        super().__init__()
        hidden = hidden or input_size
        check_sizes("head 'recursive'", dropout, hidden=hidden)
        if margin <= 0:
            raise UserError(f"head 'recursive': 'margin' should be above 0, got {margin}.")
        self.margin, self.labels, self.update = margin, outputs, update
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(input_size, hidden) if hidden != input_size else None
        self.weight = nn.Parameter(torch.empty(hidden, 2 * hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.score = nn.Linear(hidden, 1, bias=False)
        self.label = nn.Linear(hidden, outputs + 1)
        # A node starts as the mean of its children, as in 'tree-rnn'.
        with torch.no_grad():
            noise = 1 / (4 * hidden**0.5)
            self.weight.uniform_(-noise, noise).add_(torch.eye(hidden).repeat(1, 2) / 2)

    def weight_matrices(self) -> list[Tensor]:
        """Return W."""
        return [self.weight]

    def forward(self, states: Padded) -> LeafStates:
        with torch.autocast(states.data.device.type, enabled=False):
            # Zeros in the padding first: garbage there would reach the gradient of the projection.
            words = states.data.float().masked_fill(~states.mask[:, :, None], 0)
            words = self.dropout(words)
            words = words if self.project is None else self.project(words)
            leaves = words.tanh()  # (B, T, H)
        return LeafStates(leaves, states.lengths)

    def loss(self, leaves: LeafStates, gold: Tensor) -> tuple[Tensor, int]:
        """Return the summed losses of structure and labels, and the rows.

        The structure's is s(ŷ) + κ · wrong nodes of ŷ − s(y); the predicted tree ŷ is searched with
        κ added to the score of every wrong node, the gold tree y without wrong ones, and without
        such nodes ŷ is y. The search needs no gradient: the nodes of both trees are computed again,
        with gradient.
        """
        rows = len(gold)
        real = gold[:, :, 1] >= 0  # (B, K)
        start, end = (gold[:, :, k].masked_fill(~real, ABSENT) for k in (1, 2))
        both = (start.repeat(2, 1), end.repeat(2, 1))  # (R, K) ŷ first, then y
        cost = leaves.data.new_full((2 * rows,), self.margin)
        cost[rows:] = -torch.inf
        doubled = LeafStates(leaves.data.repeat(2, 1, 1), leaves.lengths.repeat(2))
        merges = self.merge(doubled, both, cost)
        wrong = _crosses(merges.start[:rows], merges.end[:rows], start, end)  # (B, M)
        with torch.autocast(leaves.data.device.type, enabled=False):
            states, nodes = self._compose(doubled, merges)  # (N, H)
            scores = states.new_zeros(merges.start.shape)  # (R, M)
            scores = scores.index_put(
                nodes.merge, self.score(states[nodes.end - nodes.start > 1])[:, 0]
            )
            violation = _violations(
                scores[:rows] + self.margin * wrong - scores[rows:], self.update
            )
            own = nodes.row >= rows
            labels = _gold_labels(nodes, gold, own, self.labels)  # (n,)
            label_loss = F.cross_entropy(
                self.label(states[own]), labels, reduction="sum", ignore_index=IGNORED
            )
        return violation.sum() + label_loss, rows

    @torch.no_grad()
    def decode(self, leaves: LeafStates) -> list[BestTree]:
        """Return the labelled spans of each row's greedy tree, outer before inner."""
        merges = self.merge(leaves)
        rows, steps = leaves.data.shape[:2]
        words = torch.arange(steps, device=leaves.data.device).expand(rows, -1)
        start = torch.cat([words, merges.start], 1)  # (B, T + M)
        end = torch.cat([words + 1, merges.end], 1)
        with torch.autocast(leaves.data.device.type, enabled=False):
            logits = self.label(torch.cat([leaves.data, merges.states], 1))  # (B, T + M, C + 1)
            own = self.score(merges.states)[:, :, 0]  # (B, M)
        lengths = leaves.lengths.to(start.device)[:, None]
        whole = (start == 0) & (end == lengths) & (end > 1)
        logits[:, :, -1].masked_fill_(whole, -torch.inf)  # a sentence has a label
        label = logits.argmax(2)
        kept = (start >= 0) & (end <= lengths) & (label < self.labels)
        scores = own.masked_fill(merges.start < 0, 0).sum(1).tolist()
        table = torch.stack([label, start, end], 2)
        return [
            BestTree(tuple(sorted(map(tuple, row[keep].tolist()), key=_outer_first)), score)
            for row, keep, score in zip(table.cpu(), kept.cpu(), scores, strict=True)
        ]

    def span_logits(self, leaves: LeafStates, start: int, end: int) -> Tensor:
        """Return label logits (B, C + 1) of one span, the last of no label.

        Rows are merged so that the span becomes a node. A whole sentence of several words has a
        label.
        """
        rows = len(leaves.data)
        spans = torch.tensor([[start, end]], device=leaves.data.device).expand(rows, -1)
        cost = leaves.data.new_full((rows,), -torch.inf)
        merges = self.merge(leaves, (spans[:, :1], spans[:, 1:]), cost)
        with torch.autocast(leaves.data.device.type, enabled=False):
            states, nodes = self._compose(leaves, merges)
            logits: Tensor = self.label(states[(nodes.start == start) & (nodes.end == end)])
        if start == 0 and 1 < end == leaves.data.shape[1]:
            logits = logits.index_fill(1, torch.tensor([self.labels], device=logits.device), -1e4)
        return logits

    @torch.no_grad()
    def merge(
        self,
        leaves: LeafStates,
        gold: tuple[Tensor, Tensor] | None = None,
        cost: Tensor | None = None,
    ) -> Merges:
        """Merge the best pair of neighbours until one node is left, in all rows at once.

        `cost` (R,) is added to the score of a node that crosses one of the gold spans, given by
        their starts and ends (R, K).
        """
        with torch.autocast(leaves.data.device.type, enabled=False):
            return self._merge(leaves.data.detach(), leaves.lengths, gold, cost)

    def _merge(
        self,
        data: Tensor,
        host_lengths: Tensor,
        gold: tuple[Tensor, Tensor] | None,
        cost: Tensor | None,
    ) -> Merges:
        rows, words, width = data.shape
        # One more column: rows that are done write there.
        index = torch.arange(words + 1, device=data.device).expand(rows, -1)
        lengths, row = host_lengths.to(data.device), torch.arange(rows, device=data.device)
        end = (index + 1).clamp(max=words).contiguous()  # (R, T + 1) of the node that starts there
        begin = F.pad(index, (1, 0)).contiguous()  # (R, T + 2) of the node that ends there
        weight = torch.cat(self.weight.detach().split(width, 1))  # (2H, H)
        halves = F.pad(data, (0, 0, 0, 1)) @ weight.t()  # (R, T + 1, 2H) as left child, as right
        if not bool(halves.isfinite().all()):
            raise UserError(
                "The parser's states are not finite (nan or inf): training has diverged. Train "
                "again with a lower learning rate."
            )
        left, right = halves.split(width, 2)

        def score(node: Tensor, start: Tensor, stop: Tensor) -> Tensor:
            scores: Tensor = self.score(node)[..., 0]
            if gold is None or cost is None:
                return scores
            crossing = _crosses(start, stop, *gold)
            return torch.where(crossing, scores + cost.view(-1, *[1] * (start.dim() - 1)), scores)

        pairs = (left[:, :-1] + right[:, 1:] + self.bias).tanh()  # (R, T, H) with the next node
        scores = score(pairs, index[:, :-1], index[:, :-1] + 2)  # (R, T)
        exists = index[:, :-1] + 1 < lengths[:, None]
        scores = F.pad(scores.masked_fill(~exists, -torch.inf), (0, 1), value=-torch.inf)
        pairs = F.pad(pairs, (0, 0, 0, 1))  # (R, T + 1, H)
        found: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
        for step in range(words - 1):
            active = step + 1 < lengths  # (R,)
            at = scores.argmax(1).masked_fill(~active, words)
            split = end[row, at]
            stop = end[row, split]
            node = pairs[row, at]  # (R, H)
            found.append((at, split, stop, node, active))
            halves[row, at] = node @ weight.t()
            end[row, at], begin[row, stop] = stop, at
            scores[row, split] = scores[row, at] = -torch.inf
            # The new node with the one before it, and with the one after.
            for first, second, tail, none in (
                (begin[row, at], at, stop, (at == 0) | ~active),
                (at, stop, end[row, stop], (stop >= lengths) | ~active),
            ):
                place = first.masked_fill(none, words)
                made = (left[row, first] + right[row, second] + self.bias).tanh()  # (R, H)
                pairs[row, place] = made
                scores[row, place] = score(made, first, tail).masked_fill(none, -torch.inf)
        return _stack_merges(found, data)

    def _compose(self, leaves: LeafStates, merges: Merges) -> tuple[Tensor, "TreeNodes"]:
        """Return the states (N, H) of all nodes of the merged trees, and what they span."""
        nodes = _list_nodes(merges, leaves.lengths)
        device = leaves.data.device
        counts = 2 * leaves.lengths - 1
        step = nodes.step.to(device)
        flat = torch.empty(len(counts), int(counts.max()), device=device)
        levels = plan_levels(Padded(flat, counts, parents=nodes.parents), "head 'recursive'", 2)
        word = torch.zeros(flat.numel(), dtype=torch.long, device=device)
        word[step] = nodes.row * leaves.data.shape[1] + nodes.start
        own = leaves.data.flatten(0, 1)[word[levels.order[: levels.leaves]]]
        states: Tensor = TreeRNNCell.apply(  # type: ignore[no-untyped-call]  # not annotated by torch
            own, self.weight, self.bias, None, levels
        )  # (R * T', H)
        return states[step], nodes


@dataclass(frozen=True)
class TreeNodes:
    """The nodes of all trees, row by row, children before parents."""

    row: Tensor  # (N,)
    start: Tensor  # (N,)
    end: Tensor  # (N,)
    keys: np.ndarray  # (N,) increasing: row, end and start in one number
    step: Tensor  # (N,) place in a padded batch of trees, on the host
    merge: tuple[Tensor, Tensor]  # row and number of the merge that made each inner node
    parents: Tensor  # (R, T') step of each node's parent, -1 at roots, on the host


def _stack_merges(
    found: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]], leaves: Tensor
) -> Merges:
    """Return the merges of all steps, those of finished rows marked as absent."""
    if not found:
        none = torch.zeros(len(leaves), 0, dtype=torch.long, device=leaves.device)
        return Merges(none, none, none, leaves[:, :0])
    start, split, end, states, active = (torch.stack(each, 1) for each in zip(*found, strict=True))
    start, split, end = (each.masked_fill(~active, ABSENT) for each in (start, split, end))
    return Merges(start, split, end, states)


def _violations(gaps: Tensor, update: Update) -> Tensor:
    """Return the violation of the margin (B,), of what each merge (B, M) of ŷ has above that of y.

    Greedy search may miss the best tree, so the sum over all merges can be below 0 while ŷ errs.
    After the first wrong merge it never is: the largest sum over the first merges is at least 0.
    """
    if update == "tree" or not gaps.shape[1]:
        return gaps.sum(1)
    return gaps.cumsum(1).amax(1)


def _crosses(start: Tensor, end: Tensor, gold_start: Tensor, gold_end: Tensor) -> Tensor:
    """Return which spans (R,) or (R, n) cross a gold span (R, K): neither holds the other."""
    shape = (len(gold_start), *[1] * (start.dim() - 1), -1)
    a, b = gold_start.view(shape), gold_end.view(shape)
    s, e = start[..., None], end[..., None]
    return (((s < a) & (a < e) & (e < b)) | ((a < s) & (s < b) & (b < e))).any(-1)


def _list_nodes(merges: Merges, lengths: Tensor) -> TreeNodes:
    """Lay out leaves and merged nodes by their ends, which puts children before parents."""
    device = merges.start.device
    start, split, end = torch.stack([merges.start, merges.split, merges.end]).cpu().numpy()
    words = lengths.numpy()
    row, merged = np.nonzero(start >= 0)
    leaf_row = np.repeat(np.arange(len(words)), words)
    leaf = np.concatenate([np.arange(n) for n in words])
    base = int(words.max()) + 1

    def key(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        numbers: np.ndarray = (rows * base + ends) * base + base - 1 - starts
        return numbers

    own = tuple(column[row, merged] for column in (start, split, end))
    inner = key(row, own[0], own[2])
    keys = np.sort(np.concatenate([key(leaf_row, leaf, leaf + 1), inner]))
    above = np.full(len(keys), ABSENT)
    place = np.searchsorted(keys, inner)
    for children in (key(row, own[0], own[1]), key(row, own[1], own[2])):
        above[np.searchsorted(keys, children)] = place
    rows, rest = np.divmod(keys, base * base)
    ends, back = np.divmod(rest, base)
    counts = 2 * words - 1
    first = np.cumsum(counts) - counts
    wide = int(counts.max())
    step = rows * wide + np.arange(len(keys)) - first[rows]
    parents = np.full(len(words) * wide, ABSENT)
    parents[step] = np.where(above < 0, ABSENT, above - first[rows])
    order = np.argsort(inner)
    made = (torch.from_numpy(row[order]).to(device), torch.from_numpy(merged[order]).to(device))
    node_row, node_start, node_end = torch.from_numpy(np.stack([rows, base - 1 - back, ends])).to(
        device
    )
    parent_steps = torch.from_numpy(parents.reshape(-1, wide))
    return TreeNodes(
        node_row, node_start, node_end, keys, torch.from_numpy(step), made, parent_steps
    )


def _gold_labels(nodes: TreeNodes, gold: Tensor, own: Tensor, labels: int) -> Tensor:
    """Return the label (n,) of the gold trees' nodes, the last rows: `labels` if they have none."""
    table = gold.cpu().numpy()  # (B, K, 3)
    rows = len(table)
    row, k = np.nonzero(table[:, :, 1] >= 0)
    label, start, end = table[row, k].T
    base = int(nodes.end.max()) + 1
    out = np.full(len(nodes.keys), labels)
    place = np.searchsorted(nodes.keys, ((row + rows) * base + end) * base + base - 1 - start)
    out[place] = np.where(label == UNSEEN_LABEL, IGNORED, label)
    return torch.from_numpy(out).to(gold.device)[own]


def _outer_first(span: tuple[int, int, int]) -> tuple[int, int]:
    return span[1], -span[2]
