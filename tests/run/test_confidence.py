"""Calibration, abstention, label sets and out-of-scope labels, from files to answers."""

import json
import random

import pytest
from typer.testing import CliRunner

import weft
from weft.cli.main import app
from weft.compare.trial import SplitSpec, Trial
from weft.config import recipe
from weft.errors import UserError
from weft.text.example import Example
from weft.text.read import read

WORDS = {
    "sport": "ball goal team match score coach",
    "food": "soup bread cheese salt dish oven",
    "music": "song chord drum tune voice choir",
}
OTHER = "tax moon cloud screw garden train lawyer zebra"
SMALL = {
    "embedder.width": 8, "train.epochs": 6, "train.learning_rate": 0.02, "tokenizer.min_count": 1,
    "head.dropout": 0.0,
}  # fmt: skip


def text(draw, label, purity):
    """Four words, this fraction of them of the label; out of scope, of no label."""
    if label == "oos":
        return " ".join(draw.choices(OTHER.split(), k=4))
    every = " ".join(WORDS.values()).split()
    return " ".join(
        draw.choice(WORDS[label].split() if draw.random() < purity else every) for _ in range(4)
    )


def file(path, rows, seed, outside=0, purity=0.75):
    draw = random.Random(seed)
    labels = [draw.choice(list(WORDS)) for _ in range(rows)] + ["oos"] * outside
    draw.shuffle(labels)
    lines = [f"{text(draw, label, purity)}\t{label}\n" for label in labels]
    path.write_text("text\tlabel\n" + "".join(lines), "utf-8")
    return str(path)


def files(folder, purity=0.75, **outside):
    sizes = {"train": 401, "dev": 307, "test": 503}
    return {
        f"data.{part}": file(folder / f"{part}.tsv", n, n, outside.get(part, 0), purity)
        for part, n in sizes.items()
    }


