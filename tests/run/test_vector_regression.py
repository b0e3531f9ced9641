"""Regression to a vector: labels in several columns or in a list, through every verb."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.command import command, ok
from weft.config import recipe
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.text.columns import Columns
from weft.text.read import read

WORDS = {"red": (1.0, 100.0), "blue": (-2.0, 130.0), "big": (0.5, 90.0), "old": (3.0, 120.0)}
NETWORK = {
    "embedder.width": 11, "train.epochs": 40, "train.learning_rate": 0.02, "tokenizer.min_count": 1,
    "train.patience": 0,
}  # fmt: skip


def rows(count=60, seed=3):
    draw = np.random.default_rng(seed)
    for _ in range(count):
        words = draw.choice(list(WORDS), draw.integers(1, 5)).tolist()
        yield " ".join(words), np.mean([WORDS[word] for word in words], axis=0).tolist()


def tsv(path, header="text\tmood\tprice\n", bad=()):
    lines = [f"{text}\t{a:.3f}\t{b:.3f}\n" for text, (a, b) in rows()]
    path.write_text(header + "".join([*lines, *bad]), "utf-8")
    return str(path)


def jsonl(path):
    lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in rows()]
    path.write_text("".join(lines), "utf-8")
    return str(path)


@pytest.mark.parametrize(("name", "least"), [("bag", 0.9), ("tfidf", 0.9), ("fasttext", 0.5)])
def test_columns_named_with_commas_are_one_vector(tmp_path, name, least):
    file = tsv(tmp_path / "train.tsv")
    values = {"data.train": file, "data.dev": file, "data.label": "mood,price",
              "task.kind": "regress", **(NETWORK if name == "bag" else {})}  # fmt: skip
    out = weft.train(recipe(name).with_values(values, "test"), tmp_path / "run", quiet=True)
    assert out.predictor.config["task"]["dimensions"] == 2
    assert out.figures["dev"]["pearson"].value > least
    assert {"pearson_1", "mse_2"} <= set(out.figures["dev"])
    again = load(tmp_path / "run")  # replays its recorded answers
    (answer,) = again(["red old"])
    assert isinstance(answer.value, tuple)
    assert len(answer.value) == 2
    assert answer.value == out.predictor(["red old"])[0].value


def test_file_without_header_and_a_list_are_read_alike(tmp_path):
    named = [e.label for e in read(tsv(tmp_path / "a.tsv"), columns=Columns(label="mood,price"))]
    placed = [
        e.label for e in read(tsv(tmp_path / "b.tsv", header=""), columns=Columns(label="1,2"))
    ]
    assert named == placed
    listed = [e.label for e in read(jsonl(tmp_path / "c.jsonl"))]
    np.testing.assert_allclose(np.array(listed, float), np.array(named, float), atol=1e-3)


def test_column_with_a_comma_in_its_name_is_one_column(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("text\ta,b\nred\t1.5\nblue\t2.5\n", "utf-8")
    assert [e.label for e in read(file, columns=Columns(label="a,b"))] == ["1.5", "2.5"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("red\t1.5\t\n", r"train\.tsv:62: label '' is not a finite number"),
        ("red\tx\t3\n", r"train\.tsv:62: label 'x' is not a finite number"),
    ],
)
def test_missing_or_wrong_number_names_the_line(tmp_path, bad, message):
    file = tsv(tmp_path / "train.tsv", bad=[bad])
    values = {"data.train": file, "data.label": "mood,price", "task.kind": "regress"}
    with pytest.raises(UserError, match=message):
        weft.train(recipe("tfidf").with_values(values, "test"), tmp_path / "run", quiet=True)


def test_lists_of_different_lengths_are_one_line(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"text": "a", "label": [1.5, 2]}\n{"text": "b", "label": [1.5]}\n', "utf-8")
    values = {"data.train": str(file), "task.kind": "regress"}
    with pytest.raises(UserError, match=r"train\.jsonl:2: 1 numbers .* where 2 are expected"):
        weft.train(recipe("tfidf").with_values(values, "test"), tmp_path / "run", quiet=True)


def test_verbs_take_vectors(tmp_path):
    train, model = tsv(tmp_path / "train.tsv"), tmp_path / "run"
    ok("train", "--task", "regress", "--recipe", "tfidf", "--train", train, "--label",
       "mood,price", "-o", model, "--quiet")  # fmt: skip
    assert len(ok("predict", model, "red old").out.split("\t")) == 2
    assert len(json.loads(ok("predict", model, "red old", "--json").out)["value"]) == 2
    assert "pearson_2" in ok("evaluate", model, train).out
    assert "weighed for number 2" in ok("explain", model, "red old", "--target", "2").out
    done = command("explain", model, "red old", "--target", "mood")
    assert "Name one by its place, 1 to 2" in done.err


def test_reloaded_model_has_the_metrics_of_training(tmp_path):
    file = jsonl(tmp_path / "train.jsonl")
    values = {"data.train": file, "data.dev": file, "task.kind": "regress", **NETWORK}
    out = weft.train(recipe("bag").with_values(values, "test"), tmp_path / "run", quiet=True)
    found = evaluate(load(tmp_path / "run"), read(file)).compute(resamples=0)
    for name, figure in out.figures["dev"].items():
        assert found[name].value == pytest.approx(figure.value, abs=1e-5)


def test_ensemble_averages_vectors(tmp_path):
    file = tsv(tmp_path / "train.tsv")
    for seed in (1, 2):
        values = {
            "data.train": file, "data.label": "mood,price", "task.kind": "regress",
            "train.seed": seed, **NETWORK,
        }  # fmt: skip
        weft.train(recipe("bag").with_values(values, "test"), tmp_path / f"{seed}", quiet=True)
    ok("ensemble", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "both")
    answers = [load(tmp_path / name)(["red old"])[0].value for name in ("1", "2", "both")]
    np.testing.assert_allclose(np.mean(answers[:2], axis=0), answers[2], rtol=1e-5)
