"""train.balance from files to models: every recipe with classes, resuming, and the messages."""

import json
import shutil

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.recipe_runs import recipe_cases, train_tiny
from tests.fixtures.small import SMALL, killed
from tests.fixtures.weights import digest
from weft import config
from weft.errors import UserError
from weft.predict import load
from weft.run import Splits
from weft.run.train import resolve_config
from weft.tasks.task import build_task
from weft.text.example import Example
from weft.train.class_balance import check_balance

WAYS = ("weights", "sampling", "focal")
WITH_CLASSES = ("sentences", "classify", "pair-classify", "tag", "nodes")
REFUSED = {
    ("tfidf", "focal"), ("tfidf-pair", "focal"), ("crf", "focal"), ("crf", "weights"),
    ("tagger-bilstm-crf", "focal"), ("tagger-window", "focal"),
}  # fmt: skip
# One of each kind of task, head and classic model.
TRAINED = ("cnn", "esim", "tagger-bilstm", "tagger-bilstm-crf", "tree-rnn", "tfidf", "tfidf-pair",
           "fasttext", "crf")  # fmt: skip


def uneven(common=60, rare=3, third=0):
    """Texts of two classes, or three, of very different sizes."""
    kinds = ((common, "common", "plain usual"), (rare, "rare", "odd strange"), (third, "t", "x y"))
    return [
        Example(f"{words.split()[i % 2]} text {i % 7}", label, file="f.tsv", line=i + 1)
        for count, label, words in kinds
        for i in range(count)
    ]


def splits(rows):
    return Splits(lambda: iter(rows), lambda: iter(rows), lambda: iter(rows))


def small(name, **changes):
    sizes = {"embedder.width": 7} if name == "bag" else {}
    return config.recipe(name).with_values({**SMALL, **sizes, **changes}, "test")


def with_balance(name, way):
    found = config.recipe(name)
    if start := found.sections.get("recipe", {}).get("pretrained"):
        pytest.skip(f"needs a checkpoint of {start}")
    full = resolve_config(found.with_values({"train.balance": way}, "test"))
    return full, build_task(full)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "task"), recipe_cases())
def test_every_recipe_takes_or_refuses_it(name, task, way):
    full, built = with_balance(name, way)
    if task != full["task"]["kind"]:
        pytest.skip("a task without a recipe of its own")
    if task in WITH_CLASSES and (name, way) not in REFUSED:
        check_balance(full, built)
        return
    with pytest.raises(UserError, match=r"train\.balance") as raised:
        check_balance(full, built)
    told = str(raised.value)
    assert "has none" in told if task not in WITH_CLASSES else "Set train.balance to" in told


@pytest.mark.parametrize("name", TRAINED)
def test_models_of_every_kind_train_with_it(name, tmp_path):
    task = config.recipe(name)["task"].get("kind", "classify")
    for way in WAYS:
        if (name, way) in REFUSED:
            continue
        folder = tmp_path / way
        folder.mkdir()
        changes = {"train.balance": way, "train.focal_gamma": 1.5}
        predictor, _ = train_tiny(name, task, folder, {}, changes)
        load(folder / "run")  # replays the recorded answers
        log = (folder / "run/log.txt").read_text("utf-8")
        assert "classic" in predictor.config or "balance: " in log
        assert "changes nothing" not in log


@pytest.mark.parametrize("name", ["bag", "fasttext", "tfidf"])
@pytest.mark.parametrize("way", ["weights", "sampling"])
def test_a_rare_class_is_found(name, way, tmp_path):
    # The same text with both labels: its probability goes from 2 in 102 to one half.
    labels = ["common"] * 100 + ["rare"] * 2
    rows = [Example("a text", label, file="f.tsv", line=i) for i, label in enumerate(labels, 1)]
    whole = {"train.learning_rate": 0.05, "train.batch_size": 102, "train.epochs": 30}
    fast = whole if name == "bag" else {}
    plain, balanced = (
        weft.train(
            small(name, **fast, **{"train.balance": kind, "train.metric": "macro_f1"}),
            tmp_path / kind, splits=Splits(lambda: iter(rows), None, None), quiet=True,
        )
        for kind in ("none", way)
    )  # fmt: skip
    index = balanced.predictor.space.index["rare"]
    before, after = (out.predictor(["a text"])[0].scores[index] for out in (plain, balanced))
    assert before < 0.2
    assert 0.35 < after < 0.65


def test_class_weights_of_scikit_learn_and_naive_bayes():
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.utils.class_weight import compute_sample_weight

    from weft.classic.linear.sklearn_fit import fit_classes

    random = np.random.default_rng(1)
    rows, gold = random.random((40, 7)), (np.arange(40) % 9 == 0).astype(int)
    ((weights, bias),) = fit_classes("bayes", rows, gold, 2, [2.0], 0, balanced=True)
    model = MultinomialNB(alpha=0.5)
    model.fit(rows, gold, sample_weight=compute_sample_weight("balanced", gold))
    expected = np.diff(model.predict_joint_log_proba(rows), axis=1)[:, 0]
    np.testing.assert_allclose(rows @ weights[:, 0] + bias[1] - bias[0], expected)