def train(folder, name, changes):
    own = SMALL if name == "bag" else {"classic.characters": []} if name == "tfidf" else {}
    config = recipe(name).with_values({**own, **changes}, "test")
    return weft.train(config, folder / name, quiet=True, device="cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("confidence")
    changes = files(folder, purity=0.64)
    for name in ("tfidf", "bag"):
        train(folder, name, changes)
    return folder


def examples(root):
    return list(read(root / "test.tsv"))


@pytest.mark.parametrize("name", ["tfidf", "bag"])
def test_promises_hold_for_new_texts(root, name):
    model = weft.load(root / name)
    texts, gold = zip(*((e.text, e.label) for e in examples(root)), strict=True)
    plain, answers = model(texts), model(texts, abstain_at=0.9, label_sets=0.9)
    assert {answer.abstained for answer in plain} == {None}
    answered = [(a.value, g) for a, g in zip(answers, gold, strict=True) if not a.abstained]
    assert 100 < len(answered) < len(texts)
    assert sum(value == g for value, g in answered) / len(answered) >= 0.9
    for before, after in zip(plain, answers, strict=True):
        assert (after.value is None) == bool(after.abstained)
        assert after.value in (None, before.value)
        assert before.value in after.label_set
    covered = [g in answer.label_set for answer, g in zip(answers, gold, strict=True)]
    assert 0.86 < sum(covered) / len(covered) < 0.97


def test_log_says_what_was_calibrated(root):
    log = (root / "tfidf" / "log.txt").read_text("utf-8")
    assert "temperature" in log
    assert "307 dev texts" in log


def test_predictions_hold_the_score_before_the_temperature(root):
    model = weft.load(root / "tfidf")
    assert model.space.scale != 1
    row = json.loads((root / "tfidf" / "predictions.jsonl").read_text("utf-8").split("\n")[0])
    assert row["uncalibrated"] != row["score"]
    scores = model.engine.predict([row["text"]]).scores.astype(float)
    raw = weft.Predictor(model.engine, model.task, type(model.space)(model.space.entries), {})
    assert raw.task.answers(scores, raw.space)[0].score == pytest.approx(row["uncalibrated"])


def test_evaluate_measures_what_is_answered(root):
    model = weft.load(root / "tfidf")
    found = weft.evaluate(model, examples(root), abstain_at=0.9).compute()
    answers = model([e.text for e in examples(root)], abstain_at=0.9)
    right = [a.value == e.label for a, e in zip(answers, examples(root), strict=True)
             if not a.abstained]  # fmt: skip
    assert found["answered"].value == pytest.approx(len(right) / 503)
    assert found["selective_accuracy"].value == pytest.approx(sum(right) / len(right))
    assert found["selective_accuracy"].n == len(right)
    assert found["accuracy"].value < found["selective_accuracy"].value


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_predict_and_evaluate_take_promises(root):
    model = root / "tfidf"
    lines = (model / "predictions.jsonl").read_text("utf-8").splitlines()
    doubtful = min(map(json.loads, lines), key=lambda row: row["score"])["text"]
    texts = ["ball goal team match", doubtful]
    said = run("predict", model, *texts, "--abstain-at", 0.9, "--label-sets", 0.9, "--json")
    first, second = (json.loads(line) for line in said.stdout.splitlines())
    assert (first["value"], first["abstained"]) == ("sport", False)
    assert (second["value"], second["abstained"]) == (None, True)
    assert first["label_set"] == ["sport"]
    assert second["label_set"]
    assert "abstained from 1 of 2 texts" in said.stderr
    shown = run("predict", model, *texts, "--abstain-at", 0.9)
    assert shown.stdout.splitlines()[1].startswith("(abstained)\t")
    measured = run("evaluate", model, root / "test.tsv", "--abstain-at", 0.9, "--json")
    assert json.loads(measured.stdout)["selective_accuracy"]["value"] >= 0.9
    page = root / "page.html"
    assert run("evaluate", model, root / "test.tsv", "--report", page).exit_code == 0
    assert "before the temperature" in page.read_text("utf-8")
    bad = run("predict", model, "ball", "--abstain-at", 0.9999)
    assert bad.exit_code != 0


def test_leaderboard_has_the_coverage_at_95(root):
    rows = [json.loads(line) for line in open(root / "tfidf" / "predictions.jsonl")]
    rows.sort(key=lambda row: -row["score"])
    right = [row["value"] == row["label"] for row in rows]
    by_hand = max(k for k in range(1, 504) if sum(right[:k]) >= 0.95 * k) / 503
    trial = Trial("tfidf", 1, None, weft.Config({}), SplitSpec(""), root / "tfidf", "")
    found = trial._coverage_at(0.95)
    assert found.value == pytest.approx(by_hand, abs=2 / 503)  # equals are answered together
    assert found.low <= found.value <= found.high


def test_promises_need_dev_texts_and_a_classifier(root, tmp_path):
    model = weft.load(root / "tfidf")
    with pytest.raises(UserError, match="takes at least 2995"):
        model(["ball"], abstain_at=0.999)
    joined = weft.ensemble([root / "tfidf", root / "bag"], tmp_path / "both")
    with pytest.raises(UserError, match="trained without a dev part, or joined"):
        joined(["ball"], abstain_at=0.9)
    numbers = tmp_path / "numbers.tsv"
    numbers.write_text("text\tlabel\n" + "".join(f"ball {i}\t{i}\n" for i in range(60)), "utf-8")
    config = recipe("tfidf").with_values(
        {"data.train": str(numbers), "task.kind": "regress"}, "test"
    )
    result = weft.train(config, tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match=r"label_sets is for classifiers.*'regress'"):
        result.predictor(["ball"], label_sets=0.9)


def test_a_trained_ensemble_is_calibrated_on_dev(tmp_path):
    changes = files(tmp_path) | {"train.ensemble": 2}
    result = train(tmp_path, "bag", changes)
    again = weft.load(tmp_path / "bag")
    assert again.space == result.predictor.space
    assert again.space.confidence is not None
    before, after = (one(["ball goal soup team"])[0] for one in (result.predictor, again))
    assert after.scores == pytest.approx(before.scores)
    assert not again(["ball goal team ball"], abstain_at=0.9)[0].abstained


def test_without_dev_confidences_stay_as_they_are(tmp_path):
    changes = {"data.train": file(tmp_path / "train.tsv", 101, 1), "data.dev_fraction": 0.0}
    result = train(tmp_path, "tfidf", changes)
    assert (result.predictor.space.scale, result.predictor.space.confidence) == (1, None)
    assert "not calibrated: no dev texts" in (tmp_path / "tfidf/log.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "Upgrade Weft"),
        ({"errors": [-1] * 5}, "confidence table is damaged"),
        ({"n": 10**12}, "confidence table is damaged"),
    ],
)
def test_a_damaged_table_is_one_line_that_names_the_file(root, tmp_path, change, message):
    model = weft.load(root / "tfidf")
    model.save(tmp_path / "model", ["ball goal"])
    path = tmp_path / "model" / "labels.json"
    saved = json.loads(path.read_text("utf-8"))
    saved["confidence"] |= change
    path.write_text(json.dumps(saved), "utf-8")
    with pytest.raises(UserError, match=message) as error:
        weft.load(tmp_path / "model")
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["tfidf", "bag", "fasttext"])
@pytest.mark.parametrize("seen", [0, 40])
def test_texts_out_of_scope_are_answered_as_such(tmp_path, name, seen):
    """Whether training has texts out of scope or only dev does."""
    changes = files(tmp_path, train=seen, dev=60, test=60) | {"data.out_of_scope": "oos"}
    result = train(tmp_path, name, changes)
    figures = result.figures["test"]
    assert figures["out_of_scope_recall"].value > 0.8
    assert figures["out_of_scope_precision"].value > 0.8
    assert figures["in_scope_accuracy"].value > 0.75
    model = weft.load(tmp_path / name)
    assert model(["moon zebra tax cloud"])[0].value == "oos"
    assert model(["ball goal team match"], abstain_at=0.9)[0].value == "sport"
    assert ("oos" in model.labels) == bool(seen)
    rows = [json.loads(line) for line in open(tmp_path / name / "predictions.jsonl")]
    outside = [row for row in rows if row["label"] == "oos"]
    recall = sum(row["value"] == "oos" for row in outside) / 60
    assert recall == pytest.approx(figures["out_of_scope_recall"].value)
    sets = model([e.text for e in examples(tmp_path)], label_sets=0.9)
    gold = [e.label for e in examples(tmp_path)]
    assert sum(g in a.label_set for g, a in zip(gold, sets, strict=True)) / len(gold) > 0.86


