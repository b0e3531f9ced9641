"""Spans with offsets and columns of tags: what is wrong, where, and what is right."""

import json

import pytest

from weft.doctor import Finding, spans

TEXT = "Ada Lovelace met Charles Babbage in London ."


def jsonl(folder, *rows) -> str:
    path = folder / "spans.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def tags(folder, *sentences: str, name: str = "tags.conll") -> str:
    path = folder / name
    path.write_text("\n\n".join(s.replace(" ", "\t").replace("|", "\n") for s in sentences) + "\n")
    return str(path)


def faults(path: str) -> dict[str, Finding]:
    kind = spans.recognise(path)
    assert kind is not None
    return {finding.kind: finding for finding in spans.faults(path, kind, "data")}


GOOD = {"text": TEXT, "spans": [[0, 12, "PER"], [17, 32, "PER"], [36, 42, "LOC"]]}


def test_sound_spans_in_both_spellings(tmp_path):
    spelt = [{"start": s, "end": e, "label": k} for s, e, k in GOOD["spans"]]
    path = jsonl(tmp_path, GOOD, {"text": TEXT, "spans": spelt}, {"text": "none", "spans": []})
    assert faults(path) == {}
    texts = [(e.text, e.where) for e in spans.examples(path, "spans")]
    assert texts[2] == ("none", f"{path}:3")


@pytest.mark.parametrize(
    ("span", "kind", "title", "detail"),
    [
        (
            [36, 99, "LOC"],
            "span out of range",
            "1 span of data reaches outside the text.",
            "[36, 99) LOC, the text has 44 characters",
        ),
        (
            [-2, 3, "PER"],
            "span out of range",
            "1 span of data reaches outside the text.",
            "[-2, 3) PER, the text has 44 characters",
        ),
        (
            [5, 5, "PER"],
            "span without length",
            "1 span of data ends before the beginning.",
            "[5, 5) PER",
        ),
        (
            [36, 41, "LOC"],
            "span inside a word",
            "1 span of data cuts through a word.",
            "'Londo' [36, 41) LOC",
        ),
        (
            [35, 42, "LOC"],
            "span with spaces",
            "1 span of data has spaces at the edges.",
            "' London' [35, 42) LOC",
        ),
        (
            ["36", 42, "LOC"],
            "malformed span",
            "1 span of data is not [start, end, label].",
            "['36', 42, 'LOC']",
        ),
    ],
)
def test_faulty_spans(tmp_path, span, kind, title, detail):
    path = jsonl(tmp_path, GOOD, {"text": TEXT, "spans": [span]})
    told = faults(path)
    assert set(told) == {kind}
    assert told[kind].title == title
    assert told[kind].places[0].where == f"{path}:2"
    assert told[kind].places[0].detail == detail


def test_overlaps_are_found_under_a_long_span(tmp_path):
    row = {"text": TEXT, "entities": [[0, 42, "EVENT"], [4, 12, "PER"], [36, 42, "LOC"]]}
    told = faults(jsonl(tmp_path, row))["overlapping spans"]
    assert told.count == 2
    assert told.places[1].detail == f"'London' LOC and '{TEXT[:42]}' EVENT"


def test_sound_tags_in_three_schemes(tmp_path):
    bio = "Ada B-PER|Lovelace I-PER|met O|Charles B-PER|in O|London B-LOC"
    bilou = "Ada B-PER|Lovelace L-PER|met O|Charles U-PER"
    bioes = "Ada B-PER|King I-PER|Lovelace E-PER|met O|Charles S-PER"
    for number, sentence in enumerate((bio, bilou, bioes)):
        path = tags(tmp_path, sentence, sentence, name=f"{number}.conll")
        assert faults(path) == {}
        texts = [e.text for e in spans.examples(path, "tags")]
        assert texts == [" ".join(w.split()[0] for w in sentence.split("|"))] * 2


@pytest.mark.parametrize(
    ("sentence", "kind", "line"),
    [
        ("Ada B-PER|met O|London I-LOC", "I- without B-", 5),
        ("Ada B-PER|Lovelace I-LOC|met O", "type changes", 4),
        ("Ada B-PER|Lovelace X-PER|met O", "unknown tag", 4),
        ("Ada B-PER|Love lace O|met O", "ragged columns", 4),
    ],
)
def test_faulty_tags(tmp_path, sentence, kind, line):
    path = tags(tmp_path, "Sound B-PER", f"{sentence}|and O|so O|on O|it O|goes O")
    told = faults(path)
    assert set(told) == {kind}
    assert told[kind].places[0].where == f"{path}:{line}"
    assert told[kind].places[0].detail.startswith("sentence 2")


def test_entities_that_nobody_closes(tmp_path):
    path = tags(tmp_path, "Ada B-PER|met O|Bob U-PER", "Bob U-PER|saw O|Ada B-PER")
    told = faults(path)["unclosed entity"]
    assert [place.where[-1] for place in told.places] == ["2", "7"]


def test_iob1_is_a_scheme_and_not_a_thousand_faults(tmp_path):
    path = tags(tmp_path, *["Ada I-PER|met O|Bob I-PER|in O|London I-LOC"] * 7)
    told = faults(path)
    assert set(told) == {"IOB1 tags"}
    assert told["IOB1 tags"].title == "21 entities of data begin with I-: the tags are IOB1."


@pytest.mark.parametrize(
    "content",
    [
        '{"text": "good", "label": "a"}\n{"text": "bad", "label": "b"}\n',
        '{"text": "good", "labels": ["a", "b"]}\n',
        "text\tlabel\ngood film\tO\n",
        "plain words\nmore words\n",
        "",
    ],
)
def test_other_files_are_not_taken_for_spans(tmp_path, content):
    path = tmp_path / "file.txt"
    path.write_text(content, "utf-8")
    assert spans.recognise(str(path)) is None
