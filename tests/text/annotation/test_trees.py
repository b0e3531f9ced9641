"""Trees survive being written and read, however deep."""

import pytest
from hypothesis import given

from tests.fixtures.tree_texts import TREES
from weft.text.annotation.trees import format, iter_nodes, iter_phrases, parse


def shape(tree):
    """By recursion, as the plainest way to see a tree."""
    return tree.label, tree.word, [shape(child) for child in tree.children]


@given(TREES)
def test_round_trip(tree):
    assert shape(parse(format(tree))) == shape(tree)


@given(TREES)
def test_phrases_are_the_texts_of_all_nodes(tree):
    assert list(iter_phrases(tree)) == [(node.label, node.text) for node in iter_nodes(tree)]


def test_written_form():
    line = "(3 (2 -LRB-) (4 (2 very) (3 good)))"
    tree = parse(line)
    assert format(tree) == line
    assert tree.words == ["(", "very", "good"]
    assert tree == parse(f"  {line}  ")
    assert hash(tree) == hash(parse(line))
    assert tree != parse("(3 good)")
    assert repr(parse("(3  good)")) == "Tree((3 good))"


@pytest.mark.parametrize(
    ("line", "words"),
    [("(2 Singer\\/composer)", "Singer/composer"), ("(2 8\u00a01\\/2)", "8\u00a01/2")],
)
def test_escapes(line, words):
    assert parse(line).text == words


def test_an_unlabelled_bracket_around_the_tree():
    tree = parse("( (S (NP We) (VP left)))")
    assert tree.label == ""
    assert tree.text == "We left"
    assert [label for label, _ in iter_phrases(tree)] == ["S", "NP", "VP"]


def test_depth():
    depth = 5003
    line = "(1 " * depth + "deep" + ")" * depth
    tree = parse(line)
    assert format(tree) == line
    assert tree == parse(line)
    assert sum(1 for _ in iter_phrases(tree)) == depth
