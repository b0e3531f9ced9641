"""Models trained with a margin loss: from files to answers, and the errors on the way."""

import json

import pytest

import weft
from weft.config import recipe
from weft.errors import UserError
from weft.predict import load

TEXTS = (("good film", "pos"), ("fine book", "pos"), ("bad film", "neg"), ("poor book", "neg"))
SMALL = {
    "embedder.width": 7, "train.epochs": 60, "train.learning_rate": 0.05, "train.batch_size": 4,
    "train.patience": 0, "tokenizer.min_count": 1,
}  # fmt: skip


def tsv(path, rows=TEXTS):
    path.write_text("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows), "utf-8")
    return str(path)


def settings(tmp_path, **changes):
    file = tsv(tmp_path / "train.tsv")
    return {"data.train": file, "data.dev": file, **SMALL, **changes}


@pytest.mark.parametrize("kind", ["margin", "margin-sum"])
def test_classifier_learns_by_margin_and_keeps_its_scale(tmp_path, kind):
    config = recipe("bag").with_values(settings(tmp_path, **{"task.loss": kind}), "test")
    out = weft.train(config, tmp_path / "run", quiet=True)
    assert out.figures["dev"]["accuracy"].value == 1
    again = load(tmp_path / "run")
    assert again.space.scale == out.predictor.space.scale != 1
    assert json.loads((tmp_path / "run/model/labels.json").read_text("utf-8"))["scale"] > 0
    assert [answer.value for answer in again(["good film", "poor book"])] == ["pos", "neg"]
    assert any("probabilities are of margins" in note for note in out.record["notes"])


def test_several_labels_learn_by_a_hinge_each(tmp_path):
    rows = [("good film", ["a", "b"]), ("fine book", ["b"]), ("bad film", ["a"]), ("so so", ["c"])]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows), "utf-8")
    changes = {"data.train": str(file), "data.dev": str(file), "task.loss": "margin"}
    config = recipe("bag").with_values(settings(tmp_path) | changes, "test")
    out = weft.train(config, tmp_path / "run", quiet=True)
    assert out.figures["dev"]["micro_f1"].value == 1
    assert set(load(tmp_path / "run")(["good film"])[0].value) == {"a", "b"}


@pytest.mark.parametrize("head", ["tags", "crf"])
def test_tagger_learns_by_margin(tmp_path, head):
    file = tmp_path / "train.conll"
    file.write_text("the\tDET\ndog\tNOUN\nruns\tVERB\n\na\tDET\ncat\tNOUN\n\n" * 3, "utf-8")
    changes = {
        "data.train": str(file), "data.dev": str(file), "task.loss": "margin", "head.kind": head,
        "encoder.hidden": 11, "encoder.dropout": 0.0, "embedder.0.dropout": 0.0,
        "embedder.0.word_dropout": 0.0, "embedder.1.dropout": 0.0, "head.dropout": 0.0,
        "train.epochs": 60, "train.learning_rate": 0.02, "train.patience": 0,
        "tokenizer.min_count": 1,
    }  # fmt: skip
    config = recipe("tagger-bilstm").with_values(changes, "test")
    out = weft.train(config, tmp_path / "run", quiet=True)
    assert out.figures["dev"]["tag"].value == 1
    assert any("not calibrated" in note for note in out.record["notes"])
    assert load(tmp_path / "run")(["the cat runs"])[0].value == ("DET", "NOUN", "VERB")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bag", {"task.label_smoothing": 0.1}, r"label_smoothing is for loss = 'cross-entropy'"),
        ("bag", {"task.loss": "hinge"}, r"'loss' should be one of 'cross-entropy', 'margin'"),
        ("bag", {"task.loss": "margin-sum", "task.multi_label": True}, r"for one label a text"),
        ("tfidf", {}, r"classic 'tfidf' has a loss of its own: classic.classifier = 'svm'"),
        ("fasttext", {}, r"classic 'fasttext' has a loss of its own\. Remove task.loss"),
        ("bag", {"head.kind": "logistic"}, r"The head 'logistic' cannot be trained with task.loss"),
    ],
)
def test_margin_where_it_does_not_fit_is_one_line(tmp_path, name, changes, message):
    own = {"data.train": tsv(tmp_path / "train.tsv"), "task.loss": "margin", **changes}
    with pytest.raises(UserError, match=message):
        weft.train(recipe(name).with_values(own, "test"), tmp_path / "run", quiet=True)
