"""Sources besides plain text, and words that are copied: small trainings, saved and loaded."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.data_to_text_runs import SMALL, oov_word_pairs, restaurants, trained
from weft.config import recipe
from weft.errors import UserError
from weft.explain.run import run_explain
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.run.data import Data, example_source
from weft.text.example import Example


def test_unknown_words_are_copied(tmp_path):
    out = trained("seq2seq-copy", tmp_path, oov_word_pairs(tmp_path))
    assert out.figures["dev"]["exact_match"].value > 0.9
    said = load(tmp_path / "run/model", device="cpu")(["zuzaza likes vivovu"])
    assert said[0].value == "it is vivovu that zuzaza likes"


def test_without_copying_unknown_words_are_lost(tmp_path):
    changes = {"task.pointer": False, "task.coverage": 0.0}
    out = trained("seq2seq-copy", tmp_path, {**oov_word_pairs(tmp_path), **changes})
    assert out.figures["dev"]["exact_match"].value == 0
    assert out.figures["dev"]["bleu"].value < 40


def test_truncated_source_words_are_not_copied(tmp_path):
    values = {**oov_word_pairs(tmp_path, 40), "data.max_tokens": 2, "train.epochs": 1}
    out = trained("seq2seq-copy", tmp_path, values)
    assert any("texts read only in part" in note for note in out.record["notes"])
    lines = (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()
    losses = [event["loss"] for event in map(json.loads, lines) if "loss" in event]
    assert max(losses) < 10  # a word that is not there would cost everything


def test_windows_are_refused(tmp_path):
    values = {**oov_word_pairs(tmp_path, 20), "data.max_tokens": 2, "data.truncate": "windows"}
    with pytest.raises(UserError, match=r'data\.truncate = "windows" would write a text for every'):
        trained("seq2seq-copy", tmp_path, values)


def test_records_with_hidden_values(tmp_path):
    values = {**restaurants(tmp_path), "task.delexicalise": ["name"]}
    out = trained("seq2seq-records", tmp_path, values)
    dev = out.figures["dev"]
    assert dev["bleu_lower"].n == len(set(dev_records(tmp_path)))  # each record once
    assert dev["slot_error"].value < 0.1
    predictor = load(tmp_path / "run/model", device="cpu")
    record = {"name": "Zork Inn", "food": "tea"}
    texts = ["food[tea], name[Zork Inn]", json.dumps(record), record]
    for answer in predictor(texts):
        assert "Zork Inn" in answer.value
        assert "tea" in answer.value
    with pytest.raises(UserError, match=r"text 2: unknown slot 'drink'\. .*Known: food, name"):
        predictor([texts[0], "drink[tea]"])
    with pytest.raises(UserError, match=r"Text 1 is a record that JSON cannot hold: .*set"):
        predictor([{"food": {"tea"}}])
    data = Data(text="mr", label="ref")
    assert evaluate(predictor, example_source(data, values["data.train"])()).n == 120


def test_the_model_with_the_lowest_slot_error_is_kept(tmp_path):
    values = {**restaurants(tmp_path), "task.delexicalise": ["name"], "train.metric": "slot_error"}
    out = trained("seq2seq-records", tmp_path, values)
    lines = (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()
    events = [event for event in map(json.loads, lines) if "dev_slot_error" in event]
    errors = [event["dev_slot_error"] for event in events]
    assert errors[0] > min(errors)  # it falls in training
    assert [event["dev_slot_error"] for event in events if event["best"]][-1] == min(errors)
    assert out.figures["dev"]["slot_error"].value < errors[0]


def dev_records(folder):
    from weft.run.split import from_files

    splits = from_files(Data(train=str(folder / "train.csv"), text="mr", label="ref"))
    return [example.text for example in splits.dev()]


def test_columns_as_records(tmp_path):
    rows = ["name\tfood\tsaid"] + [f"B{i}\tpie\tB{i} has pie" for i in range(40)]
    (tmp_path / "a.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    values = {
        "data.train": str(tmp_path / "a.tsv"), "data.label": "said", "data.fields": ["*"],
        "train.epochs": 1, "task.metrics": ["bleu", "slots"],
    }  # fmt: skip
    out = trained("seq2seq-records", tmp_path, values)
    assert out.predictor.space.slots == ("name", "food")
    assert "⟨food⟩" in out.predictor.engine.indexer.tokenizer.vocabulary


def test_a_list_of_references_is_learned_and_measured(tmp_path):
    rows = [
        {"source": [f"w{i} .", "end ."], "target": [f"w{i} one", f"w{i} two"]} for i in range(40)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    values = {
        "data.train": str(tmp_path / "a.jsonl"), "data.text": "source", "data.label": "target",
        "train.epochs": 1, "tokenizer": {"kind": "word"},
    }  # fmt: skip
    out = trained("seq2seq-attention", tmp_path, values)
    lines = (tmp_path / "run/predictions.jsonl").read_text("utf-8").splitlines()
    assert len(json.loads(lines[0])["label"]) == 2
    assert json.loads(lines[0])["text"].endswith(" . end .")
    measure = evaluate(
        out.predictor,
        example_source(Data(text="source", label="target"), str(tmp_path / "a.jsonl"))(),
    )
    assert "nrefs:2" in measure.signatures[0]  # fmt: skip
    known = out.predictor.space.tokenizer.vocabulary
    assert {"one", "two"} <= set(known)


def test_several_parallel_files_are_several_references(tmp_path):
    for ending, word in (("src", "a"), ("r0", "x"), ("r1", "y")):
        (tmp_path / f"a.{ending}").write_text(f"{word} b\n" * 3, "utf-8")
    data = Data(target="r0", references=("r1",))
    assert [e.label for e in example_source(data, str(tmp_path / "a.src"))()] == [
        ("x b", "y b")
    ] * 3
    (tmp_path / "a.r1").write_text("y b\n", "utf-8")
    with pytest.raises(UserError, match=r"a\.r1 ends after line 1, but .*a\.src continues"):
        list(example_source(data, str(tmp_path / "a.src"))())


def bright(folder, count=150):
    """Rows of vectors, each bright in one of three places; the words say where."""
    draw = np.random.default_rng(7)
    rows = []
    for i in range(count):
        places = draw.integers(0, 3, int(draw.integers(1, 4)))
        found = np.eye(3)[places] + draw.normal(0, 0.1, (len(places), 3))
        np.save(folder / f"{i}.npy", found.astype(np.float32))
        words = " ".join(["left", "middle", "right"][place] for place in places)
        rows.append(json.dumps({"text": f"{i}.npy", "target": words}) + "\n")
    (folder / "a.jsonl").write_text("".join(rows), "utf-8")
    return {"data.train": str(folder / "a.jsonl"), "train.epochs": 8, "train.learning_rate": 0.02}


def test_vectors_are_read(tmp_path):
    out = trained("seq2seq-vectors", tmp_path, bright(tmp_path))
    assert out.figures["dev"]["exact_match"].value > 0.9
    predictor = load(tmp_path / "run/model", device="cpu")
    assert predictor.config["embedder"]["features"] == 3
    assert (tmp_path / "run/model/golden.jsonl").read_text("utf-8").count("[[") == 5
    given = np.eye(3)[[2, 0]]
    for one in (given, given.tolist().__repr__()):
        assert predictor([one])[0].value == "right left"
        assert weft.generate(predictor, [one])[0][0].text == "right left"
    with pytest.raises(UserError, match="Text 2 is int, not a string"):
        weft.generate(predictor, [given, 3])
    np.savez(tmp_path / "two.npz", a=given, b=np.eye(3)[[1]])
    from tests.fixtures.command import ok

    said = ok("predict", tmp_path / "run", tmp_path / "two.npz", "--device", "cpu").lines
    assert [line.split("\t")[0] for line in said] == ["right left", "middle"]
    shown = ok("explain", tmp_path / "run", f"{tmp_path}/two.npz:a", "--device", "cpu").lines
    assert shown[0].startswith("right left")
    looked = next(line for line in shown if line.startswith("right  "))
    assert looked.split()[-1] in ("1", "2")  # the number of a vector
    (page,) = [run_explain(predictor, [Example(f"{tmp_path}/two.npz:a")], method="occlusion")]
    assert page
    with pytest.raises(UserError, match="text 2: vectors of 4 numbers; this model reads"):
        predictor([given, np.ones((2, 4))])
    with pytest.raises(UserError, match="text 1: vector 1 of the matrix is not finite"):
        predictor([np.full((1, 3), np.nan)])


def test_made_pictures_can_be_trained_on(tmp_path, monkeypatch):
    from tests.fixtures.command import ok

    monkeypatch.setattr("weft.text.synthetic.digits.SPLITS", {"train": 23, "dev": 5, "test": 7})
    said = ok("demo", "--digits", tmp_path / "digits").lines
    assert said[0].startswith("train.jsonl  names matrices of train.npz")
    asked = said[-1].removeprefix("next: weft ").replace("runs/digits", str(tmp_path / "run"))
    ok(*asked.split(), "--set", "train.epochs=1", "--device", "cpu")
    figures = ok("evaluate", tmp_path / "run", tmp_path / "digits/test.jsonl", "--device", "cpu")
    assert "exact_match" in figures.out
    assert "n=7" in figures.out


def test_vectors_stand_alone(tmp_path):
    values = {**bright(tmp_path, 20), "embedder": [{"kind": "vectors"}, {"kind": "lookup"}]}
    values = {k: v for k, v in values.items() if not k.startswith("embedder.")}
    changes = {k: v for k, v in {**SMALL, **values}.items() if not k.startswith("embedder.")}
    config = recipe("seq2seq-vectors").with_values(changes, "test")
    with pytest.raises(UserError, match="embedder 'vectors'"):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")
