"""Decision thresholds with a goal: tuned on dev, saved, applied, shown, and changed afterwards."""

import json
import random

import pytest
from typer.testing import CliRunner

import weft
from tests.fixtures.small import SMALL
from weft import config
from weft.cli.main import app
from weft.errors import UserError
from weft.predict.tuning import tune_threshold
from weft.run import Splits
from weft.text.example import Example


def noisy(count, seed, several=False):
    """Texts of two classes, the rare one every fifth, that words tell apart only in part."""
    pick = random.Random(seed)
    out = []
    for i in range(count):
        rare = i % 5 == 0
        odd = pick.random() < (0.8 if rare else 0.15)
        text = f"{'odd' if odd else 'plain'} text {pick.randrange(9)}"
        label = ("rare",) if rare else () if i % 2 else ("other",)
        one = label if several else "rare" if rare else "common"
        out.append(Example(text, one, file="f.tsv", line=i + 1))
    return out


def splits(several=False):
    parts = [noisy(200, seed, several) for seed in (1, 2, 3)]
    return Splits(*(lambda rows=rows: iter(rows) for rows in parts))


def made(name="tfidf", **changes):
    sizes = {"embedder.width": 7, "train.learning_rate": 0.02, **SMALL} if name == "bag" else {}
    return config.recipe(name).with_values({**sizes, **changes}, "test")


def train(folder, name="tfidf", several=False, **changes):
    return weft.train(made(name, **changes), folder, splits=splits(several), quiet=True)


@pytest.mark.parametrize("name", ["tfidf", "bag"])
def test_a_recall_is_reached_on_dev_and_kept(name, tmp_path):
    out = train(tmp_path / "run", name, **{"task.threshold_for": "recall=0.75"})
    space = out.predictor.space
    assert space.positive == "rare"
    dev, test = out.figures["dev"], out.figures["test"]
    assert dev["recall"].value == pytest.approx(space.reached.recall)
    assert dev["recall"].value >= 0.75
    assert dev["precision"].value == pytest.approx(space.reached.precision)
    assert {"precision", "recall", "f1", "accuracy", "macro_f1"} <= set(test)
    again = weft.load(tmp_path / "run")
    assert again.space == space
    texts = [example.text for example in noisy(50, 7)]
    for answer in again(texts):
        probability = answer.scores[space.index["rare"]]
        assert (answer.value == "rare") is (probability >= space.threshold)
        assert answer.score == pytest.approx(answer.scores[space.index[answer.value]])
    (note,) = (note for note in out.record["notes"] if "predicted from" in note)
    assert note.startswith("'rare' (the rarer class) is predicted from a probability of")
    assert "for recall=0.75: precision" in note
    assert "40 of them" in note


def test_without_a_goal_the_more_probable_label_wins(tmp_path):
    out = train(tmp_path / "run")
    assert out.predictor.space.positive == ""
    assert not any("predicted from" in note for note in out.record["notes"])
    assert "recall" not in out.figures["test"]


def test_another_class_can_be_positive(tmp_path):
    goal = {"task.threshold_for": "precision=0.9", "task.positive": "common"}
    out = train(tmp_path / "run", **goal)
    assert out.predictor.space.positive == "common"
    assert out.figures["dev"]["precision"].value >= 0.9
    assert any(note.startswith("'common' is predicted") for note in out.record["notes"])


def test_a_precision_out_of_reach_is_said(tmp_path):
    out = train(tmp_path / "run", **{"task.threshold_for": "precision=1"})
    (note,) = (note for note in out.record["notes"] if "predicted from" in note)
    assert "precision=1 cannot be reached on dev, this is the most; precision 0." in note


def test_several_labels_share_a_threshold(tmp_path):
    high, low = (
        train(tmp_path / goal, several=True, **{"task.threshold_for": goal})
        for goal in ("recall=0.95", "precision=0.7")
    )
    assert high.figures["dev"]["micro_recall"].value >= 0.95
    assert low.figures["dev"]["micro_precision"].value >= 0.7
    assert high.predictor.space.threshold < low.predictor.space.threshold
    assert any(n.startswith("labels are predicted from") for n in high.record["notes"])


