"""Treebank files: trees over many lines, without traces, and from columns of parse bits."""

import pytest
from hypothesis import given

from tests.text.test_conll import ROLES
from tests.text.test_trees import TREES
from weft.errors import UserError
from weft.text import brackets, trees
from weft.text.brackets import bits, from_bits, read_bits, read_brackets, strip, unwrapped
from weft.text.trees import format, parse

TREEBANK = """\

( (S
    (NP-SBJ-1 (PRP We))
    (VP (VBD left)
      (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB eat)))))
    (-LRB- -LRB-) (NP (QP (CD two))) (-RRB- -RRB-)
    (. .)))
( (FRAG=2 (NP (NNP Ok)) (. .)) )  (X (UH hm))
"""


def save(folder, content: str, name: str = "a.mrg"):
    path = folder / name
    path.write_text(content, "utf-8")
    return path


def test_trees_over_many_lines(tmp_path):
    found = list(read_brackets(save(tmp_path, TREEBANK)))
    assert [one.line for one in found] == [2, 8, 8]
    assert found[0].tree.label == ""
    assert found[0].tree.words == ["We", "left", "*-1", "to", "eat", "(", "two", ")", "."]
    assert format(found[1].tree) == "( (FRAG=2 (NP (NNP Ok)) (. .)))"


def test_strip(tmp_path):
    first = next(read_brackets(save(tmp_path, TREEBANK))).tree
    bare = "(VP (VBD left) (S (VP (TO to) (VP (VB eat)))))"
    rest = "(-LRB- -LRB-) (NP (QP (CD two))) (-RRB- -RRB-) (. .)"
    assert format(unwrapped(strip(first))) == f"(S (NP (PRP We)) {bare} {rest})"
    assert format(strip(first, traces=False, functions=False)) == format(first)
    assert "NP-SBJ-1" in format(strip(first, functions=False))
    assert "*-1" not in format(strip(first, functions=False))
    assert strip(parse("(NP (-NONE- *T*-2))")) is None
    assert [brackets.bare(label) for label in ("NP=2", "-NONE-", "PRP$", "WHNP-1", "-")] == [
        *("NP", "-NONE-", "PRP$", "WHNP", "-")
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("(S (NP a)\n   (VP b\n", r"a\.mrg:2:4: this '\(' is never closed"),
        ("(S (NP a)\n  (VP b)\n(S (X c))\n", r"a\.mrg:1:1: .*never closed; the next .* line 3"),
        ("(S (NP a)))\n", r"a\.mrg:1:11: this '\)' closes nothing"),
        ("(S (NP a))\nword\n", r"a\.mrg:2:1: a tree starts with '\(', found 'word'"),
        ("(S (NP a) b)\n", r"a\.mrg:1:11: the word 'b' stands beside sub-trees"),
        ("( (S a) b)\n", r"a\.mrg:1:9: the word 'b' stands beside sub-trees"),
        ("(S\n ())\n", r"a\.mrg:2:3: an empty bracket"),
    ],
)
def test_unbalanced(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        list(read_brackets(save(tmp_path, content)))


@given(TREES)
def test_bits_there_and_back(tree):
    tree = trees.Tree("TOP", "", (tree,))
    leaves = [node for node in trees.nodes(tree) if not node.children]
    assert from_bits(tree.words, [leaf.label for leaf in leaves], bits(tree)) == tree


def test_bits_of_a_file(tmp_path):
    path = save(tmp_path, ROLES, "a.conll")
    first, second = read_bits(path)
    assert format(first.tree) == "(TOP (S (NP (NNP Bush)) (VP (VBD saw) (NP (PRP it)))))"
    assert (first.id, second.id, second.where) == ("a-1", "a-2", f"{path}:7")
    assert format(next(read_bits(path, tags="upos")).tree).startswith("(TOP (S (NP (PROPN Bush))")


def test_bits_need_no_names(tmp_path):
    path = save(tmp_path, "a DT (S(NP*\nb NN *)\nc VB (VP*))\n")
    assert format(next(read_bits(path)).tree) == "(S (NP (DT a) (NN b)) (VP (VB c)))"
    with pytest.raises(UserError, match=r"no column of parse bits such as \(S\(NP\* among 2"):
        next(read_bits(save(tmp_path, "a DT\nb NN\n")))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(NP*))))", "(NP*))", r"a\.conll:2: sentence 'a-1': this '\(' is never closed"),
        ("(NP*))))", "(NP*))))))", r"a\.conll:4: sentence 'a-1': '\(NP\*\)+' after the end"),
        ("(TOP(S(NP*)", "*", r"a\.conll:2: sentence 'a-1': the word 'Bush' stands outside"),
        ("(VP*\t", "(VP\t", r"a\.conll:3: sentence 'a-1': '\(VP' is not a parse bit"),
    ],
)
def test_bad_bits(tmp_path, old, new, message):
    with pytest.raises(UserError, match=message):
        list(read_bits(save(tmp_path, ROLES.replace(old, new), "a.conll"), bits=5))
