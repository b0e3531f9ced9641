"""Word vector files: every format read back as written, every broken one named with its place."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.embed.vector_files.text import read_vectors
from weft.errors import UserError

WORDS = ["the", "naïve", "日本", "of"]
ROWS = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)


def text(header=True, rows=ROWS, words=WORDS):
    lines = [f"{len(words)} {rows.shape[1]}"] if header else []
    lines += [f"{w} {' '.join(map(repr, map(float, r)))}" for w, r in zip(words, rows, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def binary(rows=ROWS, words=WORDS, end=b"\n"):
    out = f"{len(words)} {rows.shape[1]}\n".encode()
    for word, row in zip(words, rows, strict=True):
        out += word.encode() + b" " + struct.pack(f"<{len(row)}f", *row) + end
    return out


FORMS = {
    "word2vec text": text(),
    "glove": text(header=False),
    "fasttext with spaces at line ends": text().replace(b"\n", b" \n"),
    "windows": text().replace(b"\n", b"\r\n"),
    "word2vec binary": binary(),
    "binary without line ends": binary(end=b""),
    "gzip text": gzip.compress(text()),
    "gzip binary": gzip.compress(binary()),
}


@pytest.mark.parametrize("form", FORMS)
def test_reads_back_what_was_written(tmp_path, form):
    path = tmp_path / "vectors"
    path.write_bytes(FORMS[form])
    found, width = read_vectors(path)
    assert width == 5
    assert list(found) == WORDS
    np.testing.assert_array_equal(np.stack([found[w] for w in WORDS]), ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_reads_only_the_wanted(tmp_path, form):
    path = tmp_path / "vectors"
    path.write_bytes(FORMS[form])
    found, _ = read_vectors(path, {"of", "unheard"})
    assert list(found) == ["of"]
    np.testing.assert_array_equal(found["of"], ROWS[3])


def test_words_with_spaces_and_doubles(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2 3\n. . . 4 5 6\na 7 8 9\n")
    found, _ = read_vectors(path)
    assert found[". . ."].tolist() == [4, 5, 6]
    assert found["a"].tolist() == [1, 2, 3]


@given(
    st.dictionaries(st.text("abcéß日", min_size=1), st.floats(-9, 9, width=32), min_size=1),
    st.sampled_from([text, binary]),
)
@settings(max_examples=30, deadline=None)
def test_any_table_round_trips(tmp_path_factory, table, write):
    path = tmp_path_factory.mktemp("v") / "v"
    rows = np.array([[v, 0.5, -v] for v in table.values()], dtype=np.float32)
    path.write_bytes(write(rows=rows, words=list(table)))
    found, _ = read_vectors(path)
    assert list(found) == list(table)
    np.testing.assert_array_equal(np.stack(list(found.values())), rows)


BROKEN = {
    "empty": (b"", r"v\.txt is empty"),
    "short line": (b"2 3\na 1 2 3\nb 1 2\n", r"v\.txt:3: 2 numbers, but the file's width is 3"),
    "short line, no header": (b"a 1 2 3\nb 1 2 3\nc 1\n", r"v\.txt:3: 1 numbers"),
    "not a number": (b"a 1 2 3\nb 1 x2 3\n", r"v\.txt:2: not a number: .*x2"),
    "not finite": (b"a 1 2 3\nb 1 nan 3\n", r"v\.txt:2: a number that is not finite"),
    "fewer rows than promised": (b"9 3\na 1 2 3\n", r"promises 9 vectors, found 1"),
    "no columns": (b"hello\nworld\n", r"v\.txt:1: a word and its numbers expected"),
    "cut binary": (binary()[:-9], r"truncated in vector 4 of 4"),
    "binary without header": (binary()[4:], "neither text nor word2vec binary"),
    "cut fasttext model": (
        struct.pack("<ii", 793712314, 12) + b"\0" * 50,
        r"v\.txt: a fastText model that is truncated",
    ),
    "cut gzip": (gzip.compress(text())[:-12], "broken gzip file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named_with_their_place(tmp_path, case):
    content, message = BROKEN[case]
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(path)


def test_missing_file_suggests_a_near_one(tmp_path):
    (tmp_path / "glove.6B.txt").write_text("a 1\n")
    with pytest.raises(UserError, match=r"No vector file .*Did you mean 'glove\.6B\.txt'"):
        read_vectors(tmp_path / "glove.6b.txt")
