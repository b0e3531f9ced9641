"""Trees as rows of a batch: one step a node, children before parents, the root last.

A leaf's step holds its word, an inner node's the padding id, whose vector is zero; `parents` says
what hangs where. Of two siblings the left one comes first, so the order of the steps is the order
of the children, and of a row's steps without their inner nodes the sentence is left.

B trees   T nodes of the largest one
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from weft.batch.ragged import pad
from weft.errors import UserError
from weft.text.annotation.trees import Tree, iter_nodes
from weft.text.example import Example
from weft.text.formats.conllu_offsets import locate_spaced_words

if TYPE_CHECKING:
    from torch import Tensor

    from weft.batch.padded import Padded

ABSENT = -1  # parent of a root, and label of a node that has none


@dataclass(frozen=True)
class FlatTree:
    """One tree laid out in the order of its steps."""

    words: tuple[str, ...]  # "" at inner nodes
    labels: tuple[str, ...]  # "" at nodes without one
    parents: np.ndarray  # (T,) step of the parent, -1 at the root
    spans: np.ndarray  # (T, 2) first word under a node and the one after its last


def flatten_tree(tree: Tree) -> FlatTree:
    """The nodes of a tree, children before parents and left before right; nothing recurses."""
    # Parents first and right before left, read backwards, is children first and left before right.
    stack: list[tuple[Tree, int]] = [(tree, ABSENT)]
    order: list[tuple[Tree, int]] = []
    while stack:
        node, parent = stack.pop()
        stack.extend((child, len(order)) for child in node.children)
        order.append((node, parent))
    order.reverse()
    last = len(order) - 1
    above = [last - parent if parent >= 0 else ABSENT for _, parent in order]
    parents = np.array(above, dtype=np.int64)
    spans = np.zeros((last + 1, 2), dtype=np.int64)
    spans[:, 0] = last + 1
    word = 0
    for step, (node, _) in enumerate(order):
        if not node.children:
            spans[step] = word, word + 1
            word += 1
        if (up := above[step]) >= 0:
            spans[up, 0] = min(spans[up, 0], spans[step, 0])
            spans[up, 1] = spans[step, 1]
    words = tuple("" if node.children else node.word for node, _ in order)
    return FlatTree(words, tuple(node.label for node, _ in order), parents, spans)


def binarise_example(example: Example) -> Example:
    """The example with its tree made binary, and the words under it with their places."""
    assert example.tree is not None
    tree = binarise(example.tree)
    words = tuple(tree.words)
    return replace(
        example, words=words, places=example.places or locate_spaced_words(words), tree=tree
    )


def batch_trees(
    trees: Iterable[FlatTree], word: Callable[[str], int], label: Callable[[str], int]
) -> "tuple[Padded, Tensor]":
    """Trees as one batch, and the labels (B, T) of their nodes, -1 where there is none."""
    import torch

    rows = list(trees)
    ids = [np.array([word(w) if w else 0 for w in row.words], dtype=np.int64) for row in rows]
    labels = [np.array([label(x) if x else ABSENT for x in row.labels]) for row in rows]
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    batch = from_parents(ids, [row.parents for row in rows])
    return batch, torch.from_numpy(pad(labels, lengths, ABSENT))


def from_parents(ids: Sequence[np.ndarray], parents: Sequence[np.ndarray]) -> "Padded":
    """Rows of ids and the parents of their steps as one batch."""
    import torch

    from weft.batch.padded import Padded

    batch = Padded.from_rows(ids)
    above = torch.from_numpy(pad(list(parents), batch.lengths.numpy(), ABSENT))  # (B, T)
    return Padded(batch.data, batch.lengths, parents=above)


def parents_from_heads(heads: Sequence[int], where: str = "heads") -> np.ndarray:
    """Parents (T,) of the words of a sentence from its heads as CoNLL-U counts them, 0 the root."""
    numbers = np.asarray(heads, dtype=np.int64)
    wrong = np.flatnonzero((numbers < 0) | (numbers > len(numbers)))
    if len(wrong):
        raise UserError(
            f"{where}: the head of word {wrong[0] + 1} is {numbers[wrong[0]]}, but the sentence "
            f"has {len(numbers)} words. Heads are counted from 1; 0 is the root."
        )
    return numbers - 1


def node_heights(parents: np.ndarray, rows: np.ndarray, where: str) -> np.ndarray:
    """The longest way from each node down to a leaf."""
    heights = np.full(len(parents), -1, dtype=np.int64)
    waiting = np.bincount(parents[parents >= 0], minlength=len(parents))
    ready, height = np.flatnonzero(waiting == 0), 0
    while len(ready):
        heights[ready] = height
        up = parents[ready]
        up = up[up >= 0]
        np.subtract.at(waiting, up, 1)
        ready, height = np.unique(up[waiting[up] == 0]), height + 1
    caught = np.flatnonzero(heights < 0)
    if len(caught):
        raise UserError(
            f"{where}: the nodes of tree {rows[caught[0]] + 1} in the batch hang in a circle. "
            "Every node needs a way up to a root."
        )
    return heights


def binarise(tree: Tree) -> Tree:
    """The tree with two children at every inner node, for networks that compose pairs.

    A node with one child gives way to it, under its own label if it has one. Of more children the
    last two are joined first, under a node without a label.
    """
    done: list[Tree] = []  # finished sub-trees; the nearest to the right is on top
    for node in reversed(list(iter_nodes(tree))):
        if not node.children:
            done.append(node)
            continue
        children = [done.pop() for _ in node.children]  # left to right
        while len(children) > 2:
            right = children.pop()
            children[-1] = Tree("", children=(children[-1], right))
        if len(children) == 1:
            only = children[0]
            done.append(Tree(node.label or only.label, only.word, only.children))
        else:
            done.append(Tree(node.label, children=tuple(children)))
    return done[0]
