"""Cleaned copies of structured files: lines are mended or go, and no other byte changes."""

import gzip
import json
from pathlib import Path

import pytest

from tests.fixtures.structured_files import GOOD, sentence
from weft.doctor.diagnose import diagnose
from weft.doctor.fix import FixResult, fix
from weft.doctor.formats.files import open_files
from weft.doctor.survey import survey_sources
from weft.errors import UserError
from weft.text.columns import Columns

LONG = "the dog sees the big bee"
HEADS = [2, 3, 0, 6, 6, 3]
TAGS = "DET NOUN VERB DET ADJ NOUN"


def fixed(out: Path, *paths: Path) -> tuple[FixResult, list[dict]]:
    files = open_files([str(path) for path in paths], Columns())
    seen = survey_sources(files.sources)
    _, copies = diagnose(seen, files.paths, 512, True, files.tallies, files.findings)
    done = fix(files, seen, copies, str(out))
    return done, [json.loads(line) for line in done.changes.read_text("utf-8").splitlines()]


def test_sound_treebank_is_written_byte_for_byte(tmp_path):
    marked = "\ufeff# newdoc id = a\r\n" + GOOD.replace("\n", "\r\n")
    bad = "\n\n" + sentence("x", [3, 1, 2], "p q r")
    content = (marked + bad).encode() + b"# sent_id = r\n1\tonly\ttwo\n\n# the end\n"
    (tmp_path / "a.conllu").write_bytes(content)
    done, changes = fixed(tmp_path / "out", tmp_path / "a.conllu")
    assert (tmp_path / "out" / "a.conllu").read_bytes() == content
    assert [(row["line"], row["what"]) for row in changes] == [
        (14, "left: no root"), (14, "left: cycle"), (19, "left: wrong number of columns")
    ]  # fmt: skip
    assert done.counts["left"] == 3


def test_repeated_and_leaking_sentences_go(tmp_path):
    first = sentence("one", HEADS, LONG, TAGS)
    again = "# newdoc id = b\n" + sentence("two", HEADS, LONG, TAGS)
    other = sentence("three", HEADS, "a cow hears no small cricket", TAGS)
    disputed = sentence("four", HEADS, LONG, TAGS.replace("ADJ", "NOUN"))
    (tmp_path / "train.conllu").write_text(GOOD + first + again + other + disputed, "utf-8")
    (tmp_path / "test.conllu").write_text(GOOD + other.replace("three", "five"), "utf-8")
    _, changes = fixed(tmp_path / "out", tmp_path / "train.conllu", tmp_path / "test.conllu")
    copy = (tmp_path / "out" / "train.conllu").read_text("utf-8")
    assert copy == GOOD + first + "# newdoc id = b\n" + disputed
    assert (tmp_path / "out" / "test.conllu").read_text("utf-8") == GOOD + other.replace(
        "three", "five"
    )
    told = {(row["sentence"], row["what"]) for row in changes}
    assert ("two", "dropped: same text and label as an earlier row") in told
    assert ("three", "dropped: same text is in test") in told
    assert ("four", "left: the same sentence is annotated differently elsewhere") in told
    assert ("one", "left: the same sentence is annotated differently elsewhere") in told


def test_tags_in_another_case_are_corrected(tmp_path):
    sound = "".join(sentence(f"s{i}", [2, 0], f"a{i} b{i}", "NOUN VERB") for i in range(5))
    (tmp_path / "a.conllu").write_text(sound + sentence("x", [2, 0], tags="Noun VERB"), "utf-8")
    _, changes = fixed(tmp_path / "out", tmp_path / "a.conllu")
    copy = (tmp_path / "out" / "a.conllu").read_text("utf-8")
    assert copy == sound + sentence("x", [2, 0], tags="NOUN VERB")
    assert next(row["what"] for row in changes if row["line"] == 22) == "tag corrected"


def test_columns_are_repaired_and_keep_their_spaces(tmp_path):
    sound = "Ada  x B-PER \nLee\tx I-PER\n\n"
    bad = "# sent_id = 7\n saw x   I-LOC\nit x I-LOC\nnow  x  B-per\n\n"
    (tmp_path / "a.conll").write_text("-DOCSTART- x O\n\n" + sound * 3 + bad, "utf-8")
    _, changes = fixed(tmp_path / "out", tmp_path / "a.conll")
    copy = (tmp_path / "out" / "a.conll").read_text("utf-8")
    right = bad.replace(" saw x   I-LOC", " saw x   B-LOC").replace("B-per", "B-PER")
    assert copy == "-DOCSTART- x O\n\n" + sound * 3 + right
    assert [(row["sentence"], row["what"], row["after"]) for row in changes] == [
        ("7", "tag repaired", " saw x   B-LOC"), ("7", "tag repaired", "now  x  B-PER")
    ]  # fmt: skip


def test_files_come_out_in_the_scheme_of_the_first(tmp_path):
    with gzip.open(tmp_path / "a.conll.gz", "wt", encoding="utf-8") as file:
        file.write("Ada\tB-PER\nLee\tL-PER\nmet\tO\nBo\tU-PER\n\n" * 2)
    (tmp_path / "b.conll").write_text("Cy\tB-PER\nmet\tO\nDi\tB-PER\nFox\tI-PER\n", "utf-8")
    fixed(tmp_path / "out", tmp_path / "a.conll.gz", tmp_path / "b.conll")
    assert (tmp_path / "out" / "b.conll").read_text("utf-8") == (
        "Cy\tU-PER\nmet\tO\nDi\tB-PER\nFox\tL-PER\n"
    )
    with gzip.open(tmp_path / "out" / "a.conll.gz", "rt", encoding="utf-8") as file:
        assert file.read() == "Ada\tB-PER\nLee\tL-PER\nmet\tO\nBo\tU-PER\n\n" * 2


