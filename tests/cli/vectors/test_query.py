"""weft vectors neighbours, analogy, odd, expand, convert."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures import small
from tests.fixtures.checkpoints import checkpoint, vocabulary
from tests.fixtures.command import fails, ok, says, train
from weft.loading import load_vectors
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
    assert done.lines == ["KING 1  日本 5", "man     pear", "queen   man"]


def test_neighbours_as_json(file):
    done = ok("vectors", "neighbours", file, "king", "日本", "-k", 1, "--json")
    rows = [json.loads(line) for line in done.lines]
    score = pytest.approx(1 / 2.02**0.5, abs=2e-6)
    assert rows[0] == {"word": "king", "neighbours": [{"word": "man", "score": score}]}
    assert rows[1]["word"] == "日本"


def test_neighbours_by_euclidean_distance(file):
    done = ok("vectors", "neighbours", file, "king", "-k", 2, "--metric", "euclidean")
    assert done.lines == ["1.0050  man", "1.4142  queen"]
    says(
        fails("vectors", "neighbours", file, "king", "--metric", "euclidian"),
        "Unknown metric 'euclidian'", "Did you mean 'euclidean'?",
    )  # fmt: skip
    says(
        fails("vectors", "neighbours", file, "king", "--metric", "euclidean", "--approximate"),
        "--approximate searches by cosine. Remove --metric euclidean.",
    )


def test_the_odd_one_out_comes_first(file):
    done = ok("vectors", "odd", file, "king", "queen", "pear")
    assert done.lines[0].endswith("  pear")
    assert len(done.lines) == 3
    row = json.loads(ok("vectors", "odd", file, "king", "queen", "pear", "--json").out)
    assert row["odd"] == "pear" == row["words"][0]["word"]
    says(fails("vectors", "odd", file, "king", "queen"), "odd one out of 2 words", "three or more")


def test_a_query_is_expanded(file):
    done = ok("vectors", "expand", file, "king", "queen", "-k", 1)
    assert done.lines == ["1.0000  king", "1.0000  queen", "0.4468  man"]
    row = json.loads(ok("vectors", "expand", file, "king", "nobody", "-k", 1, "--json").out)
    assert row["query"] == "king nobody"
    assert [one["word"] for one in row["terms"]] == ["king", "nobody", "man"]
    says(fails("vectors", "expand", file, "qeen"), "No vector for 'qeen'", "mean 'queen'?")


def test_neighbours_in_the_table_of_a_trained_model(tmp_path):
    ok(*train(small.file(tmp_path), tmp_path / "run"))
    found = weft.load(tmp_path / "run").engine
    matrix = found.model.embedders[0].table.weight.detach().numpy()
    row = found.indexer.tokenizer.vocabulary.index("good")
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True).clip(1e-9)
    cosines = unit @ unit[row]
    cosines[[0, 1, row]] = -2
    best = found.indexer.tokenizer.vocabulary[int(cosines.argmax())]
    done = ok("vectors", "neighbours", tmp_path / "run", "good", "-k", 1)
    assert done.lines == [f"{cosines.max():.4f}  {best}"]
    ok("vectors", "convert", tmp_path / "run", tmp_path / "table.vec")
    assert "<unk>" not in Vectors.load(tmp_path / "table.vec")
    ok(*train(small.file(tmp_path), tmp_path / "tfidf", recipe="tfidf"))
    message = fails("vectors", "neighbours", tmp_path / "tfidf", "good")
    says(message, "A classic model has no embedding table.")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_neighbours_in_the_table_of_a_checkpoint(family, tmp_path):
    network, _ = checkpoint(tmp_path / family, family)
    vectors = load_vectors(tmp_path / family)
    table = network.get_input_embeddings().weight.detach().numpy()
    entries = vocabulary(family)
    mark, inside = ("Ġ", "") if family == "gpt2" else ("", "##")
    np.testing.assert_array_equal(vectors["bank"], table[entries[f"{mark}bank"]])
    assert "bank" in ok("vectors", "neighbours", tmp_path / family, "bank", "-k", 3, "--json").out
    piece = next(e for e in entries if e.startswith(inside) and e.strip("#") == "e")
    np.testing.assert_array_equal(vectors["##e"], table[entries[piece]])
    assert not {"[PAD]", "<pad>", "<|endoftext|>"} & set(vectors.words)


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
