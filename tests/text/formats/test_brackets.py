"""Treebank files: trees over many lines, without traces, and from columns of parse bits."""

import pytest
from hypothesis import given

from tests.fixtures.conll_texts import ROLES
from tests.fixtures.tree_texts import TREES
from tests.fixtures.treebank_texts import TREEBANK
from weft.doctor.diagnose import examine
from weft.doctor.formats.files import open_files
from weft.errors import UserError
from weft.text.annotation import trees
from weft.text.annotation.trees import format, parse
from weft.text.columns import Columns
from weft.text.formats import brackets
from weft.text.formats.brackets import (
    from_parse_bits,
    read_brackets,
    read_parse_bits,
    strip,
    strip_root,
    to_parse_bits,
)
from weft.text.line_source import SkipLog
from weft.text.read import read


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
    assert format(strip_root(strip(first))) == f"(S (NP (PRP We)) {bare} {rest})"
    assert format(strip(first, traces=False, functions=False)) == format(first)
    assert "NP-SBJ-1" in format(strip(first, functions=False))
    assert "*-1" not in format(strip(first, functions=False))
    assert strip(parse("(NP (-NONE- *T*-2))")) is None
    assert [
        brackets.strip_function_tags(label) for label in ("NP=2", "-NONE-", "PRP$", "WHNP-1", "-")
    ] == [*("NP", "-NONE-", "PRP$", "WHNP", "-")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("(S (NP a)\n   (VP b\n", r"a\.mrg:2:4: this '\(' is never closed"),
        ("(S (NP a)\n  (VP b)\n(S (X c))\n", r"a\.mrg:1:1: .*never closed; the next .* line 3"),
        ("(S (NP a)))\n", r"a\.mrg:1:11: this '\)' closes nothing"),
        ("(S (NP a))\nword\n", r"a\.mrg:2:1: a tree starts with '\(', found 'word'"),
        ("(S (NP a) b)\n", r"a\.mrg:1:11: the word 'b' is next to sub-trees"),
        ("( (S a) b)\n", r"a\.mrg:1:9: the word 'b' is next to sub-trees"),
        ("(S\n ())\n", r"a\.mrg:2:3: an empty bracket"),
    ],
)
def test_unbalanced(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        list(read_brackets(save(tmp_path, content)))


@given(TREES)
def test_bits_there_and_back(tree):
    tree = trees.Tree("TOP", "", (tree,))
    leaves = [node for node in trees.iter_nodes(tree) if not node.children]
    assert from_parse_bits(tree.words, [leaf.label for leaf in leaves], to_parse_bits(tree)) == tree


def test_bits_of_a_file(tmp_path):
    path = save(tmp_path, ROLES, "a.conll")
    first, second = read_parse_bits(path)
    assert format(first.tree) == "(TOP (S (NP (NNP Bush)) (VP (VBD saw) (NP (PRP it)))))"
    assert (first.id, second.id, second.where) == ("a-1", "a-2", f"{path}:7")
    assert format(next(read_parse_bits(path, tags="upos")).tree).startswith(
        "(TOP (S (NP (PROPN Bush))"
    )


def test_bits_need_no_names(tmp_path):
    path = save(tmp_path, "a DT (S(NP*\nb NN *)\nc VB (VP*))\n")
    assert format(next(read_parse_bits(path)).tree) == "(S (NP (DT a) (NN b)) (VP (VB c)))"
    with pytest.raises(UserError, match=r"no column of parse bits such as \(S\(NP\* among 2"):
        next(read_parse_bits(save(tmp_path, "a DT\nb NN\n")))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(NP*))))", "(NP*))", r"a\.conll:2: sentence 'a-1': this '\(' is never closed"),
        ("(NP*))))", "(NP*))))))", r"a\.conll:4: sentence 'a-1': '\(NP\*\)+' after the end"),
        ("(TOP(S(NP*)", "*", r"a\.conll:2: sentence 'a-1': the word 'Bush' is outside"),
        ("(VP*\t", "(VP\t", r"a\.conll:3: sentence 'a-1': '\(VP' is not a parse bit"),
    ],
)
def test_bad_bits(tmp_path, old, new, message):
    with pytest.raises(UserError, match=message):
        list(read_parse_bits(save(tmp_path, ROLES.replace(old, new), "a.conll"), bits=5))


SOUND = "( (S\n    (NP (D the) (N dog))\n    (VP (V barks))) )\n"
DAMAGE = {
    "one bracket too few": (SOUND.replace(")) )", "))"), "the '(' in column 1 is never closed"),
    "one bracket too many": (
        SOUND.replace(")) )", ")) ))"),
        "line {third}, column 22: this ')' closes",
    ),
    "a word too many": (
        SOUND.replace("the", "the a"),
        "line {second}, column 16: the leaf already",
    ),
    "a line that is no text": (SOUND.replace("the", "th\udce9"), "byte 0xe9 at offset 13"),
}


@pytest.mark.parametrize("gap", ["", "\n"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["a.mrg", "a.txt"])
def test_a_damaged_tree_is_skipped_whole(tmp_path, damage, gap, name):
    broken, said = DAMAGE[damage]
    path = tmp_path / name
    whole = f"{SOUND}{gap}{broken}{gap}{SOUND}"
    path.write_bytes(whole.encode("utf-8", "surrogateescape"))
    tally = SkipLog()
    found = list(read(path, on_bad_row="skip", skipped=tally))
    assert [one.text for one in found] == ["the dog barks"] * 2
    (counted,) = tally.counts.values()
    ((where, told),) = tally.messages.items()
    line = 4 + len(gap)
    assert counted == 1
    assert where == f"{path}:{line + (damage == 'a line that is no text')}"
    assert told.startswith(said.format(second=line + 1, third=line + 2))
    with pytest.raises(UserError):
        list(read(path))
    result = examine_files(path)
    assert result["errors"] == 1, result


def examine_files(path):
    """What `weft check` makes of a file."""
    files = open_files([str(path)], Columns())
    found = examine(files.sources, files.paths, tallies=files.tallies, extra=files.findings)
    return {"errors": sum(one.level == "error" for one in found.findings), "rows": found.rows}


def test_trees_without_indent_are_not_taken_apart(tmp_path):
    flat = SOUND.replace("\n    ", "\n")
    path = save(tmp_path, flat + flat.replace("the", "the a") + flat)
    with pytest.raises(
        UserError, match=r"a\.mrg:5:12: .* nothing marks where the next tree begins"
    ):
        list(read(path, on_bad_row="skip"))
    path = save(tmp_path, "\n".join((flat, flat.replace("the", "the a"), flat)))
    assert [one.text for one in read(path, on_bad_row="skip")] == ["the dog barks"] * 2
    path = save(tmp_path, flat * 3)
    assert [one.text for one in read(path, on_bad_row="skip")] == ["the dog barks"] * 3


def test_several_damaged_trees_are_counted_in_the_plural(tmp_path):
    broken = SOUND.replace("the", "the a")
    path = save(tmp_path, SOUND + broken * 2)
    tally = SkipLog()
    assert len(list(read(path, on_bad_row="skip", skipped=tally))) == 1
    assert tally.lines() == [f"2 broken trees: {path}:4, {path}:7"]
