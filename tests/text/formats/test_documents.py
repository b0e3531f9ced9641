"""Raw text as documents: layouts, where sentences end, and what is told of files without text."""

import gzip
import json
import time

import pytest

from weft.errors import UserError
from weft.text.formats import documents
from weft.text.formats.documents import detect_document_layout, read_documents, split_sentences
from weft.text.line_source import LineSource


def written(folder, text, name="a.txt"):
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def texts(path, layout="auto"):
    return [(one.text, one.line) for one in read_documents(path, layout)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It ends. Then! Does it? Yes…", ["It ends.", "Then!", "Does it?", "Yes…"]),
        ('"It ends." (He left.) So.', ['"It ends."', "(He left.)", "So."]),
        ("Mr. Smith met J. R. Doe, e.g. in the U.S. Senate.", 1),
        ("See No. 5 and Fig. 2 there. He said no. Then art. Then 3.5 m.", 4),
        ("it was so. but not here", 1),
        ("You and I. He left.  Twice   spaced.", ["You and I.", "He left.", "Twice   spaced."]),
        ("今日は晴れ。「雨！」さて", ["今日は晴れ。", "「雨！」", "さて"]),
        ("", []),
        ("   ", []),
    ],
)  # fmt: skip
def test_sentences_are_split(text, expected):
    found = split_sentences(text)
    assert (len(found) if isinstance(expected, int) else found) == expected
    assert "".join("".join(found).split()) == "".join(text.split())


def test_no_line_takes_long():
    start = time.perf_counter()
    for line in ("a" * 10**6, "." * 10**5, "a. " * 10**5, "a." + '"' * 10**5, "a." + " " * 10**5):
        split_sentences(line)
    assert time.perf_counter() - start < 5


def test_a_sentence_a_line_and_blank_lines_between(tmp_path):
    path = written(tmp_path, "\none here\ntwo  here.\n\n\nthree here\n")
    assert texts(path) == [("one here\ntwo here.", 2), ("three here", 6)]


def test_a_paragraph_a_line_and_blank_lines_between(tmp_path):
    path = written(tmp_path, "It is. It was.\nTitle.\nAnd so. It goes. On.\n\nNew. One.\n")
    assert texts(path) == [
        ("It is.\nIt was.\nTitle.\nAnd so.\nIt goes.\nOn.", 1),
        ("New.\nOne.", 5),
    ]
    assert texts(path, "sentences")[1] == ("New. One.", 5)


def test_a_document_a_line(tmp_path):
    path = written(tmp_path, "It is. It was.\nAnd so. It goes.\n")
    assert texts(path) == [("It is.\nIt was.", 1), ("And so.\nIt goes.", 2)]
    assert texts(path, "paragraphs") == [("It is.\nIt was.\nAnd so.\nIt goes.", 1)]


@pytest.mark.parametrize("mark", ["=== A_Novel_1864 ===", '<doc id="1" title="A">', "</doc>"])
def test_titles_between_documents_are_no_text_and_blank_lines_then_end_nothing(tmp_path, mark):
    path = written(tmp_path, f"{mark}\nIt is. It was.\n\nAnd so. It goes.\n{mark}\nNew. One.\n")
    assert [text for text, _ in texts(path)] == ["It is.\nIt was.\nAnd so.\nIt goes.", "New.\nOne."]


def test_several_files_folders_packed_ones_and_tables(tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    with gzip.open(folder / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("packed\n")
    written(folder, "plain\n", "a.txt")
    written(folder, "hidden\n", ".c.txt")
    rows = [{"text": "It is. It was.\nLine two."}, {"text": "Other."}]
    table = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "t.jsonl")
    assert [text for text, _ in texts(folder)] == ["plain", "packed"]
    both = f"{folder / 'a.txt'},{table}"
    assert [text for text, _ in texts(both)] == ["plain", "It is.\nIt was.\nLine two.", "Other."]


def test_a_very_long_document_goes_on_as_another(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARS", 20)
    path = written(tmp_path, "\n".join(f"line number {i}" for i in range(7)) + "\n")
    assert [text.count("\n") + 1 for text, _ in texts(path)] == [2, 2, 2, 1]


def test_empty_input_raises_user_error(tmp_path):
    path = written(tmp_path, "\n \n\n")
    with pytest.raises(UserError, match=r"a\.txt: no text"):
        texts(path)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="none: the folder is empty"):
        texts(tmp_path / "none")
    with pytest.raises(UserError, match="no such file"):
        texts(tmp_path / "b.txt")


def test_document_layout_is_detected(tmp_path):
    for text, expected in (
        ("one two\nthree\n", ("sentences", False)),
        ("It is. It was.\nSo it. Goes on.\n", ("lines", False)),
        ("It is. It was.\n\nSo it. Goes on.\n", ("paragraphs", False)),
        ("=== T ===\nIt is. It was.\n", ("paragraphs", True)),
    ):
        source = LineSource(written(tmp_path, text))
        assert detect_document_layout(source) == expected
        source.close()
