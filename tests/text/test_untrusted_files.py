"""Untrusted data files: one clear line and bounded memory, whatever a file holds."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from weft import config
from weft.embed.vector_files.text import read_table
from weft.errors import UserError, escape_control
from weft.text import line_source
from weft.text.example import Example, SkipCounter
from weft.text.formats import npy
from weft.text.formats.conll import read_columns
from weft.text.formats.conllu import read_conllu
from weft.text.formats.features import load_matrix
from weft.text.formats.standoff import read_spans
from weft.text.read import read
from weft.untrusted import parse_integer

HALF = '"\\ud800"'
DIGITS = "9" * 4301
DEEP = "[" * 5000 + "]" * 5000


def said(path: Path, **options) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(UserError) as caught:
        list(read(path, **options))
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (f'{{"text": "a b", "label": {HALF}}}', "label"),
        (f'{{"text": "a b", "label": ["x", {HALF}]}}', "label"),
        (f'{{"text": {HALF}, "label": "x"}}', "text"),
        (f'{{"text": "a b", "label": "x", "id": {HALF}}}', "id"),
        (f'{{"premise": "a", "hypothesis": {HALF}, "label": "x"}}', "hypothesis"),
    ],
)
def test_half_a_character_is_refused_where_it_stands(tmp_path, row, field):
    path = tmp_path / "a.jsonl"
    good = row.replace(HALF, '"good"')
    path.write_text(f"{good}\n{row}\n{good}\n", "utf-8")
    assert said(path).startswith(f"{path}:2: '{field}' contains a lone surrogate")
    tally = SkipCounter()
    assert len(list(read(path, on_bad_row="skip", skipped=tally))) == 2
    assert tally.places == {"undecodable bytes": [f"{path}:2"]}


def test_half_a_character_in_squad_and_spans(tmp_path):
    asked = {"id": "q", "question": "Who?", "answers": [{"text": "\ud800", "answer_start": 0}]}
    document = {"data": [{"paragraphs": [{"context": "\ud800 b", "qas": [asked]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(document), "utf-8")
    assert "contains a lone surrogate" in said(tmp_path / "a.json")
    row = {"text": "Ada", "spans": [[0, 3, "\ud800"]]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row), "utf-8")
    with pytest.raises(
        UserError, match=r"a\.jsonl:1: the text or a span contains a lone surrogate"
    ):
        list(read_spans(tmp_path / "a.jsonl"))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes only here")
def test_a_class_folder_that_is_not_utf8(tmp_path):
    for name in (b"good", b"bad\xe9"):
        folder = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(folder)
        with open(folder + b"/1.txt", "w") as out:
            out.write("some text\n")
    assert "bad\\udce9: the class name is not UTF-8" in said(tmp_path)


def test_cells_longer_than_the_limit_of_csv(tmp_path):
    path = tmp_path / "a.csv"
    book = "word " * 40_000  # 200,000 characters
    path.write_text(f'text,label\n"{book}",x\nshort,y\n', "utf-8")
    assert [len(one.text) for one in read(path)] == [200_000, 5]
    csv.field_size_limit(131_072)  # as in a new process
    path.write_text(f"{'a' * 200_000},x\nb,y\n", "utf-8")  # the first line
    assert [len(one.text) for one in read(path)] == [200_000, 1]
    csv.field_size_limit(131_072)
    quoted = tmp_path / "a.tsv"
    quoted.write_text(f'"text"\t"label"\n"{book}""x"""\t"x"\n', "utf-8")
    assert [one.text for one in read(quoted)] == [f'{book}"x"']


@pytest.mark.parametrize("line", [1, 3])
def test_a_bare_carriage_return_in_a_table(tmp_path, line):
    rows = ["text,label", "a b,x", "c d,y", "e f,x"]
    rows[line - 1] = rows[line - 1].replace(",", "\r,", 1)
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join(rows).encode() + b"\n")
    assert said(path).startswith(f"{path}:{line}: a bare carriage return inside the row")


@pytest.mark.parametrize(
    "name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.conll", "a.conllu", "a.mrg"]
)
def test_a_line_that_is_too_long(tmp_path, monkeypatch, name):
    monkeypatch.setattr(line_source, "MAX_LINE_BYTES", 1000)
    (tmp_path / name).write_bytes(b"x" * 1001)
    assert said(tmp_path / name).startswith(
        f"{tmp_path / name}:1: the line is longer than 1,000 bytes"
    )


def test_a_gigantic_line_in_a_small_file_takes_no_memory(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one line\n") + gzip.compress(b"a" * (1 << 20)) * 6000)
    code = (
        "import resource, sys\n"
        "from weft.text import line_source\n"
        "from weft.text.read import read\n"
        "from weft.errors import UserError\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (40 << 20),) * 2)\n"
        "line_source.MAX_LINE_BYTES = 1 << 22\n"
        "try:\n"
        "    list(read(sys.argv[1]))\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout.startswith(f"{path}:2: the line is longer than 4,194,304 bytes"), done


def test_a_bomb_of_matrices(tmp_path, monkeypatch):
    monkeypatch.setattr(npy, "MAX_UNPACKED_BYTES", 1 << 20)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 12)}
    )
    for name, size in (("claims.npz", 64), ("bomb.npz", 1 << 21)):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as out:
            out.writestr("a.npy", header.getvalue() + bytes(size))
    for name, reason in (
        ("claims.npz", "takes 17,179,869,184 bytes"),
        ("bomb.npz", "claim to exp"),
    ):
        with pytest.raises(UserError, match=reason):
            load_matrix(Example(f"{tmp_path / name}:a"))
        with pytest.raises(UserError, match=reason):
            read_table(tmp_path / name)
    (tmp_path / "claims.npy").write_bytes(header.getvalue() + b"\0" * 64)
    with pytest.raises(UserError, match="takes 17,179,869,184 bytes; the file has 64"):
        load_matrix(Example(str(tmp_path / "claims.npy")))