def test_fixed_first_line_keeps_its_byte_order_mark(tmp_path):
    (tmp_path / "a.conll").write_text("\ufeffAda\tI-PER\nmet\tO\nBo\tB-PER\n", "utf-8")
    fixed(tmp_path / "out", tmp_path / "a.conll")
    assert (tmp_path / "out" / "a.conll").read_text("utf-8").startswith("\ufeffAda\tB-PER\n")


def test_fix_leaves_invalid_tags_unchanged(tmp_path):
    text = "Ada\tB-PER\nmet\tO\nBo\tB-PER\n\n" * 5 + "Cy\tPER\nmet\tO\nDi\tI-PER\n\n"
    (tmp_path / "a.conll").write_text(text, "utf-8")
    _, changes = fixed(tmp_path / "out", tmp_path / "a.conll")
    assert (tmp_path / "out" / "a.conll").read_text("utf-8") == text
    assert [row["what"] for row in changes] == ["left: not a tag"]


def test_json_spans_are_fixed_in_place(tmp_path):
    lines = [
        '{"text": "Ada met Bo", "n": 1.50, "spans": [[0, 3, "PER"], [8, 10, "PER"]]}',
        '{"n": 2, "ents": [{"start": 3, "end": 7, "label": "per", "by": "x"}, '
        '{"start": 3, "end": 7, "label": "per"}], "text": "She met Cy"}',
        '{"text": "é Bo é", "spans": [[1, 2, "PER"], [2, 5, "PER"]]}',
        "not JSON",
    ]
    (tmp_path / "a.jsonl").write_text("\r\n".join(lines) + "\r\n", "utf-8", newline="")
    _, changes = fixed(tmp_path / "out", tmp_path / "a.jsonl")
    copy = (tmp_path / "out" / "a.jsonl").read_bytes().decode().split("\r\n")
    assert copy[0] == lines[0]
    assert json.loads(copy[1]) == {
        "n": 2, "ents": [{"start": 4, "end": 7, "label": "PER", "by": "x"}], "text": "She met Cy"
    }  # fmt: skip
    assert copy[2] == '{"text": "é Bo é", "spans": [[2, 4, "PER"]]}'
    assert copy[3:] == ["not JSON", ""]
    assert [row["what"] for row in changes] == ["spans fixed"] * 2 + ["left: invalid JSON"]


def test_brat_is_fixed_except_what_relations_refer_to(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("Ada met Bo .\n", "utf-8")
    marks = [
        "T1\tPER 0 4\tAda ", "T2\tPER 8 10\tBo", "R1\tmet Arg1:T1 Arg2:T2", "T3\tPER 8 10\tBo",
        "T4\tPER 8 11\tBo ", "A1\tBorn T4",
    ]  # fmt: skip
    (folder / "a.ann").write_text("\n".join(marks) + "\n", "utf-8")
    (folder / "b.txt").write_text("Cy slept .\n", "utf-8")
    (folder / "b.ann").write_text("T1\tPER 0 2\tCy\n", "utf-8")
    _, changes = fixed(tmp_path / "out", folder)
    copy = (tmp_path / "out" / "in" / "a.ann").read_text("utf-8").splitlines()
    assert copy == ["T1\tPER 0 3\tAda", *marks[1:3], "T4\tPER 8 10\tBo", marks[5]]
    for name in ("a.txt", "b.txt", "b.ann"):
        assert (tmp_path / "out" / "in" / name).read_bytes() == (folder / name).read_bytes()
    done = [(row["line"], row["what"]) for row in changes if not row["what"].startswith("left")]
    assert done == [(1, "span fixed"), (4, "span removed"), (5, "span fixed")]


def test_repeated_trees_go_and_broken_ones_stay(tmp_path):
    tree = "(S (NP (D the) (N dog)) (VP (V sees) (NP (D the) (N bee))))\n"
    over_lines = tree.replace(" (VP", "\n  (VP")
    text = tree + "(S (X a)\n" + over_lines + "(S (X b))\n"
    (tmp_path / "a.ptb").write_text(text, "utf-8")
    _, changes = fixed(tmp_path / "out", tmp_path / "a.ptb")
    assert (tmp_path / "out" / "a.ptb").read_text("utf-8") == tree + "(S (X a)\n(S (X b))\n"
    assert [(row["line"], row["what"]) for row in changes] == [
        (3, "dropped: same text and label as an earlier row"), (2, "left: broken tree")
    ]  # fmt: skip


def test_a_copy_keeps_its_format(tmp_path):
    (tmp_path / "a.conllu").write_text(GOOD, "utf-8")
    with pytest.raises(
        UserError, match=r"b\.jsonl: jsonl cannot hold the annotation of .*a\.conllu"
    ):
        fixed(tmp_path / "b.jsonl", tmp_path / "a.conllu")
    fixed(tmp_path / "b.conllu", tmp_path / "a.conllu")
    assert (tmp_path / "b.conllu").read_text("utf-8") == GOOD
