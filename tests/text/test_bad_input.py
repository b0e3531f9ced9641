"""Every way a file can be wrong has a message that says what, where, and what to do."""

import gzip
import lzma
import sys

import pytest

from weft.errors import UserError
from weft.text.annotation.trees import parse
from weft.text.example import Example, SkipCounter
from weft.text.read import Columns, read
from weft.text.write import write

GOOD = b'text,label\n"fine",x\n'

# (file name, bytes, options for read, what the message must hold, in this order)
FILES = {
    "empty": ("a.csv", b"", {}, ["a.csv: the file is empty"]),
    "header only": ("a.csv", b"text,label\n", {}, ["a.csv: no usable row"]),
    "unknown column": (
        "a.csv",
        GOOD,
        {"columns": Columns(text="txt")},
        ["no 'txt' column; found ['text', 'label']", "Did you mean 'text'?", "--text"],
    ),
    "name without header": (
        "a.tsv",
        b"0\tsome text\n1\tmore text\n",
        {"columns": Columns(label="y")},
        ["no column 'y'", "no header row", "--label 0 to --label 1"],
    ),
    "position too large": (
        "a.csv",
        GOOD,
        {"columns": Columns(label=7)},
        ["no column 7; the file has 2", "0 to 1"],
    ),
    "one column twice": (
        "a.csv",
        GOOD,
        {"columns": Columns("text", "text")},
        ["column 'text' has two roles"],
    ),
    "column name twice": (
        "a.csv",
        b"text,text,label\na,b,c\n",
        {"columns": Columns(text="text")},
        ["2 columns are named 'text'", "--text 0"],
    ),
    "two labels": (
        "a.csv",
        b"text,category,sentiment\na,b,c\n",
        {},
        [
            "'category'",
            "'sentiment'",
            "could each be the label",
            "--label category or --label sentiment",
        ],
    ),
    "unknown format": (
        "a.csv",
        GOOD,
        {"format": "cvs"},
        ["Unknown format 'cvs'", "Did you mean 'csv'?"],
    ),
    "not UTF-8": (
        "a.csv",
        b"text,label\ncaf\xe9,x\n",
        {},
        ["a.csv:2: byte 0xe9 at offset 3", "not UTF-8", "iconv"],
    ),
    "not UTF-8 in a line": (
        "a.txt",
        b"one\ntwo \xff\n",
        {},
        ["a.txt:2: byte 0xff at offset 4", "iconv"],
    ),
    "UTF-16": (
        "a.csv",
        "text,label\nhi,x\n".encode("utf-16"),
        {},
        ["a.csv:1: the file is UTF-16", "FF FE", "iconv -f UTF-16"],
    ),
    "old Mac lines": (
        "a.txt",
        b"one\rtwo\rthree",
        {},
        ["a.txt:1: lines end in bare carriage returns", "tr "],
    ),
    "NUL": ("a.txt", b"one\ntw\0o\n", {}, ["a.txt:2: NUL byte at offset 2", "Remove it"]),
    "NUL in CSV": ("a.csv", b"text,label\nt\0o,x\n", {}, ["a.csv:2: NUL byte at offset 1"]),
    "ragged CSV": (
        "a.csv",
        b"text,label\na,b\nc,d,e\n",
        {},
        ["a.csv:3: 3 columns, but the header has 2", "Quote"],
    ),
    "ragged TSV": (
        "a.tsv",
        b"0\tsome text\n1\tmore text\nalone\n",
        {},
        ["a.tsv:3: 1 column, but most rows have 2"],
    ),
    "quote never closed": (
        "a.csv",
        b'text,label\nfine,x\n"open,y\nz,x\n',
        {},
        ["a.csv:3: a quote opened", "never closed", "Close it"],
    ),
    "cell too long": (
        "a.csv",
        b'text,label\n"' + b"word word\n" * 1_100_000,
        {},
        ["a.csv:2: a quote opened", "10,000,000"],
    ),
    "broken quoting": (
        "a.csv",
        b'text,label\n"a"b,x\n',
        {},
        ["a.csv:2: broken quoting", "Double the quotes"],
    ),
    "invalid JSON": (
        "a.jsonl",
        b'{"text": "a"}\n{"text": }\n',
        {},
        ["a.jsonl:2: invalid JSON at column 10: Expecting value"],
    ),
    "JSON document": (
        "a.json",
        b'[\n{"text": "a"}\n]\n',
        {},
        ["a.json:1: one JSON document over many lines", "jq -c"],
    ),
    "JSON list": (
        "a.jsonl",
        b'["a"]\n',
        {},
        ["a.jsonl:1: each line must be an object", "found a list"],
    ),
    "JSON without text": (
        "a.jsonl",
        b'{"text": "a"}\n{"label": "x", "sentence": "b b"}\n',
        {},
        [
            "a.jsonl:2: no 'text' field; found ['label', 'sentence']. "
            "Rename it or pass --text sentence."
        ],
    ),
    "JSON empty object": ("a.jsonl", b"{}\n", {}, ["a.jsonl:1: no 'text' field; found []"]),
    "JSON text is a number": (
        "a.jsonl",
        b'{"text": 7, "label": "x"}\n',
        {},
        ["a.jsonl:1: 'text' must be a text, found 7"],
    ),
    "JSON text is a record": (
        "a.jsonl",
        b'{"text": {"name": "The Mill", "food": "French", "area": "riverside"}, "label": "x"}\n',
        {},
        ["'text' must be a text, found {'name': 'The Mill', 'food': 'French', '…. To read records"],
    ),
    "JSON label is an object": (
        "a.jsonl",
        b'{"text": "a", "label": {"b": 1}}\n',
        {},
        ["a.jsonl:1: the label must be a text, a number or a list", "{'b': 1}"],
    ),
    "JSON label is NaN": (
        "a.jsonl",
        b'{"text": "a", "label": NaN}\n',
        {},
        ["a.jsonl:1: label nan is not a finite number"],
    ),
    "half a surrogate": (
        "a.jsonl",
        b'{"text": "a\\ud800"}\n',
        {},
        ["a.jsonl:1: 'text' contains a lone surrogate"],
    ),
    "empty text": (
        "a.csv",
        b"text,label\na,x\n  ,y\n",
        {},
        ["a.csv:3: the text is empty", "Fill it in"],
    ),
    "empty line": ("a.txt", b"a\n\nb\n", {}, ["a.txt:2: the text is empty"]),
    "label without text": ("a.ft", b"__label__x\n", {}, ["a.ft:1: the text is empty"]),
    "id twice": (
        "a.csv",
        b"id,text\n7,a\n8,b\n7,c\n",
        {"columns": Columns(id="id")},
        ["a.csv:4: id '7' is already used on line 2", "unique"],
    ),
    "id twice in JSON": (
        "a.jsonl",
        b'{"id": 7, "text": "a"}\n{"id": 7, "text": "b"}\n',
        {"columns": Columns(id="id")},
        ["a.jsonl:2: id '7' is already used on line 1"],
    ),
    "not gzip": (
        "a.csv.gz",
        GOOD,
        {},
        ["a.csv.gz: cannot read past line 0", "Not a gzipped file", "damaged"],
    ),
    "gzip cut short": (
        "a.txt.gz",
        gzip.compress(bytes(range(97, 123)) * 99 + b"\n", mtime=0)[:-9],
        {},
        ["a.txt.gz: cannot read past line 0", "damaged or truncated"],
    ),
    "not xz": ("a.csv.xz", GOOD, {}, ["a.csv.xz: cannot read past line 0", "damaged"]),
    "xz cut short": (
        "a.txt.xz",
        lzma.compress(b"some text\n" * 99)[:-20],
        {},
        ["a.txt.xz: cannot read past line 0", "truncated"],
    ),
    "tree left open": ("a.ptb", b"(3 (2 a) (2 b)\n", {}, ["a.ptb:1:1: this '(' is never closed"]),
    "tree closed twice": (
        "a.ptb",
        b"(3 (2 a) (2 b)))\n",
        {},
        ["a.ptb:1:16: this ')' closes nothing"],
    ),
    "tree with two words": (
        "a.ptb",
        b"(3 (2 a b) (2 c))\n",
        {},
        ["a.ptb:1:9: the leaf already holds the word 'a'"],
    ),
    "tree with an empty node": ("a.ptb", b"(3 (2 ) (2 c))\n", {}, ["a.ptb:1:7: an empty bracket"]),
    "no tree": (
        "a.ptb",
        b"plain words\n",
        {},
        ["a.ptb:1:1: a tree starts with '(', found 'plain'"],
    ),
    "not Parquet": ("a.parquet", GOOD, {}, ["a.parquet: not a readable Parquet file"]),
    "a file as a folder": ("a.csv", GOOD, {"format": "folder"}, ["a.csv: a file, not a folder"]),
}


