"""weft vectors senses."""

import json

import pytest

from tests.fixtures.command import fails, ok, says
from tests.fixtures.pseudo_words import MONEY, RIVER, write_pseudo_text
from weft.vectors.corpus import corpus
from weft.vectors.store import Vectors
from weft.vectors.word2vec import train_vectors


@pytest.fixture
def files(tmp_path):
    write_pseudo_text(tmp_path / "text.txt")
    text = corpus([tmp_path / "text.txt"], min_count=1)
    train_vectors(text, width=16, epochs=5, threads=1).save(tmp_path / "v.safetensors")
    return tmp_path / "text.txt", tmp_path / "v.safetensors", tmp_path


def test_senses_are_shown_and_saved(files):
    text, vectors, folder = files
    outputs = ("-o", folder / "s.safetensors", "--tagged", folder / "tagged.txt")
    done = ok(
        "vectors", "senses", text, "--vectors", vectors, "--words", "bank", "-k", 3,
        "--examples", 1, *outputs,
    )  # fmt: skip
    assert done.lines[0].startswith("bank: 400 occurrences, silhouette 0.")
    assert len(done.lines) == 5
    near = done.lines[1].split(" %  ")[1].split(", ")
    assert set(near) <= set(MONEY) or set(near) <= set(RIVER)
    assert " bank " in f" {done.lines[2]} "
    assert "bank#2" in Vectors.load(folder / "s.safetensors")
    assert (folder / "tagged.txt").read_text("utf-8").count("bank#") == 400
    found = ok("vectors", "neighbours", folder / "s.safetensors", "bank#1", "-k", 3).lines
    assert len(found) == 3
    message = fails(
        "vectors", "senses", text, "--vectors", vectors, "--words", "bank", *outputs
    )  # fmt: skip
    says(message, "s.safetensors exists. Pass --overwrite")


def test_senses_as_json_and_top_words(files):
    text, vectors, _ = files
    done = ok(
        "vectors", "senses", text, "--vectors", vectors, "--words", "bank", "--senses", 3,
        "--json", "-k", 1, "--examples", 0,
    )  # fmt: skip
    row = json.loads(done.out)
    assert row["word"] == "bank"
    assert [one["name"] for one in row["senses"]] == ["bank#1", "bank#2", "bank#3"]
    assert sum(one["size"] for one in row["senses"]) == row["occurrences"] == 400


def test_mistakes(files):
    text, vectors, folder = files
    start = ("vectors", "senses", text, "--vectors", vectors)
    says(fails(*start), "Pass either --words bank,plant or --top N.")
    says(fails(*start, "--words", "bank", "--senses", "two"), "--senses two: give a number")
    says(fails(*start, "--words", "till"), "The word 'till' does not occur")
    says(fails(*start, "--words", "bank", "--weighting", "tf"), "Unknown weighting 'tf'")
    says(fails(*start, "--words", "bank", "-o", folder / "no" / "s.vec"), "no")
