"""The recipes for taggers, small: each learns, is saved, and answers on plain text."""

import pytest

import weft
from tests.fixtures.tagged_files import columns, conllu
from weft.config import recipe

SHORT = {
    "tokenizer.min_count": 1, "train.epochs": 15, "train.batch_size": 8,
    "train.learning_rate": 0.02,
    "train.ema_decay": 0, "head.dropout": 0.0,
}  # fmt: skip
SMALL = {
    "tagger-window": {"encoder.hidden": 13},
    "tagger-cnn": {"encoder.hidden": 13},
    "tagger-transformer": {
        "encoder.hidden": 12,
        "encoder.feed_forward": 17,
        "train.learning_rate": 0.01,
    },
}


def trained(name, file, folder, **changes):
    embedders = [
        {**table, "width": 7} | ({"filters": [[2, 5]]} if "cnn" in table["kind"] else {})
        for table in recipe(name)["embedder"]
    ]
    values = {**SHORT, "embedder": embedders, **SMALL[name], "data.train": str(file), **changes}
    return weft.train(recipe(name).with_values(values, "test"), folder, quiet=True, device="cpu")


@pytest.mark.parametrize("name", SMALL)
def test_tags_of_plain_text(name, tmp_path):
    outcome = trained(name, conllu(tmp_path / "a.conllu"), tmp_path / "run")
    assert outcome.figures["dev"]["upos"].value == 1.0
    (answer,) = weft.load(tmp_path / "run", device="cpu")(["The dog sees the bee."])
    assert answer.value == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")


@pytest.mark.parametrize("name", SMALL)
def test_spans(name, tmp_path):
    outcome = trained(name, columns(tmp_path / "a.conll"), tmp_path / "run")
    assert outcome.figures["dev"]["f1"].value == 1.0
    (answer,) = outcome.predictor(["Bo Lee lives in Rome."])
    assert [span["text"] for span in answer.value] == ["Bo Lee", "Rome"]


def test_the_window_is_five_words_wide(tmp_path):
    outcome = trained(
        "tagger-window", conllu(tmp_path / "a.conllu"), tmp_path / "run", **{"train.epochs": 1}
    )
    model = outcome.predictor.engine.model
    assert model.encoder.receptive_field == 5
    assert len(model.encoder.layers) == 1
    states, _ = outcome.predictor.states("a b c d e f g h i")
    other, _ = outcome.predictor.states("a b c d e f g h X")
    same = (abs(states - other) < 1e-6).all(1)
    assert same.tolist() == [True] * 6 + [False] * 3