@pytest.mark.parametrize("way", ["sampling", "weights"])
def test_killed_and_resumed_weights_are_bit_identical(way, tmp_path):
    rows = uneven(60, 3, 9)
    made = small("gru", **{
        "train.balance": way, "train.save_every": 1, "train.epochs": 3, "embedder.width": 11,
        "encoder.hidden": 12,
    })  # fmt: skip
    weft.train(made, tmp_path / "whole", splits=splits(rows), quiet=True)
    with killed(17):
        weft.train(made, tmp_path / "cut", splits=splits(rows), quiet=True)
    if way == "sampling":
        other = made.with_values({"train.balance": "none"}, "test")
        shutil.copytree(tmp_path / "cut", tmp_path / "other")
        with pytest.raises(UserError, match=r"train\.balance=sampling and cannot resume"):
            weft.train(other, tmp_path / "other", splits=splits(rows), resume=True, quiet=True)
    weft.train(made, tmp_path / "cut", splits=splits(rows), resume=True, quiet=True)
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


def test_without_balance_nothing_changes(tmp_path):
    rows = uneven(20, 9)
    for name, changes in (("a", {}), ("b", {"train.focal_gamma": 3.0})):
        weft.train(small("bag", **changes), tmp_path / name, splits=splits(rows), quiet=True)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_focal_of_gamma_zero_is_cross_entropy(tmp_path):
    outs = [
        weft.train(
            small("bag", **changes), tmp_path / str(i), splits=splits(uneven(20, 9)), quiet=True
        )
        for i, changes in enumerate(({}, {"train.balance": "focal", "train.focal_gamma": 0.0}))
    ]
    first, second = (out.predictor.engine.model.state_dict() for out in outs)
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bag", "tfidf"])
def test_uneven_classes_select_by_macro_f1(name, tmp_path):
    out = weft.train(small(name), tmp_path / "run", splits=splits(uneven()), quiet=True)
    log = (tmp_path / "run/log.txt").read_text("utf-8")
    assert "the classes are uneven ('common' has 60 examples, 'rare' 3)" in log
    assert "selected by macro_f1; train.metric=accuracy selects it by accuracy" in log
    record = json.loads((tmp_path / "run/model/record.json").read_text("utf-8"))
    assert record["metric"] == "macro_f1" == out.predictor.config["train"]["metric"]
    if name == "bag":
        weft.train(small(name), tmp_path / "run", splits=splits(uneven()), resume=True, quiet=True)


@pytest.mark.parametrize(
    ("rows", "changes", "metric"),
    [(uneven(20, 9), {}, "accuracy"), (uneven(), {"train.metric": "accuracy"}, "accuracy")],
    ids=["even", "explicit"],
)
def test_otherwise_the_metric_stays(rows, changes, metric, tmp_path):
    out = weft.train(small("bag", **changes), tmp_path / "run", splits=splits(rows), quiet=True)
    assert out.record["metric"] == metric
    assert "uneven" not in (tmp_path / "run/log.txt").read_text("utf-8")


def test_resumed_ensemble_keeps_its_members(tmp_path):
    made = small("bag", **{"train.ensemble": 2})
    weft.train(made, tmp_path / "run", splits=splits(uneven()), quiet=True)
    weft.train(made, tmp_path / "run", splits=splits(uneven()), resume=True, quiet=True)
    log = (tmp_path / "run/log.txt").read_text("utf-8")
    assert "member 0 is trained" in log
    assert "member 1 is trained" in log


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("cnn", {"task.loss": "margin"}, r"cannot be combined with task\.loss = 'margin'"),
        ("cnn", {"task.label_smoothing": 0.1}, r"with task\.label_smoothing = 0\.1\. Remove one"),
        ("tfidf", {}, r"classic 'tfidf' .* its solver has no focal loss\. Set .* 'weights' or"),
        ("tagger-bilstm-crf", {}, r"a CRF scores whole sequences.*'sampling', or use head\.kind"),
        ("parser", {}, r"for tasks with classes .* the task 'parse' has none\. Remove it"),
    ],
)
def test_focal_messages(name, changes, message, tmp_path):
    rows = tmp_path / "train.tsv"
    rows.write_text("text\tlabel\ngood\ta\nbad\tb\n", "utf-8")
    found = config.recipe(name).with_values({"train.balance": "focal", **changes}, "test")
    full = resolve_config(found)
    with pytest.raises(UserError, match=message):
        check_balance(full, build_task(full))


def test_an_unknown_way_is_named(tmp_path):
    with pytest.raises(UserError, match="weights"):
        resolve_config(config.recipe("bag").with_values({"train.balance": "weight"}, "test"))
