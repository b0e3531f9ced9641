"""Coverage: the fraction of the input a model tells apart; cut, unknown, clipped words count."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures import small
from tests.fixtures.command import ok
from tests.fixtures.tagged_files import columns
from weft.config import recipe

LONG = "w" * 25  # two words that begin so are one to an embedder that reads 25 bytes


def trained(name, file, folder, **changes):
    values = {
        "data.train": str(file), "train.epochs": 1, "train.batch_size": 8, "train.ema_decay": 0,
        "train.threads": 1, **changes,
    }  # fmt: skip
    return weft.train(recipe(name).with_values(values, "test"), folder, quiet=True, device="cpu")


@pytest.mark.parametrize(
    "embedder",
    [
        {"kind": "character-cnn", "width": 5, "max_bytes": 25},
        [{"kind": "lookup", "width": 7}, {"kind": "character-cnn", "width": 5, "max_bytes": 25}],
    ],
)
def test_words_that_are_cut_are_not_covered(tmp_path, embedder):
    changes = {"embedder": embedder, "tokenizer.min_count": 1}
    model = trained("bag", small.file(tmp_path), tmp_path / "run", **changes).predictor
    one, two, short = model([f"good {LONG}a", f"good {LONG}b", "good xyzzy"])
    assert one.scores == two.scores  # the model cannot tell them apart, and says so:
    assert (one.coverage, two.coverage) == (0.5, 0.5)
    assert short.coverage == 1.0  # spelled out, an unknown word is read


def test_unknown_words_are_not_covered(tmp_path):
    file = small.file(tmp_path)
    outcome = trained("bag", file, tmp_path / "run", **{"tokenizer.min_count": 1})
    seen = file.read_text("utf-8").split("\n")[0].split("\t")[-1].split()[0]
    answers = outcome.predictor([f"{seen} xyzzy", f"{seen} plugh", seen, "xyzzy plugh"])
    assert answers[0].scores == answers[1].scores
    assert [a.coverage for a in answers] == [0.5, 0.5, 1.0, 0.0]
    (tmp_path / "new.tsv").write_text(
        f"{outcome.predictor.space.entries[0]}\t{seen} xyzzy\n", "utf-8"
    )
    done = ok("evaluate", tmp_path / "run", tmp_path / "new.tsv")
    assert "1 text with words that the model does not tell apart: " in done.err
    assert "(50% covered)" in done.err
    told = ok("predict", tmp_path / "run", "--json", stdin=f"{seen} xyzzy\n")
    assert json.loads(told.out)["coverage"] == 0.5
    assert "read only in part" in told.err


def test_training_notes_count_texts_with_unknown_words(tmp_path):
    outcome = trained("bag", small.file(tmp_path), tmp_path / "run", **{"tokenizer.min_count": 3})
    notes = " ".join(outcome.record["notes"])
    assert "train texts with words that the model does not tell apart" in notes


def test_a_sentence_of_unknown_words_still_gets_its_tags(tmp_path):
    pytest.importorskip("torch")
    changes = {
        "embedder": {"kind": "lookup", "width": 7},
        "encoder.hidden": 5,
        "tokenizer.min_count": 1,
    }
    model = trained("tagger-bilstm", columns(tmp_path / "a.conll"), tmp_path / "run", **changes)
    (answer,) = model.predictor(["Xyzzy plugh"])
    assert answer.coverage == 0.0
    assert len(answer.structure.words) == 2


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("tfidf", {"classic.words": [1, 2], "classic.characters": []}, [0.5, 1.0, 0.0, 0.0]),
        ("tfidf", {"classic.words": [2, 2], "classic.characters": []}, [0.0, 0.0, 0.0, 0.0]),
        ("fasttext", {"classic.epochs": 1}, [0.5, 1.0, 0.0, 0.0]),
        (
            "fasttext",
            {"classic.epochs": 1, "classic.min_n": 2, "classic.max_n": 3},
            [1, 1, 1, 0],
        ),
    ],
)
def test_classic_models_tell_what_they_know(tmp_path, name, settings, expected):
    file = small.file(tmp_path)
    values = {"data.train": str(file), **settings}
    model = weft.train(recipe(name).with_values(values, "test"), tmp_path / "run", quiet=True)
    seen = file.read_text("utf-8").split("\n")[0].split("\t")[-1].split()[0]
    texts = [f"{seen} xyzzy", seen, "xyzzy plugh", " "]
    np.testing.assert_allclose([a.coverage for a in model.predictor(texts)], expected)


def test_language_models_tell_what_they_know(tmp_path):
    (tmp_path / "a.txt").write_text("the dog runs home\n" * 20, "utf-8")
    values = {"data.train": str(tmp_path / "a.txt")}
    model = weft.train(
        recipe("kneser-ney").with_values(values, "test"), tmp_path / "run", quiet=True
    )
    known, half = model.predictor(["the dog", "the xyzzy"])
    assert (known.coverage, half.coverage) == (1.0, 0.5)