@pytest.mark.parametrize("case", FILES)
def test_the_message(tmp_path, case):
    name, content, options, expected = FILES[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(read(tmp_path / name, **options))
    message, place = str(caught.value), 0
    for part in expected:
        assert part in message[place:], message
        place = message.index(part, place)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("not UTF-8", "undecodable bytes"),
        ("not UTF-8 in a line", "undecodable bytes"),
        ("NUL", "NUL byte"),
        ("NUL in CSV", "NUL byte"),
        ("ragged CSV", "ragged row"),
        ("ragged TSV", "ragged row"),
        ("broken quoting", "broken quoting"),
        ("invalid JSON", "invalid JSON"),
        ("JSON list", "not an object"),
        ("JSON without text", "no text"),
        ("JSON text is a number", "text is not a text"),
        ("JSON label is NaN", "unusable label"),
        ("empty text", "empty text"),
        ("id twice", "duplicate id"),
        ("tree left open", "broken tree"),
    ],
)
def test_skipped_rows_are_counted_with_their_place(tmp_path, case, kind):
    name, content, options, expected = FILES[case]
    path = tmp_path / name
    good = {".csv": "7,a" if "id" in case else "good,y", ".tsv": "1\tgood", ".txt": "good"}
    good |= {".jsonl": '{"text": "good"}', ".ptb": "(2 good)"}
    path.write_bytes(content + (good[path.suffix].replace("7,a", "9,good") + "\n").encode())
    tally = SkipCounter()
    texts = [e.text for e in read(path, on_bad_row="skip", skipped=tally, **options)]
    assert texts[-1] == "good"
    line = expected[0].split(":")[1]
    assert tally.counts == {kind: 1}
    assert tally.places == {kind: [f"{path}:{line}"]}


