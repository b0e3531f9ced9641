"""Data in several files: patterns, folders of tables, compressed and remote files."""

import gzip
import json
import os

import fsspec
import pytest

from weft.errors import UserError
from weft.run.data import Data, example_source
from weft.run.split import file_digest
from weft.text.read import Columns, read, table_layout
from weft.text.shards import list_shards, source_exists

ROWS = [(f"text number {i}", "ab"[i % 2]) for i in range(9)]


@pytest.fixture
def folder(tmp_path):
    """Three shards, the second compressed, named so that letters alone would sort them wrong."""
    for number, rows in (("1", ROWS[:3]), ("2", ROWS[3:6]), ("10", ROWS[6:])):
        text = "label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows)
        name = tmp_path / f"part-{number}.tsv"
        if number == "2":
            (tmp_path / "part-2.tsv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            name.write_text(text, "utf-8")
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


@pytest.mark.parametrize("pattern", ["", "*.tsv*", "part-*"])
def test_shards_are_read_as_one_in_the_order_of_their_numbers(folder, pattern):
    path = os.path.join(folder, pattern) if pattern else folder
    examples = list(read(path))
    assert [(e.text, e.label) for e in examples] == ROWS
    assert [e.line for e in examples] == [2, 3, 4] * 3
    assert [os.path.basename(e.file) for e in examples[::3]] == [
        "part-1.tsv", "part-2.tsv.gz", "part-10.tsv",
    ]  # fmt: skip
    assert table_layout(path, Columns()).names == ("label", "text")


def test_the_columns_of_the_first_shard_hold_for_all(folder):
    (folder / "part-1.tsv").write_text("text\tlabel\nfirst\ta\n", "utf-8")
    (folder / "part-11.tsv").write_text("sentence\ttext\tlabel\nno\tlast\tb\n", "utf-8")
    rows = [(e.text, e.label) for e in read(folder)]
    assert rows == [("first", "a"), *ROWS[3:], ("last", "b")]


def test_a_shard_without_the_columns_is_named(folder):
    (folder / "part-10.tsv").write_text("label\tbody\na\tx\n", "utf-8")
    with pytest.raises(UserError, match=r"part-10\.tsv: no 'text' column"):
        list(read(folder))


def test_a_pattern_without_files_is_an_error(folder):
    with pytest.raises(UserError, match=r"\*\.csv: no file has such a name"):
        read(folder / "*.csv")


def test_other_folders_and_files_are_not_shards(folder):
    assert list_shards(folder / "part-1.tsv") == ()
    assert list_shards(folder / "missing.tsv") == ()
    assert not source_exists(str(folder / "missing.tsv"))
    (folder / "notes.txt").touch()
    assert list_shards(folder) == ()


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    (tmp_path / "a[1].tsv").write_text("text\tlabel\nx\ta\n", "utf-8")
    (tmp_path / "a1.tsv").write_text("text\tlabel\ny\ta\n", "utf-8")
    assert [e.text for e in read(tmp_path / "a[1].tsv")] == ["x"]


def test_running_text_is_the_text_column_of_shards(tmp_path):
    for i in range(2):
        rows = ({"text": f"shard {i} line {j}\nand more"} for j in range(2))
        (tmp_path / f"{i}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    source = example_source(Data(str(tmp_path)), str(tmp_path), mode="running")
    lines = [e.text for e in source()]
    assert lines[:3] == ["shard 0 line 0\n", "and more\n", "shard 0 line 1\n"]
    assert len(lines) == 8


def test_the_digest_covers_every_shard(folder):
    before = file_digest(str(folder / "*.tsv"))
    assert before == file_digest(str(folder / "part*.tsv"))
    (folder / "part-10.tsv").write_text("label\ttext\na\tx\n", "utf-8")
    assert file_digest(str(folder / "*.tsv")) != before


@pytest.fixture
def bucket(folder):
    system = fsspec.filesystem("memory")
    for path in list_shards(folder):
        system.pipe(f"/bucket/{os.path.basename(path)}", open(path, "rb").read())
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def test_remote_shards_are_read_like_local_ones(bucket):
    assert [(e.text, e.label) for e in read(f"{bucket}/*.tsv*")] == ROWS
    (first, *_) = read(f"{bucket}/part-1.tsv")
    assert first.where == "memory://bucket/part-1.tsv:2"


def test_remote_parquet(bucket):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    with fsspec.open(f"{bucket}/rows.parquet", "wb") as out:
        parquet.write_table(pa.table({"text": ["x", "y"], "label": ["a", "b"]}), out)
    assert [e.text for e in read(f"{bucket}/rows.parquet")] == ["x", "y"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("memory://bucket/missing.tsv", "no such file"),
        ("memory://bucket/*.csv", "no file has such a name"),
        ("nothing://bucket/a.tsv", "Protocol not known"),
    ],
)
def test_missing_remote_files_are_errors(bucket, path, message):
    with pytest.raises(UserError, match=message):
        list(read(path))
