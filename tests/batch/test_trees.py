"""Trees as rows: the order of the steps, and what comes back from them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.batch.trees import batch_trees, binarise, flatten_tree, from_parents, parents_from_heads
from weft.errors import UserError
from weft.text.annotation.trees import Tree, iter_nodes, parse

LINE = "(3 (2 (2 The) (2 film)) (4 (3 is) (4 (2 so) (4 good))))"
leaves = st.builds(Tree, st.sampled_from(["0", "1", ""]), st.sampled_from(["a", "b", "c"]))
trees = st.recursive(
    leaves,
    lambda below: st.builds(
        lambda label, own: Tree(label, children=tuple(own)),
        st.sampled_from(["2", "3", ""]),
        st.lists(below, min_size=1, max_size=4),
    ),
    max_leaves=13,
)


def test_children_come_before_parents_and_left_before_right():
    tree = flatten_tree(parse(LINE))
    assert tree.words == ("The", "film", "", "is", "so", "good", "", "", "")
    assert tree.labels == tuple("222324443")
    assert tree.parents.tolist() == [2, 2, 8, 7, 6, 6, 7, 8, -1]
    assert tree.spans.tolist()[2:4] == [[0, 2], [2, 3]]
    assert tree.spans.tolist()[6:] == [[3, 5], [2, 5], [0, 5]]


def rebuilt(flat):
    """The tree again, from steps and parents."""
    below = [[] for _ in flat.words]
    for step, parent in enumerate(flat.parents):
        own = Tree(flat.labels[step], flat.words[step], tuple(below[step]))
        if parent >= 0:
            below[parent].append(own)
    return own


@given(trees)
def test_nothing_is_lost(tree):
    flat = flatten_tree(tree)
    assert rebuilt(flat) == tree
    assert (flat.parents[:-1] > np.arange(len(flat.parents) - 1)).all()
    words = tree.words
    for step, (start, end) in enumerate(flat.spans):
        under = [step]
        while not flat.words[under[0]]:  # down to the first word
            under[0] = int(np.flatnonzero(flat.parents == under[0])[0])
        assert words[start] == flat.words[under[0]]
        assert end > start


@given(trees)
def test_binary_trees_keep_words_and_labels(tree):
    two = binarise(tree)
    assert two.words == tree.words
    assert all(len(node.children) in (0, 2) for node in iter_nodes(two))
    assert all(not node.word for node in iter_nodes(two) if node.children)
    if all(len(node.children) in (0, 2) for node in iter_nodes(tree)):
        assert two == tree


def test_more_than_two_are_joined_from_the_right():
    last = Tree("", children=(Tree("C", "c"), Tree("D", "d")))
    assert binarise(parse("(S (A a) (B b) (C c) (D d))")) == Tree(
        "S", children=(Tree("A", "a"), Tree("", children=(Tree("B", "b"), last)))
    )
    assert binarise(parse("(S (NP (N dogs)))")) == Tree("S", "dogs")


def test_a_forest_is_a_batch():
    two = [
        flatten_tree(parse(LINE)),
        flatten_tree(Tree("", children=(Tree("1", "good"), Tree("", "The")))),
    ]
    ids = {"The": 5, "film": 7, "is": 11, "so": 13, "good": 17}
    batch, labels = batch_trees(two, ids.__getitem__, int)
    assert batch.data.tolist() == [[5, 7, 0, 11, 13, 17, 0, 0, 0], [17, 5, 0, 0, 0, 0, 0, 0, 0]]
    assert batch.parents.tolist()[1] == [2, 2, -1] + [-1] * 6
    assert labels.tolist()[1] == [1, -1, -1] + [-1] * 6
    assert labels.tolist()[0] == [2, 2, 2, 3, 2, 4, 4, 4, 3]
    assert batch.lengths.tolist() == [9, 3]
    assert batch.parents.dtype == labels.dtype == torch.int64


def test_an_empty_forest():
    batch, labels = batch_trees([], int, int)
    assert batch.data.shape == labels.shape == (0, 0)


def test_heads_of_a_sentence():
    heads = [2, 0, 4, 2]
    assert parents_from_heads(heads).tolist() == [1, -1, 3, 1]
    batch = from_parents(
        [np.array([3, 5, 7, 11]), np.array([13])],
        [parents_from_heads(heads), parents_from_heads([0])],
    )
    assert batch.parents.tolist() == [[1, -1, 3, 1], [-1, -1, -1, -1]]
    with pytest.raises(UserError, match=r"a.conllu:3: the head of word 2 is 5, but the sentence"):
        parents_from_heads([0, 5], "a.conllu:3")
    with pytest.raises(UserError, match="Heads are counted from 1; 0 is the root"):
        parents_from_heads([0, -1])


def test_depth_is_no_limit():
    tree = Tree("0", "w")
    for _ in range(5000):
        tree = Tree("1", children=(tree, Tree("0", "w")))
    flat = flatten_tree(tree)
    assert len(flat.words) == 10_001
    assert flat.spans[-1].tolist() == [0, 5001]
    assert len(flatten_tree(binarise(tree)).words) == 10_001
