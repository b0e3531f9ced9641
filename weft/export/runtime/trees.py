"""The order in which a graph computes the nodes of trees: groups of one height, children first.

B trees   T steps of the largest   N = B*T places of nodes   V groups   G nodes of a group
A children of a node
"""

from collections.abc import Sequence

import numpy as np

from weft.batch.indexer import Row
from weft.batch.trees import node_heights
from weft.errors import UserError

GROUP = 64  # nodes of a group: the last ones of a height leave up to so many places empty
Arrays = dict[str, np.ndarray]


def tree_feeds(rows: Sequence[Row], steps: int, arity: int) -> Arrays:
    """Return the nodes (V, G) of each group and their children (V, G, A), by place in the batch.

    A child that is none is the place N; N + 1 is no node. Without `arity` a node may have any
    number of children.
    """
    none = len(rows) * steps
    parents = np.concatenate([np.zeros(0, np.int64), *map(_parents, rows, range(0, none, steps))])
    places = np.concatenate(
        [np.zeros(0, np.int64)]
        + [np.arange(len(row.ids)) + i * steps for i, row in enumerate(rows)]
    )
    where = np.full(none + 1, -1)
    where[places] = np.arange(len(places))
    owner = np.where(parents < 0, -1, where[parents])
    heights = node_heights(owner, np.repeat(np.arange(len(rows)), [len(r.ids) for r in rows]),
                           "This model")  # fmt: skip
    below = np.flatnonzero(owner >= 0)
    below = below[np.argsort(owner[below], kind="stable")]  # siblings stay in the order of steps
    counts = np.bincount(owner[below], minlength=len(places))
    most = int(counts.max(initial=0))
    if arity and most > arity:
        raise UserError(
            f"A node of a tree has {most} children, but this model reads at most {arity}. Make the "
            "trees binary."
        )
    table = np.full((len(places), arity or max(most, 1)), none)
    first = np.cumsum(counts) - counts
    table[owner[below], np.arange(len(below)) - first[owner[below]]] = places[below]
    inner = [np.flatnonzero(heights == h) for h in range(1, int(heights.max(initial=0)) + 1)]
    groups = [same[i : i + GROUP] for same in inner for i in range(0, len(same), GROUP)]
    size = max(map(len, groups), default=1)
    nodes = np.full((max(len(groups), 1), size), none + 1)
    children = np.full((*nodes.shape, table.shape[1]), none)
    for number, group in enumerate(groups):
        nodes[number, : len(group)] = places[group]
        children[number, : len(group)] = table[group]
    return {"tree_nodes": nodes, "tree_children": children}


def _parents(row: Row, start: int) -> np.ndarray:
    """Return the places of the parents of a row that begins at a place; -1 of its root."""
    assert row.parents is not None
    return np.where(row.parents < 0, -1, row.parents + start)
