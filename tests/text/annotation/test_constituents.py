"""Trees to spans and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UserError
from weft.text.annotation.constituents import (
    Span,
    add_root,
    join_unaries,
    pos_tags,
    split_unaries,
    split_unary_label,
    to_tree,
    tree_to_brackets,
    tree_to_spans,
)
from weft.text.annotation.trees import Tree, iter_nodes, parse
from weft.text.formats.brackets import strip_root

LINES = [
    "(NN dog)",
    "(NP (NN dog))",
    "(TOP (S (VP (VB Go))))",
    "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))",
    "(S (NP (PRP I)) (VP (VBP see) (S (VP (VBG running) (NP (NP (NNS dogs)) (PP (IN in) (NP (NN x))"
    "))))) (. .))",
]


def test_chains_are_one_span():
    tree = parse("(S (VP (VB see) (NP (NP (NNS dogs)))))")
    assert tree_to_spans(tree) == [Span("S+VP", 0, 2), Span("NP+NP", 1, 2)]
    one_each = [("S", 0, 2), ("VP", 0, 2), ("NP", 1, 2), ("NP", 1, 2)]
    assert tree_to_brackets(tree) == split_unaries(tree_to_spans(tree)) == one_each
    assert pos_tags(tree) == ["VB", "NNS"]


@pytest.mark.parametrize("line", LINES)
def test_back_without_loss(line):
    tree = parse(line)
    assert to_tree(tree_to_spans(tree), tree.words, pos_tags(tree)) == tree
    assert to_tree(reversed(tree_to_spans(tree)), tree.words, pos_tags(tree)) == tree
    assert to_tree(tree_to_brackets(tree), tree.words, pos_tags(tree)) == tree  # chains written out


labels = st.text("SVPN+%2B5-=", max_size=4)
leaves = st.builds(Tree, labels, st.text("abc(", min_size=1, max_size=2))
forests = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda label, children: Tree(label, "", tuple(children)),
        labels,
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=13,
)


@settings(max_examples=200, deadline=None)
@given(forests)
def test_any_tree_comes_back(tree):
    found = tree_to_spans(tree)
    assert to_tree(found, tree.words, pos_tags(tree)) == tree
    assert len({span[1:] for span in found}) == len(found)  # a chain is one label
    assert len(tree_to_brackets(tree)) == sum(1 for node in iter_nodes(tree) if node.children)
    assert tree_to_brackets(tree) == split_unaries(found)


@given(st.lists(labels, min_size=1, max_size=5))
def test_any_chain_comes_apart(names):
    assert split_unary_label(join_unaries(names)) == names


def test_a_deep_tree():
    tree = Tree("NN", "x")
    for depth in range(3000):
        tree = Tree(f"X{depth}", "", (tree, Tree("NN", "y")))
    assert to_tree(tree_to_spans(tree), tree.words, pos_tags(tree)) == tree


def test_without_a_span_over_all_there_is_a_bracket_without_label():
    found = to_tree([Span("NP", 1, 3)], ["a", "b", "c"], ["X", "Y", "Z"])
    assert found == parse("( (X a) (NP (Y b) (Z c)))")
    assert to_tree([], ["a"], ["X"]) == parse("(X a)")


def test_the_bracket_around_a_tree():
    for line in ("(TOP (S (NN a) (NN b)))", "(TOP (NN a) (NN b))", "(TOP (NN a))"):
        assert add_root(strip_root(parse(line))) == parse(line)


def test_spans_that_make_no_tree():
    words = ["a", "b", "c"]
    with pytest.raises(UserError, match=r"start=0, end=2\) and .*start=1, end=3\) cross"):
        to_tree([Span("X", 0, 2), Span("Y", 1, 3)], words, words)
    with pytest.raises(UserError, match=r"do not fit a sentence of 3 words"):
        to_tree([Span("X", 1, 4)], words, words)
    with pytest.raises(UserError, match=r"do not fit a sentence of 0 words"):
        to_tree([], [], [])
