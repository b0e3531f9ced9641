"""Texts near a text: by cosine, each once, whatever the chunks."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.fixtures.command import fails, ok, says
from weft.errors import UserError
from weft.predict import semantic_search as module
from weft.predict.semantic_search import nearest

VECTORS = {"q": (2.0, 0.0), "a": (1.0, 0.0), "b": (1.0, 1.0), "c": (-3.0, 0.0), "zero": (0.0, 0.0)}


def predictor():
    return SimpleNamespace(embed=lambda texts: np.array([VECTORS[text] for text in texts]))


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_nearest_texts_are_listed_first_and_once(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TEXTS", chunk)
    (found,) = nearest(predictor(), ["q"], ["c", "a", "b", "a", "zero"], 3)
    assert [text for text, _ in found] == ["a", "b", "zero"]
    assert [score for _, score in found] == pytest.approx([1.0, 0.5**0.5, 0.0])


def test_nothing_to_search():
    with pytest.raises(UserError, match="no texts to search"):
        nearest(predictor(), ["q"], [])


def test_the_command(towers, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("the dog runs\n\na cat is here\n", "utf-8")
    line = ok(
        "vectors", "neighbours", towers, "the dog runs", "--texts", path, "-k", 1, "--json"
    ).lines[0]
    (near,) = json.loads(line)["neighbours"]
    assert near["text"] == "the dog runs"
    assert near["score"] == pytest.approx(1.0, abs=1e-5)
    assert len(ok("vectors", "neighbours", towers, "the dog runs", "--texts", path).lines) == 2
    told = fails("vectors", "neighbours", towers, "x", "--texts", tmp_path / "none.txt")
    says(told, "none.txt: no such file")