def test_an_ensemble_tunes_its_own(tmp_path):
    goal = {"task.threshold_for": "recall=0.75", "train.ensemble": 2}
    out = train(tmp_path / "run", "bag", **goal)
    assert out.predictor.space.reached.recall >= 0.75
    assert out.figures["dev"]["recall"].value >= 0.75
    weft.load(tmp_path / "run")


@pytest.mark.parametrize("name", ["tfidf", "bag"])
def test_a_trained_model_gets_another_threshold(name, tmp_path):
    train(tmp_path / "run", name)
    dev = tmp_path / "dev.tsv"
    rows = [f"{e.text}\t{e.label}\n" for e in noisy(200, 2)]
    dev.write_text("text\tlabel\n" + "".join(rows), "utf-8")
    target = tmp_path / "found"
    command = ["threshold", str(tmp_path / "run"), str(dev), "-o", str(target)]
    done = CliRunner().invoke(app, [*command, "--for", "recall=0.75"])
    assert done.exit_code == 0, done.output
    assert "'rare' is predicted from a probability of" in done.output
    model = weft.load(target)  # replays the answers of the new threshold
    assert model.space.positive == "rare"
    measured = weft.evaluate(model, noisy(200, 2)).compute()
    assert measured["recall"].value >= 0.75
    saved = json.loads((target / "record.json").read_text("utf-8"))
    assert "for recall=0.75" in saved["threshold"]
    shown = CliRunner().invoke(app, ["evaluate", str(target), str(dev)])
    assert "note: 'rare' is predicted from" in shown.output
    again = CliRunner().invoke(app, [*command, "--for", "f1"])
    assert "exists. Pass --overwrite" in str(again.exception) + again.output


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.threshold_for": "recall"}, r"'recall' is no goal .* recall=NUMBER"),
        ({"task.positive": "rare"}, r"needs a threshold: set task\.threshold_for"),
        (
            {"task.threshold_for": "f1", "task.positive": "rar"},
            r"rar.*Did you mean 'rare'",
        ),
        (
            {"task.threshold_for": "f1", "task.positive": "a", "task.multi_label": True},
            r"needs one label a text",
        ),
    ],
)
def test_messages(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        train(tmp_path / "run", **changes)


def test_three_classes_have_no_threshold(tmp_path):
    rows = [*noisy(20, 1), Example("x", "third", file="f.tsv", line=99)]
    with pytest.raises(UserError, match=r"between two labels.* one of 3 labels"):
        weft.train(
            made(**{"task.threshold_for": "f1"}), tmp_path / "run",
            splits=Splits(lambda: iter(rows), lambda: iter(rows), None), quiet=True,
        )  # fmt: skip


def test_a_goal_needs_dev(tmp_path):
    rows = noisy(20, 1)
    with pytest.raises(UserError, match="tuned on dev, and there is no dev part"):
        weft.train(
            made(**{"task.threshold_for": "f1"}), tmp_path / "run",
            splits=Splits(lambda: iter(rows), None, None), quiet=True,
        )  # fmt: skip


def test_what_a_threshold_is_not_for(tmp_path):
    out = train(tmp_path / "run")
    with pytest.raises(UserError, match=r"precision=1 cannot be reached .* at most precision 0\."):
        tune_threshold(out.predictor, lambda: iter(noisy(200, 2)), "precision=1")
    common = [e for e in noisy(50, 2) if e.label == "common"]
    with pytest.raises(UserError, match="No example has the label"):
        tune_threshold(out.predictor, lambda: iter(common), "f1", positive="rare")


def test_damaged_labels_are_refused(tmp_path):
    train(tmp_path / "run", **{"task.threshold_for": "f1"})
    path = tmp_path / "run/model/labels.json"
    good = json.loads(path.read_text("utf-8"))
    for change in ({"positive": "third"}, {"reached": {"value": "x"}}, {"reached": 3}):
        path.write_text(json.dumps(good | change), "utf-8")
        with pytest.raises(UserError, match="saved labels are damaged"):
            weft.load(tmp_path / "run")
