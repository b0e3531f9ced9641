"""weft vectors neighbours, analogy, convert."""

import json

import numpy as np
import pytest

from tests.fixtures.command import fails, ok, says
from weft.vectors.store import Vectors

WORDS = ["king", "queen", "man", "woman", "日本", "pear"]
MATRIX = np.array(
    [[1, 1, 0], [1, 0, 1], [0, 1, 0.1], [0, 0.1, 1], [-1, 0.5, 0], [-1, 0, 0.6]], np.float32
)


@pytest.fixture
def file(tmp_path):
    Vectors(WORDS, MATRIX).save(tmp_path / "v.txt")
    return tmp_path / "v.txt"


def test_neighbours_of_one_word(file):
    done = ok("vectors", "neighbours", file, "king", "-k", 2)
    assert done.lines == ["0.7036  man", "0.5000  queen"]


def test_neighbours_of_several_words_stand_in_columns(file):
    done = ok("vectors", "neighbours", file, "king", "日本", "-k", 2)
    assert done.lines == ["KING   日本", "man    pear", "queen  man"]


def test_neighbours_as_json(file):
    done = ok("vectors", "neighbours", file, "king", "日本", "-k", 1, "--json")
    rows = [json.loads(line) for line in done.lines]
    score = pytest.approx(1 / 2.02**0.5, abs=2e-6)
    assert rows[0] == {"word": "king", "neighbours": [{"word": "man", "score": score}]}
    assert rows[1]["word"] == "日本"


def test_analogy(file):
    assert ok("vectors", "analogy", file, "man", "king", "woman", "-k", 1).lines == [
        "0.9799  queen"
    ]
    done = ok("vectors", "analogy", file, "man", "king", "woman", "--method", "multiply", "--json")
    row = json.loads(done.out)
    assert row["method"] == "multiply"
    assert row["answers"][0]["word"] == "queen"


@pytest.mark.parametrize("name", ["w.bin", "w.npz", "w.safetensors", "w.glove.txt"])
def test_convert_there_and_back(file, name):
    there, back = file.with_name(name), file.with_name("back.txt")
    done = ok("vectors", "convert", file, there)
    assert done.err.endswith(f"{name}: 6 words, 3 dimensions\n")
    ok("vectors", "convert", there, back)
    assert back.read_bytes() == file.read_bytes()
    says(fails("vectors", "convert", file, there), name, "exists. Pass --overwrite")
    ok("vectors", "convert", file, there, "--overwrite", "--format", "fasttext")
    assert "fasttext" in Vectors.load(there).record


def test_words_that_cannot_be_printed(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"2 2\ncaf\xe9 1 0\nbar 1 1\n")
    assert ok("vectors", "neighbours", tmp_path / "v.txt", "bar").lines == ["0.7071  caf\ufffd"]


def test_mistakes(file, tmp_path):
    says(fails("vectors", "neighbours", file, "qeen"), "No vector for 'qeen'", "mean 'queen'?")
    says(fails("vectors", "neighbours", tmp_path / "v.tx", "a"), "No vector file", "'v.txt'?")
    says(fails("vectors", "analogy", file, "man", "king", "wman"), "'wman'", "'woman'")
    says(
        fails("vectors", "analogy", file, "man", "king", "woman", "--method", "mul"),
        "Unknown analogy method 'mul'",
    )
    says(fails("vectors", "convert", file, tmp_path / "v.doc"), "v.doc: the ending", ".vec")
    twice = tmp_path / "t.txt"
    twice.write_text("2 1\na 1\na 2\n")
    says(fails("vectors", "convert", twice, tmp_path / "o.bin"), "t.txt:3", "--duplicates first")
    ok("vectors", "convert", twice, tmp_path / "o.bin", "--duplicates", "first")
    says(
        fails("vectors", "convert", twice, tmp_path / "p.bin", "--duplicates", "frist"),
        "Unknown choice 'frist'",
        "Did you mean 'first'",
    )
