"""Texts with marked spans: what is wrong with them, where, and what is right."""

import json

import pytest

from weft.doctor import Finding
from weft.doctor.checks.annotation_faults import group_faults
from weft.doctor.formats.files import open_files
from weft.doctor.formats.spans import read_examples, trim_span
from weft.doctor.formats.structured import find_faults, format_of
from weft.text.annotation.schemes import Span
from weft.text.columns import Columns
from weft.text.line_source import SkipLog

TEXT = "Ada Lovelace met Charles Babbage in London ."
GOOD = {"id": "g", "text": TEXT, "spans": [[0, 12, "PER"], [17, 32, "PER"], [36, 42, "LOC"]]}


def jsonl(folder, *rows) -> str:
    path = folder / "spans.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def brat(folder, text: str, *lines: str) -> str:
    (folder / "a.txt").write_text(text, "utf-8")
    (folder / "a.ann").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return str(folder / "a.ann")


def told(path: str) -> dict[str, Finding]:
    kind = format_of(path, None, Columns())
    return {f.kind: f for f in group_faults(find_faults(path, kind, Columns()), "data")}


def test_sound_spans_in_both_spellings(tmp_path):
    spelt = [{"start": s, "end": e, "label": k} for s, e, k in GOOD["spans"]]
    path = jsonl(tmp_path, GOOD, {"text": TEXT, "spans": spelt}, {"text": "none", "spans": []})
    assert told(path) == {}
    texts = [(e.text, e.where) for e in read_examples(path, False, SkipLog())]
    assert texts[2] == ("none", f"{path}:3")


@pytest.mark.parametrize(
    ("span", "kind", "title", "detail"),
    [
        (
            [36, 99, "LOC"],
            "span out of range",
            "1 span of data extends beyond the text.",
            "LOC [36, 99) 'London .' extends beyond the text, which has 44 characters",
        ),
        (
            [-2, 3, "PER"],
            "span out of range",
            "1 span of data extends beyond the text.",
            "PER [-2, 3) 'Ada' extends beyond the text, which has 44 characters",
        ),
        (
            [5, 5, "PER"],
            "span without length",
            "1 span of data has no length.",
            "PER [5, 5) '' has no length",
        ),
        (
            [12, 13, "PER"],
            "span of white space",
            "1 span of data covers only white space.",
            "PER [12, 13) ' ' covers only white space",
        ),
        (
            [36, 41, "LOC"],
            "span inside a word",
            "1 span of data cuts through a word.",
            "LOC [36, 41) 'Londo'",
        ),
        (
            [35, 42, "LOC"],
            "span with spaces",
            "1 span of data has spaces at the edges.",
            "LOC [35, 42) ' London'",
        ),
        ([36, 42, ""], "span without label", "1 span of data has no label.", " [36, 42) 'London'"),
    ],
)
def test_faulty_spans(tmp_path, span, kind, title, detail):
    path = jsonl(tmp_path, GOOD, {"id": "x7", "text": TEXT, "spans": [span]})
    found = told(path)
    assert set(found) == {kind}
    assert found[kind].title == title
    assert found[kind].places[0].where == f"{path}:2"
    assert found[kind].places[0].detail == f"text 'x7': {detail}"


def test_a_span_inside_a_character(tmp_path):
    row = {"text": "Ame\u0301lie met Bob", "spans": [[0, 3, "PER"]]}
    found = told(jsonl(tmp_path, GOOD, row))["span inside a character"]
    assert found.places[0].detail.startswith("text 2: PER [0, 3) 'Ame' splits a character at 3")


def test_overlapping_crossing_and_duplicate_spans_are_distinguished(tmp_path):
    spans = [[0, 42, "EVENT"], [4, 12, "PER"], [36, 44, "LOC"], [4, 12, "PER"]]
    found = told(jsonl(tmp_path, GOOD, {"text": TEXT, "entities": spans}))
    assert {kind: finding.count for kind, finding in found.items()} == {
        "overlapping spans": 1, "crossing spans": 1, "duplicate span": 1
    }  # fmt: skip
    assert "LOC [36, 44)" in found["crossing spans"].places[0].detail
    assert "PER [4, 12)" in found["duplicate span"].places[0].detail


def test_malformed_spans_are_reported_by_the_reader(tmp_path):
    rows = (
        GOOD,
        {"id": "x7", "text": TEXT, "spans": [["36", 42, "LOC"]]},
        {"spans": [[0, 1, "X"]]},
    )
    files = open_files([jsonl(tmp_path, *rows)], Columns())
    assert [e.id for e in files.sources["data"]()] == ["g"]
    said = list(files.tallies["data"].messages.values())
    assert said[0].startswith("text 'x7': ['36', 42, 'LOC'] is not a span.")
    assert said[1].startswith("no text; found ['spans'].")


def test_brat_names_the_line_of_each_span(tmp_path):
    path = brat(
        tmp_path, TEXT, "T1\tPER 0 12\tAda Lovelace", "R1\tmet Arg1:T1 Arg2:T2",
        "T2\tLOC 36 420\tLondon", "T3\tPER 0 12\tAda Lovelace",
    )  # fmt: skip
    found = told(path)
    assert found["span out of range"].places[0].where == f"{path}:3"
    assert found["duplicate span"].places[0].where == f"{path}:4"
    assert found["duplicate span"].places[0].detail.startswith("text 'a': ")


@pytest.mark.parametrize(
    ("start", "end", "right"), [(12, 17, True), (0, 3, True), (12, 13, False), (3, 4, False)]
)
def test_spaces_are_trimmed(start, end, right):
    found = trim_span(TEXT, Span("X", start, end))
    if not right:
        assert found is None
        return
    covered = TEXT[found.start : found.end]
    assert covered == TEXT[start:end].strip()
    assert covered == covered.strip()


@pytest.mark.parametrize(
    "content",
    [
        '{"text": "good", "label": "a"}\n{"text": "bad", "label": "b"}\n',
        '{"text": "good", "labels": ["a", "b"]}\n',
        "text\tlabel\ngood film\tO\n",
        "plain words\nmore words\n",
        "(a remark)\nand words\n",
        "",
    ],
)
def test_other_files_are_not_taken_for_structures(tmp_path, content):
    path = tmp_path / "file.txt"
    path.write_text(content, "utf-8")
    assert format_of(str(path), None, Columns()) in ("jsonl", "tsv", "lines")
