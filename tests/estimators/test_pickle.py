"""Pickles hold model folders: the same answers in another process, and nothing is executed."""

import copy
import io
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest

import weft
from tests.fixtures.estimator_data import FAST, LABELS, NEW, PAIRS, SENTENCES, TAGS, TEXTS
from weft.errors import UserError
from weft.vectors.store import Vectors

CODE = """
import pickle, sys, joblib, numpy as np
assert not any(name.startswith("weft.") for name in sys.modules)
with open(sys.argv[1], "rb") as file:
    models, X, expected = pickle.load(file)
models += joblib.load(sys.argv[2])
for model, x, wanted in zip(models, 2 * X, 2 * expected, strict=True):
    act = next(a for a in ("predict_proba", "transform", "predict") if hasattr(model, a))
    found = getattr(model, act)(x)
    assert np.array_equal(np.asarray(found), np.asarray(wanted)), (model, found, wanted)
    if hasattr(model, "classes_") and act == "predict_proba":
        assert set(model.predict(x)) <= set(model.classes_)
"""


def test_another_process_gives_the_same_answers(classifier, tmp_path):
    vectors = Vectors(["good", "bad"], np.array([[1.0, 0.5], [0.0, 2.0]], np.float32))
    vectors.save(tmp_path / "words.txt")
    network = weft.Classifier("bag", **FAST).fit(TEXTS, np.array(LABELS) == "positive")
    models = [
        classifier,
        network,
        weft.PairClassifier(classic__C=1.0).fit(PAIRS, LABELS),
        weft.Regressor(classic__C=1.0).fit(TEXTS, np.arange(len(TEXTS))),
        weft.Vectorizer(tmp_path / "words.txt").fit(),
        weft.Vectorizer(_save(network, tmp_path / "model")).fit(),
    ]
    X = [NEW, NEW, PAIRS[:3], NEW, NEW, NEW]
    expected = [
        *(model.predict_proba(x) for model, x in zip(models[:3], X, strict=False)),
        models[3].predict(NEW),
        *(model.transform(NEW) for model in models[4:]),
    ]
    with open(tmp_path / "all.pickle", "wb") as file:
        pickle.dump((models, X, expected), file)
    (tmp_path / "words.txt").unlink()
    joblib.dump(models, tmp_path / "all.joblib")
    command = [sys.executable, "-c", CODE, tmp_path / "all.pickle", tmp_path / "all.joblib"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _save(model, folder):
    model.predictor_.save(folder, NEW)
    return folder


def test_taggers_and_copies():
    pytest.importorskip("pycrfsuite")
    model = weft.Tagger("crf").fit(SENTENCES, TAGS)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(SENTENCES) == model.predict(SENTENCES)
    twice = pickle.loads(pickle.dumps(copy.deepcopy(again)))
    assert twice.predict(SENTENCES) == model.predict(SENTENCES)
    assert twice.record_ == model.record_


def test_ensembles_outlive_their_folder():
    model = weft.Classifier("bag", train__ensemble=2, **FAST).fit(TEXTS, LABELS)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model))))
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))


def test_unfitted_estimators_pickle_too():
    model = pickle.loads(pickle.dumps(weft.Classifier("cnn", encoder__hidden=8)))
    assert model.get_params()["encoder__hidden"] == 8
    assert not hasattr(model, "predictor_")


def test_a_pickle_holds_bytes_and_no_torch(classifier):
    state = classifier.__getstate__()
    assert {"model.json", "weights.safetensors", "golden.jsonl"} <= set(state["_files"])
    assert all(type(data) is bytes for data in state["_files"].values())
    assert "_fitted" not in state
    needed = set()

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            needed.add(module.partition(".")[0])
            return super().find_class(module, name)

    Unpickler(io.BytesIO(pickle.dumps(classifier))).load()
    assert needed == {"weft", "numpy"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: {"../escape": b""}, "'../escape' is no file of a model"),
        (lambda files: {"/tmp/escape": b""}, "'/tmp/escape' is no file of a model"),
        (lambda files: {"a\\..\\b": b""}, "is no file of a model"),
        (lambda files: {"": b""}, "'' is no file of a model"),
        (lambda files: {**files, "model.json": "{}"}, "'model.json' is no file of a model"),
        (lambda files: [], "it has no files"),
        (lambda files: {**files, "weights.safetensors": b"no"}, "incomplete"),
        (lambda files: {k: v for k, v in files.items() if k != "model.json"}, "model.json"),
        (lambda files: _with_part(files), "part|Unknown|trust"),
    ],
)
def test_damaged_and_hostile_states(classifier, change, message, tmp_path):
    model = weft.Classifier()
    state = classifier.__getstate__()
    model.__setstate__({**state, "_files": change(state["_files"])})
    with pytest.raises(UserError, match=message):
        model.predict(NEW)
    assert not list(tmp_path.parent.rglob("escape"))


def _with_part(files):
    """Name a class outside Weft where the model's own kind was."""
    config = files["model.json"].replace(b'"kind": "tfidf"', b'"kind": "os:system"')
    assert config != files["model.json"]
    return {**files, "model.json": config}