def test_log_says_that_dev_has_no_text_out_of_scope(tmp_path):
    result = train(tmp_path, "tfidf", files(tmp_path) | {"data.out_of_scope": "oos"})
    assert result.predictor.space.rejection == 0
    assert "no threshold for 'oos'" in (tmp_path / "tfidf/log.txt").read_text("utf-8")


def test_out_of_scope_errors(tmp_path):
    two = tmp_path / "two.tsv"
    two.write_text("text\tlabel\n" + "ball goal\tsport\nsoup salt\tfood\n" * 30, "utf-8")
    with pytest.raises(UserError, match="fewer than two labels"):
        train(tmp_path, "tfidf", {"data.train": str(two), "data.out_of_scope": "food"})
    several = files(tmp_path) | {"data.out_of_scope": "oos", "task.multi_label": True}
    with pytest.raises(UserError, match="one label a text"):
        train(tmp_path, "tfidf", several)
    unnamed = files(tmp_path, dev=10)
    with pytest.raises(UserError, match="label 'oos' was not seen"):
        train(tmp_path, "tfidf", unnamed)


def test_rows_in_memory_may_be_out_of_scope(root):
    model = weft.load(root / "tfidf")
    with pytest.raises(UserError, match="not seen in training"):
        weft.evaluate(model, [Example("moon", "oos")])
