"""The order in which the nodes of a batch of trees can be computed: all of one height at a time.

The plan is made on the host, with no Python loop over nodes. Nodes are numbered by height, so that
a level is one slice; its children are found by one gather. Every node hangs under one parent only,
so the way back is a gather too, and nothing is ever added at an index.

N nodes   I inner nodes   A children of a node   M places for children: I*A, or one for each child
B trees   T steps of the batch: nodes of its largest tree
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.batch.trees import node_heights
from weft.errors import UserError


@dataclass(frozen=True)
class Levels:
    """Nodes by rank, the lowest first; rank N, after the last, stands for a child that is none."""

    starts: list[int]  # rank at which each height begins, then N
    edges: list[int]  # place at which the children of each height begin, then M
    order: Tensor  # (N,) where each node lies in the flat batch
    steps: Tensor  # (B*T,) rank of the node at each step of the flat batch; N in the padding
    children: Tensor  # (M,) rank of the child at each place
    above: Tensor  # (N,) place that a node takes under its parent; M at roots
    owners: Tensor  # (M,) the parent at each place, counted from the start of its level
    offsets: Tensor  # (I,) first place of each inner node, counted from the start of its level

    @property
    def leaves(self) -> int:
        return self.starts[1]

    @property
    def size(self) -> int:
        return self.starts[-1]

    def inner(self) -> list[tuple[slice, slice, slice]]:
        """Return, for each height from 1, its ranks, inner-node rows and child slots."""
        leaves = self.leaves
        return [
            (slice(a, b), slice(a - leaves, b - leaves), slice(i, j))
            for a, b, i, j in zip(
                self.starts[1:-1], self.starts[2:], self.edges[1:-1], self.edges[2:], strict=True
            )
        ]


def plan_levels(x: Padded, where: str, arity: int = 0) -> Levels:
    """The levels of a batch; with `arity`, each inner node has so many places, filled in order."""
    rows, parents, order = _real_nodes(x, where)
    heights = node_heights(parents, rows, where)
    by_height = np.argsort(heights, kind="stable")
    rank = np.empty_like(by_height)
    rank[by_height] = np.arange(len(rank))
    sizes = np.bincount(heights, minlength=1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    leaves, inner = int(sizes[0]), len(rank) - int(sizes[0])

    child = np.flatnonzero(parents >= 0)
    owner = rank[parents[child]] - leaves
    sort = np.argsort(owner, kind="stable")  # siblings stay in the order of the steps
    child, owner = child[sort], owner[sort]
    counts = np.bincount(owner, minlength=inner)
    if arity and counts.max(initial=0) > arity:
        node = by_height[leaves + int(counts.argmax())]
        raise UserError(
            f"{where}: a node of tree {rows[node] + 1} in the batch has {counts.max()} children, "
            f"but it reads at most {arity}. Make the trees binary, or read them with encoder "
            f"'tree-lstm' and children = \"sum\"."
        )
    first = np.cumsum(counts) - counts
    if arity:
        slot, first = (
            owner * arity + np.arange(len(child)) - first[owner],
            arity * np.arange(inner),
        )
        owners, total = np.repeat(np.arange(inner), arity), arity * inner
    else:
        slot, owners, total = np.arange(len(child)), owner, len(child)
    children = np.full(total, len(rank))
    children[slot] = rank[child]
    above = np.full(len(rank), total)
    above[rank[child]] = slot
    ends = np.append(first, total)
    edges = np.concatenate([[0], ends[starts[1:] - leaves]])
    level = np.repeat(np.arange(1, len(sizes)), sizes[1:])  # of each inner node
    offsets = first - edges[level]
    owners = owners - (starts[level[owners]] - leaves)
    steps = np.full(x.lengths.shape[0] * x.data.shape[1], len(rank))
    steps[order] = rank
    arrays = (order[by_height], steps, children, above, owners, offsets)
    # One copy to the device, not six.
    moved = torch.from_numpy(np.concatenate(arrays)).to(x.data.device, non_blocking=True)
    return Levels(starts.tolist(), edges.tolist(), *moved.split([len(a) for a in arrays]))


def _real_nodes(x: Padded, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row, the parent (or -1) and the flat position of every real node."""
    if x.parents is None:
        raise UserError(
            f"{where} reads trees, but these texts come without any. Give bracketed trees or "
            "sentences with heads, or choose an encoder of sequences such as 'rnn'."
        )
    parents = x.parents.cpu().numpy().astype(np.int64)  # (B, T)
    lengths = x.lengths.numpy()
    real = np.arange(parents.shape[1]) < lengths[:, None]
    order = np.flatnonzero(real)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    parent = parents[real]
    outside = np.flatnonzero((parent < -1) | (parent >= lengths[rows]))
    if len(outside):
        row = rows[outside[0]]
        raise UserError(
            f"{where}: a node of tree {row + 1} in the batch hangs under node "
            f"{parent[outside[0]]}, but the tree has {lengths[row]} nodes."
        )
    first = np.cumsum(lengths) - lengths
    return rows, np.where(parent < 0, -1, first[rows] + parent), order
