"""Labels as paths in a tree."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.text.label_tree import (
    NO_NODE,
    LabelTree,
    check_path,
    describe_tree,
    looks_hierarchical,
    prefixes,
)

ENTRIES = ("a > x", "a > y", "b", "b > z > w", "c")


def test_nodes_are_the_prefixes_of_the_labels_parents_first():
    tree = LabelTree(ENTRIES)
    assert tree.nodes == ("a", "a > x", "a > y", "b", "b > z", "b > z > w", "c")
    assert tree.depth == 3
    assert tree.inner_labels == ("b",)
    assert prefixes("a/b/c", "/") == ("a", "a/b", "a/b/c")
    assert tree.path_ids.tolist() == [
        [0, 1, NO_NODE],
        [0, 2, NO_NODE],
        [3, NO_NODE, NO_NODE],
        [3, 4, 5],
        [6, NO_NODE, NO_NODE],
    ]


def test_the_probability_of_a_node_is_the_sum_over_its_subtree():
    tree = LabelTree(ENTRIES)
    probs = np.random.default_rng(0).dirichlet(np.ones(len(ENTRIES)), size=7)
    found = tree.node_probs(probs)
    for k, node in enumerate(tree.nodes):
        below = [i for i, e in enumerate(ENTRIES) if e == node or e.startswith(node + " > ")]
        np.testing.assert_allclose(found[:, k], probs[:, below].sum(1), atol=1e-12)


def test_a_level_without_a_name_is_an_error_that_names_the_row():
    with pytest.raises(UserError, match=r"train.tsv:3: a level of the label 'a > ' has no name"):
        check_path("a > ", " > ", "train.tsv:3")


def test_most_labels_must_be_paths():
    assert looks_hierarchical(["a > b", "a > c", "a"])
    assert not looks_hierarchical(["a", "b", "a > c"])
    assert not looks_hierarchical([])
    assert looks_hierarchical(["a/b"], "/")


def test_the_description_counts_nodes_by_level():
    line = describe_tree(LabelTree(ENTRIES))
    assert line.startswith("5 labels in a tree of 3 levels (3, 3, 1 nodes), split at ' > '")
    assert "'b' answered as inner nodes, too" in line
