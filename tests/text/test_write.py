"""Whatever a format can hold comes back exactly as it was written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UserError
from weft.text.example import Example
from weft.text.read import read
from weft.text.write import write

TEXT = st.text(min_size=1).filter(lambda text: text.strip())
AWKWARD = st.text(alphabet="ab\"\t ,;|'\\(_é", min_size=1, max_size=7).filter(str.strip)
WORD = st.text(alphabet="abé\"'_:|0", min_size=1, max_size=5)
SEVERAL = st.lists(WORD, min_size=2, max_size=3).map(tuple)


def table(label):
    row = st.tuples(st.one_of(TEXT, AWKWARD), label)
    return st.lists(row, min_size=1, max_size=5)


def round_trip(folder, rows, name, **options):
    path = folder / name
    examples = [Example(text, label, f"n{i}") for i, (text, label) in enumerate(rows)]
    try:
        write(examples, path)
    except UserError:
        assert name in ("a.tsv", "a.ft")  # the only ones that may refuse what these tests draw
        return None, None
    return [(e.text, e.label, e.id) for e in read(path, **options)], [
        (e.text, e.label, e.id) for e in examples
    ]


def holds(text, bad):
    return not any(sign in text for sign in bad)


@settings(max_examples=60, deadline=None)
@given(
    rows=table(
        st.one_of(st.none(), TEXT, st.floats(allow_nan=False, allow_infinity=False), SEVERAL)
    )
)
def test_jsonl(tmp_path_factory, rows):
    read_back, written = round_trip(tmp_path_factory.mktemp("w"), rows, "a.jsonl")
    assert read_back == written


@settings(max_examples=60, deadline=None)
@given(rows=table(st.one_of(st.none(), TEXT)), ending=st.sampled_from(["", ".gz", ".xz"]))
def test_csv(tmp_path_factory, rows, ending):
    rows = [r for r in rows if holds(r[0] + (r[1] or ""), "\0")] or [("a", None)]
    read_back, written = round_trip(tmp_path_factory.mktemp("w"), rows, "a.csv" + ending)
    assert read_back == written


@settings(max_examples=100, deadline=None)
@given(rows=table(st.one_of(st.none(), WORD)))
def test_tsv_holds_or_refuses(tmp_path_factory, rows):
    read_back, written = round_trip(tmp_path_factory.mktemp("w"), rows, "a.tsv")
    assert read_back == written


@settings(max_examples=60, deadline=None)
@given(rows=table(st.one_of(st.none(), WORD, SEVERAL)))
def test_fasttext_holds_or_refuses(tmp_path_factory, rows):
    read_back, written = round_trip(tmp_path_factory.mktemp("w"), rows, "a.ft")
    assert [row[:2] for row in read_back or []] == [row[:2] for row in written or []]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.one_of(TEXT, AWKWARD), min_size=1, max_size=5))
def test_lines_hold_or_refuse(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("w") / "a.txt"
    try:
        write([Example(text) for text in texts], path)
    except UserError:
        assert any(sign in text for text in texts for sign in "\r\n\0")
        return
    assert [e.text for e in read(path, format="lines")] == texts


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_parquet(tmp_path_factory, data):
    pytest.importorskip("pyarrow")
    kind = data.draw(
        st.sampled_from([TEXT, SEVERAL, st.floats(allow_nan=False, allow_infinity=False)])
    )
    rows = data.draw(table(st.one_of(st.none(), kind)))
    read_back, written = round_trip(tmp_path_factory.mktemp("w"), rows, "a.parquet")
    assert read_back == written


def test_ordinary_tsv_is_not_refused(tmp_path):
    rows = [
        ('" maid in manhattan " is a charmer', "0"),
        ('he said "no"', "1"),
        ('"all of it"', "0"),
    ]
    read_back, written = round_trip(tmp_path, rows, "a.tsv")
    assert read_back == written
    assert len(read_back) == 3


def test_a_bare_carriage_return_in_csv(tmp_path):
    read_back, written = round_trip(tmp_path, [("a\rb", "c\r")], "a.csv")
    assert read_back == written


def test_several_labels_in_a_cell(tmp_path):
    rows = [("a", ("x", "y")), ("b", ("z",))]
    read_back, written = round_trip(tmp_path, rows, "a.csv", separator="|")
    assert read_back == written


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.csv"
    write([Example("old", "x")], path)

    def broken():
        yield Example("new", "x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(broken(), path)
    assert [e.text for e in read(path)] == ["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_packed_files_are_the_same_every_time(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write([Example("text", "x")], tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