def test_a_bad_byte_inside_a_quoted_cell_drops_the_whole_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,label\n"one\ntw\xff\nthree",x\nfour,y\n')
    tally = SkipCounter()
    assert [(e.text, e.line) for e in read(path, on_bad_row="skip", skipped=tally)] == [("four", 5)]
    assert tally.places == {"undecodable bytes": [f"{path}:3"]}


def test_nothing_left_after_skipping_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text("[]\n[]\n")
    with pytest.raises(UserError, match="no usable row"):
        list(read(tmp_path / "a.jsonl", on_bad_row="skip"))


def test_missing_file_is_reported_at_once_with_a_near_miss(tmp_path):
    (tmp_path / "train.csv").write_bytes(GOOD)
    with pytest.raises(UserError, match=r"trian\.csv: no such file\. Did you mean 'train\.csv'\?"):
        read(tmp_path / "trian.csv")
    with pytest.raises(UserError, match=r"zzz: no such file\. .* holds: train\.csv"):
        read(tmp_path / "zzz")
    with pytest.raises(UserError, match=r"folder '.*nowhere' does not exist either"):
        read(tmp_path / "nowhere" / "train.csv")


def test_folder_without_classes(tmp_path):
    (tmp_path / "a.txt").write_text("hi")
    with pytest.raises(UserError, match=r"no class folders.*sub-folder named after it"):
        read(tmp_path)


def test_bad_text_in_a_folder(tmp_path):
    (tmp_path / "pos").mkdir()
    (tmp_path / "pos" / "a").write_bytes(b"one\n\xff\n\xff")
    (tmp_path / "pos" / "b").write_bytes(b"fine")
    with pytest.raises(UserError, match="pos/a:2: byte 0xff at offset 0"):
        list(read(tmp_path))
    tally = SkipCounter()
    assert [e.text for e in read(tmp_path, on_bad_row="skip", skipped=tally)] == ["fine"]
    assert tally.counts == {"undecodable bytes": 1}


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"pip install 'weft\[parquet\]'"):
        read(tmp_path / "a.parquet")


REFUSED = {
    "tab in TSV": ("a.tsv", Example("a\tb"), "A TSV file cannot hold a tab"),
    "line break in TSV": ("a.tsv", Example("a\nb"), "A TSV file cannot hold a tab, line break"),
    "quotes in TSV": ("a.tsv", Example('"a ""b"" c"'), "cannot hold quotes around quotes"),
    "line break in fastText": ("a.ft", Example("a\rb"), "A fastText file cannot hold a line break"),
    "label inside fastText": ("a.ft", Example("a __label__b"), "cannot hold __label__ inside"),
    "space in a fastText label": ("a.ft", Example("a", "b c"), "cannot hold spaces in a label"),
    "label in lines": ("a.txt", Example("a", "b"), "A lines file cannot hold labels"),
    "NUL in CSV": ("a.csv", Example("a\0b"), "A CSV file cannot hold a NUL byte"),
    "separator in a label": (
        "a.csv",
        Example("a", ("b|c", "d")),
        "the separator '|' inside a label",
    ),
    "half a surrogate": ("a.jsonl", Example("a\ud800"), "Remove lone surrogates"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unwritable_example_raises_and_leaves_no_file(tmp_path, case):
    name, example, message = REFUSED[case]
    with pytest.raises(UserError) as caught:
        write([example], tmp_path / name)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []  # not even a part of it


def test_writing_where_there_is_no_folder(tmp_path):
    with pytest.raises(UserError, match=r"Cannot write .*a\.csv: No such file or directory"):
        write([Example("a")], tmp_path / "nowhere" / "a.csv")


def test_unknown_format_to_write(tmp_path):
    with pytest.raises(UserError, match=r"Unknown format to write 'josnl'. Did you mean 'jsonl'"):
        write([Example("a")], tmp_path / "a", format="josnl")


def test_ids_for_some_texts_only(tmp_path):
    with pytest.raises(UserError, match="some texts have ids, others do not"):
        write([Example("a", id="1"), Example("b")], tmp_path / "a.csv")


def test_tree_errors_name_the_place_given():
    with pytest.raises(UserError, match="here:5: "):
        parse("(1 a(2 b))", "here")


def test_losses_are_counted_in_words():
    tally = SkipCounter()
    tally.add("empty text", "a.en:5")
    assert tally.lines() == ["1 empty text: a.en:5"]
    tally.add("empty text", "a.de:7")
    assert tally.lines() == ["2 empty texts: a.en:5, a.de:7"]
