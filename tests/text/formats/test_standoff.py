"""Spans of characters: every spelling is read, every fault told, and words get their tags."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.text.annotation import schemes
from weft.text.annotation.schemes import SCHEMES, Span
from weft.text.annotation.spans import (
    SpanText,
    align_tags,
    find_faults,
    locate_spans,
    splits_character,
    to_character_offsets,
)
from weft.text.example import SkipCounter
from weft.text.formats.standoff import format_spans, read_brat, read_spans, write_spans

TEXT = "Ada Lovelace met Charles Babbage in London ."
SPANS = (Span("PER", 0, 12), Span("PER", 17, 32), Span("LOC", 36, 42))


def jsonl(folder, *rows):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def brat(folder, text: str, *lines: str, name: str = "doc"):
    (folder / f"{name}.txt").write_bytes(text.encode())
    (folder / f"{name}.ann").write_text("".join(line + "\n" for line in lines), "utf-8")
    return folder


@pytest.mark.parametrize(
    "row",
    [
        {"spans": [{"start": s, "end": e, "label": k, "token_start": 0} for k, s, e in SPANS]},
        {"label": [[s, e, k] for k, s, e in SPANS]},
        {"labels": [[s, e, k] for k, s, e in reversed(SPANS)]},
        {
            "entities": [
                {"id": 1, "start_offset": s, "end_offset": e, "label": k} for k, s, e in SPANS
            ]
        },
        {"entities": [{"start": s, "end": e, "type": k} for k, s, e in SPANS], "answer": "accept"},
    ],
)
def test_spellings(tmp_path, row):
    (found,) = read_spans(jsonl(tmp_path, {"id": 7, "text": TEXT, **row}))
    assert found == SpanText(TEXT, SPANS, "7", str(tmp_path / "a.jsonl"), 1)


def test_written_and_read(tmp_path):
    texts = [SpanText(TEXT, SPANS, "a"), SpanText("n’est\nrien 😀", (Span("X", 11, 12),))]
    write_spans(texts, tmp_path / "b.jsonl")
    back = [SpanText(m.text, m.spans, m.id) for m in read_spans(tmp_path / "b.jsonl")]
    assert back == texts
    assert json.loads(format_spans(texts[1]))["spans"] == [{"start": 11, "end": 12, "label": "X"}]


def test_rejected_rows_are_counted(tmp_path):
    tally = SkipCounter()
    rows = [{"text": TEXT, "spans": [], "answer": "reject"}, {"text": TEXT, "spans": []}]
    assert len(list(read_spans(jsonl(tmp_path, *rows), skipped=tally))) == 1
    assert tally.counts == {"text not accepted": 1}


FAULTS = [
    ([5, 5, "PER"], "span without length", r"span PER \[5, 5\) '' has no length"),
    ([9, 4, "PER"], "span without length", r"PER \[9, 4\) .* must be larger"),
    ([36, 99, "LOC"], "span out of range", r"LOC \[36, 99\) 'London \.' extends .* 44 characters"),
    ([-2, 3, "PER"], "span out of range", r"PER \[-2, 3\) .*Count from 0"),
    ([3, 4, "PER"], "span of white space", r"PER \[3, 4\) ' ' covers only white space"),
    (["0", 3, "PER"], "malformed span", r"\['0', 3, 'PER'\] is not a span"),
    ([0, True, "PER"], "malformed span", r"is not a span"),
]


@pytest.mark.parametrize(("span", "kind", "message"), FAULTS)
def test_faulty_spans(tmp_path, span, kind, message):
    good = {"text": TEXT, "spans": []}
    path = jsonl(tmp_path, good, {"id": "t3", "text": TEXT, "spans": [span]})
    with pytest.raises(UserError, match=rf"a\.jsonl:2: text 't3': .*{message}"):
        list(read_spans(path))
    tally = SkipCounter()
    assert len(list(read_spans(path, on_bad_row="skip", skipped=tally))) == 1
    assert tally.counts == {kind: 1}


def test_overlaps_are_found_under_a_long_span():
    spans = [Span("EVENT", 0, 42), Span("PER", 4, 12), Span("LOC", 36, 42), Span("X", 43, 44)]
    found = list(find_faults(TEXT, spans))
    assert [(f.kind, f.span.label) for f in found] == [
        ("overlapping spans", "PER"),
        ("overlapping spans", "LOC"),
    ]
    assert "span LOC [36, 42) 'London' overlaps span EVENT [0, 42)" in found[1].reason


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "a"', r"a\.jsonl:1: not JSON: .*Write one object per line"),
        ("[1]", r"a\.jsonl:1: not an object: '\[1\]'"),
        ('{"txt": "a", "spans": []}', r"a\.jsonl:1: no text; found \['spans', 'txt'\]"),
        (
            '{"text": "a\\ud83d", "spans": []}',
            r"a\.jsonl:1: the text or a span contains a lone surrogate",
        ),
    ],
)
def test_bad_rows(tmp_path, row, message):
    path = tmp_path / "a.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(UserError, match=message):
        list(read_spans(path))


WHOLE = ["e\u0301", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u1112\u1161\u11ab"]
WHOLE += [
    "\U0001f469\u200d\U0001f4bb",
    "\U0001f642\u200d\u2194\ufe0f",
    "\r\n",
    "\u0915\u093f",
    "\u2764\ufe0f",
    "\ud55c",
    "a",
]


@given(st.lists(st.sampled_from(WHOLE), max_size=5))
def test_inside_a_character(characters):
    """Characters put together with words between them; flags may also stand side by side."""
    text = "".join(c if c == WHOLE[1] else f"{c} " for c in characters)
    borders, reach = {0, len(text)}, 0
    for c in characters:
        for piece in (c,) if c == WHOLE[1] else (c, " "):
            reach += len(piece)
            borders.add(reach)
    cut = {offset for offset in range(len(text) + 1) if splits_character(text, offset)}
    assert cut == set(range(len(text) + 1)) - borders


def test_a_span_that_cuts_a_character():
    text = "cafe\u0301 \U0001f44d\U0001f3fd"
    (fault,) = find_faults(text, [Span("X", 0, 4), Span("Y", 6, 8)])
    assert fault.kind == "span inside a character"
    assert "splits a character at 4, 'e\u0301'. Move it to the edge." in fault.reason
    assert "If offsets count bytes or UTF-16 units, pass unit=." in fault.reason


@given(st.text(alphabet="aé中😀 ", max_size=7), st.sampled_from(["utf16", "byte"]))
def test_other_units(text, unit):
    code = "utf-8" if unit == "byte" else "utf-16-le"
    sizes = [
        len(text[:n].encode(code)) // (1 if unit == "byte" else 2) for n in range(len(text) + 1)
    ]
    assert to_character_offsets(text, sizes, unit) == list(range(len(text) + 1))


def test_an_offset_inside_a_surrogate_pair(tmp_path):
    row = {"id": "t1", "text": "😀 Ada", "spans": [[3, 6, "PER"]]}
    (found,) = read_spans(jsonl(tmp_path, row), unit="utf16")
    assert found.text[slice(*found.spans[0][1:])] == "Ada"
    row["spans"] = [[1, 6, "PER"]]
    message = r"text 't1': span PER \[1, 6\): offset 1 falls inside the character '😀'.* to 0"
    with pytest.raises(UserError, match=message):
        list(read_spans(jsonl(tmp_path, row), unit="utf16"))
    row["spans"] = [[3, 7, "PER"]]
    with pytest.raises(UserError, match=r"PER \[2, 6\) 'Ada' extends beyond the text"):
        list(read_spans(jsonl(tmp_path, row), unit="utf16"))


def words_of(text: str) -> list[tuple[int, int]]:
    out, reach = [], 0
    for word in text.split(" "):
        out.append((reach, reach + len(word)))
        reach += len(word) + 1
    return out


@given(st.lists(st.booleans(), min_size=8, max_size=8), st.sampled_from(SCHEMES[1:]))
def test_align_there_and_back(chosen, scheme):
    places = words_of(TEXT)
    words = [Span("X", i, i + 1) for i, is_chosen in enumerate(chosen) if is_chosen]
    spans = [Span("X", *places[span.start]) for span in words]
    found = align_tags(spans, places, scheme=scheme)
    assert found.tags == tuple(schemes.spans_to_tags(words, 8, scheme))
    assert found.adjusted == ()
    assert locate_spans(found.tags, places, scheme=scheme) == spans


def test_spans_off_the_borders_of_words():
    places = words_of(TEXT)
    spans = [Span("PER", 0, 10), Span("ORG", 10, 12), Span("LOC", 35, 42), Span("X", 42, 43)]
    found = align_tags(spans, places)
    assert found.tags == ("B-PER", "I-PER", "O", "O", "O", "O", "B-LOC", "O")
    assert [str(moved) for moved in found.adjusted] == [
        "PER [0, 10) became [0, 12)",
        "ORG [10, 12) was dropped",
        "LOC [35, 42) became [36, 42)",
        "X [42, 43) was dropped",
    ]
    assert align_tags(spans, places, borders="discard").tags == ("O",) * 8
    with pytest.raises(UserError, match=r"PER \[0, 10\) cuts words at \[0, 12\)"):
        align_tags(spans, places, borders="error")
    with pytest.raises(UserError, match=r"X \[42, 43\) covers no free word"):
        align_tags(spans[3:], places, borders="error")


def test_words_that_share_a_place():
    found = align_tags([Span("X", 3, 5)], [(0, 2), (3, 5), (3, 5), (6, 9)])
    assert found.tags == ("O", "B-X", "I-X", "O")
    assert locate_spans(found.tags, [(0, 2), (3, 5), (3, 5), (6, 9)]) == [Span("X", 3, 5)]


def test_brat(tmp_path):
    lines = ["T2\tLOC 36 42\tLondon", "T1\tPER 0 12\tAda Lovelace", "R1\tIn Arg1:T1 Arg2:T2"]
    folder = brat(tmp_path, TEXT, *lines, "#1\tAnnotatorNotes T1\tsure", "")
    tally = SkipCounter()
    for path in (folder, folder / "doc.txt", folder / "doc.ann"):
        (found,) = read_brat(path, skipped=tally)
        assert found.spans == (Span("PER", 0, 12), Span("LOC", 36, 42))
        assert found.others == (lines[2], "#1\tAnnotatorNotes T1\tsure")
        assert (found.id, found.text) == ("doc", TEXT)
    assert tally.counts == {"relation not used": 3, "note not used": 3}


def test_brat_counts_line_breaks(tmp_path):
    folder = brat(
        tmp_path, "Ada\r\nLovelace\nis", "T1\tPER 0 13\tAda\r Lovelace", "T2\tX 14 16\tis"
    )
    (found,) = read_brat(folder)
    assert [found.text[s.start : s.end] for s in found.spans] == ["Ada\r\nLovelace", "is"]


def test_discontinuous(tmp_path):
    folder = brat(tmp_path, TEXT, "T1\tPER 0 3;17 24\tAda Charles")
    with pytest.raises(UserError, match=r"doc\.ann:1: text 'doc': T1 PER has 2 fragments .*'join'"):
        list(read_brat(folder))
    (found,) = read_brat(folder, discontinuous="join")
    assert found.spans == (Span("PER", 0, 24),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T1\tPER 0 3\tAdam", r"doc\.ann:2: text 'doc': T1 PER \[0 3\) covers 'Ada' .*says 'Adam'"),
        ("T1\tPER 0\tAda", r"doc\.ann:2: text 'doc': 'T1\tPER 0\tAda' is not a text-bound line"),
        ("T1\tPER 40 99\tAda", r"doc\.ann:2: text 'doc': span PER \[40, 99\)"),
        (
            "T1\tPER 38 40\tnd",
            r"doc\.ann:2: .*PER \[38, 40\) 'nd' overlaps span LOC \[36, 42\)",
        ),
    ],
)
def test_bad_brat(tmp_path, line, message):
    folder = brat(tmp_path, TEXT, "T9\tLOC 36 42\tLondon", line)
    with pytest.raises(UserError, match=message):
        list(read_brat(folder))


def test_brat_needs_both_files(tmp_path):
    brat(tmp_path, TEXT)
    (tmp_path / "doc.txt").unlink()
    with pytest.raises(
        UserError, match=r"BRAT needs a \.txt and an \.ann file, and .*doc\.txt is missing"
    ):
        list(read_brat(tmp_path))
    (tmp_path / "doc.ann").unlink()
    with pytest.raises(UserError, match=r"no \.ann file in this folder"):
        list(read_brat(tmp_path))


def test_a_line_that_is_no_text_leaves_its_document_out(tmp_path):
    for name, marks in (
        ("a", b"T1\tPER 0 3\tAda\nT2\tLOC 7 9\t\xe9\n"),
        ("b", b"T1\tPER 0 3\tAda\n"),
    ):
        (tmp_path / f"{name}.txt").write_bytes(b"Ada in Oslo\n")
        (tmp_path / f"{name}.ann").write_bytes(marks)
    tally = SkipCounter()
    assert [one.id for one in read_brat(tmp_path, on_bad_row="skip", skipped=tally)] == ["b"]
    assert tally.places == {"undecodable bytes": [f"{tmp_path / 'a.ann'}:2"]}
