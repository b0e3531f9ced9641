"""A text as long as a book: what is read of it is bounded by default, and said."""

import inspect
import json

import numpy as np
import pytest

import weft
from tests.fixtures.predictor_recipes import recipe
from weft.batch.indexer import Indexer
from weft.errors import UserError
from weft.predict.neural import make_indexer
from weft.run import train
from weft.run.data import Data, validate
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, shorten_text
from weft.tokens.word import Word

LONG = "the film was good " * 70  # 1,260 characters
MOST = 1000


@pytest.mark.parametrize("name", ["tfidf", "cnn", "bilstm"])
def test_a_long_text_is_read_in_part_in_training_and_predicting(tmp_path, name):
    rows = [{"text": f"{('good', 'bad')[i % 2]} film {i}", "label": "pn"[i % 2]} for i in range(40)]
    rows[7]["text"] = LONG
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    changes = {"data__train": str(tmp_path / "a.jsonl"), "data__max_characters": MOST}
    if name != "tfidf":
        changes |= {"train__epochs": 1}
    found = train(recipe(name, **changes), tmp_path / "model", quiet=True)
    (note,) = [line for line in found.record["notes"] if "read only in part" in line]
    assert note == f"1 train text read only in part: {tmp_path / 'a.jsonl'}:8 (79%)"
    model = weft.load(tmp_path / "model")
    short, long = model(["good film", LONG])
    assert (short.coverage, long.coverage) == (1.0, pytest.approx(MOST / len(LONG), abs=5e-3))
    assert model([LONG[:MOST]])[0].score == pytest.approx(long.score, abs=1e-6)


def test_the_default_is_a_book_or_so():
    assert Data().max_characters == DEFAULT_MAX_CHARACTERS == 100_000
    assert (
        inspect.signature(make_indexer).parameters["characters"].default == DEFAULT_MAX_CHARACTERS
    )
    with pytest.raises(
        UserError, match=r"data\.max_characters should be 0 \(no limit\) or more, got -1"
    ):
        validate(Data(max_characters=-1))


def test_character_limit_cuts_texts_unless_zero_or_a_token_limit_is_set(tmp_path):
    words = Word().train(iter(["a b c d"] * 3))
    text = "a b c d " * 20
    (row,) = Indexer(words, characters=0).rows([text])
    assert (len(row.ids), row.coverage) == (80, 1.0)
    (row,) = Indexer(words, characters=40).rows([text])
    assert (len(row.ids), row.coverage) == (20, 0.25)
    (row,) = Indexer(words, characters=40, limit=100).rows([text])  # a limit of its own
    assert (len(row.ids), row.coverage) == (80, 1.0)
    (row,) = Indexer(words, characters=40).rows([text], others=["a b"])
    assert row.coverage == pytest.approx(43 / 163)


@pytest.mark.parametrize("policy", ["head", "tail", "head+tail", "windows"])
def test_places_are_those_of_the_whole_text(policy):
    words = Word().train(iter(["a b c d"] * 3))
    text = " ".join("abcd"[i % 4] for i in range(100))
    (row,) = Indexer(words, characters=40, policy=policy).rows([text], spans=True)
    assert row.spans is not None
    found = [text[start:end] for start, end in row.spans.tolist()]
    assert [words.vocabulary[i] for i in row.ids.tolist()] == found
    assert row.spans[0, 0] == {"tail": len(text) - 39}.get(policy, 0)
    assert row.spans[-1, 1] == {"head": 39, "windows": 39}.get(policy, len(text))


def test_a_text_that_may_not_be_cut():
    assert shorten_text("a" * 7, 7, "error") == ("a" * 7, 0, 0)
    with pytest.raises(
        UserError, match=r"a\.txt:3 has 8 characters, the limit is 7\. Set data\.tr"
    ):
        shorten_text("a" * 8, 7, "error", "a.txt:3")


def test_a_text_of_many_words_is_tagged_in_stretches():
    words = Word().train(iter(["a b c d"] * 3))
    rows = list(Indexer(words).sentence_rows(["a b c d " * 5003]))
    assert [len(row.ids) for row in rows] == [10_000, 10_000, 12]
    assert np.concatenate([row.ids for row in rows]).shape == (20_012,)