@pytest.mark.parametrize("kind", [".npy", ".npz"])
def test_truncated_json_array_raises_user_error(tmp_path, kind):
    whole = io.BytesIO()
    found = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.save(whole, found) if kind == ".npy" else np.savez_compressed(whole, a=found)
    path = tmp_path / f"a{kind}"
    example = Example(str(path))
    for size in range(len(whole.getvalue())):
        path.write_bytes(whole.getvalue()[:size])
        os.utime(path, ns=(size, size))
        with pytest.raises(UserError):
            load_matrix(example)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", f'{{"text": "a", "label": {DIGITS}}}', "a whole number of 4,301 digits"),
        ("a.jsonl", f'{{"text": "a", "label": {DEEP}}}', "nested more than 100 levels deep"),
        ("a.json", f'{{"data": [{{"paragraphs": [{{"qas": {DEEP}}}]}}]}}', "more than 100 levels"),
        ("a.jsonl", f'{{"text": "a", "spans": [[0, {DIGITS}, "X"]]}}', "of 4,301 digits"),
        ("a.conllu", f"{DIGITS}\ta" + "\t_" * 8, "neither a word (3), a range"),
        ("a.conllu", "1\ta" + "\t_" * 4 + f"\t{DIGITS}\troot\t_\t_", "Write a number"),
        ("a.conllu", "1\ta" + "\t_" * 4 + "\t²\troot\t_\t_", "the head of word 1 is '²'"),
        ("a.conllu", "²\ta" + "\t_" * 8, "id '²' is neither"),
        ("a.mrg", "(" * 5000, "is never closed"),
    ],
)
def test_hostile_numbers_and_nesting_raise_user_error(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content + "\n", "utf-8")
    assert message in said(path)


def test_trees_of_any_depth_are_read(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text("(S " * 5000 + "(X a)" + ")" * 5000 + "\n", "utf-8")
    (found,) = read(path)
    assert found.text == "a"


def test_numbers_of_words_that_are_no_numbers(tmp_path):
    path = tmp_path / "a.conll"
    rows = [f"{n} word{n} O" for n in ("1", "²", DIGITS)]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    assert len(next(iter(read_columns(path, tags=2))).words) == 3
    with pytest.raises(UserError, match="no column '²'"):
        list(read_columns(path, tags="²"))
    for asked in ("²", DIGITS):
        with pytest.raises(UserError, match="no "):
            list(read(path, format="csv", columns=config_columns(asked)))


def config_columns(text: str):
    from weft.text.columns import Columns

    return Columns(text=text)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", f"[train]\nepochs = {DIGITS}\n", "cannot be read as toml: Exceeds the limit"),
        ("a.toml", f"[train]\nepochs = {DEEP}\n", "cannot be read as toml: "),
        ("a.toml", f"[train]\nx = {'[' * 300 + ']' * 300}\n", "nested more than 100 levels deep"),
        ("a.json", f'{{"train": {{"epochs": {DIGITS}}}}}', "a whole number of 4,301 digits"),
        ("a.json", f'{{"train": {DEEP}}}', "nested more than 100 levels deep"),
    ],
)
def test_configurations_that_break_python(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(UserError, match=message):
        config.load(tmp_path / name)
    with pytest.raises(UserError, match="numbered from 0"):
        config.Config({"embedder": [{}, {}]}).with_values({"embedder.².kind": "x"}, "--set")


def test_parquet_that_is_not_utf8(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    raw = pyarrow.array([b"good text", b"caf\xe9", b"more text"])
    text = pyarrow.Array.from_buffers(pyarrow.string(), 3, raw.buffers())
    table = pyarrow.table({"text": text, "label": ["x", "y", "x"]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    assert said(path).startswith(f"{path}:2: the row has an unreadable value")
    tally = SkipCounter()
    assert [one.text for one in read(path, on_bad_row="skip", skipped=tally)] == [
        "good text",
        "more text",
    ]
    assert tally.places == {"undecodable bytes": [f"{path}:2"]}


@pytest.mark.parametrize("way", ["pipe", "device"])
def test_pipes_and_devices_are_refused(tmp_path, way):
    path = tmp_path / "a.txt"
    if way == "pipe":
        os.mkfifo(path)
    else:
        path = Path("/dev/zero")
    name = {"pipe": "a named pipe", "device": "a device"}[way]
    assert said(path).startswith(f"{path}: {name}, not a file")
    for other in (read_conllu, read_columns):
        with pytest.raises(UserError, match=name):
            list(other(path))
    with pytest.raises(UserError, match=name):
        config.load(path)
    with pytest.raises(UserError, match="No vector file"):
        read_table(path)


def test_memory_error_is_reported(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n", "utf-8")

    def full(*_):
        raise MemoryError

    monkeypatch.setattr("weft.text.read.Example", full)
    assert said(path) == (
        f"{path}: not enough memory to read it. Pass shorter texts, or fewer at a time."
    )


def test_whole_numbers():
    found = {"0": 0, "007": 7, "²": None, "٣": None, "-1": None, "": None, "1" * 19: None}
    assert {text: parse_integer(text) for text in found} == found


def test_control_characters_are_escaped():
    assert escape_control("a\x1b]0;pwned\x07b\r\x9b\u202e\ud800\t\n é\u200d") == (
        "a\\x1b]0;pwned\\x07b\\x0d\\u009b\\u202e\\ud800\t\n é\u200d"
    )
