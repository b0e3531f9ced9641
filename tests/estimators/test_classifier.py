"""Classifiers, regressors and taggers inside scikit-learn, and equal to the command line."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import weft
from tests.fixtures.command import ok
from tests.fixtures.estimator_data import (
    FAST,
    LABELS,
    NEW,
    PAIRS,
    SENTENCES,
    SPANS,
    TAGS,
    TEXTS,
)
from weft.errors import UserError


def test_parameters_are_settings():
    model = weft.Classifier("cnn", encoder__dropout=0.2, random_state=3)
    assert model.get_params() == {
        "recipe": "cnn", "pretrained": None, "dev_fraction": None, "random_state": 3,
        "folder": None, "device": "auto", "verbose": False, "encoder__dropout": 0.2,
    }  # fmt: skip
    model.set_params(recipe="bag", embedder__width=8, encoder__dropout=None)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    config = copy._config()
    assert config["embedder"]["width"] == 8
    assert config["train"]["seed"] == 3
    assert "dropout" not in config["encoder"]
    shown = " ".join(repr(model).split())
    assert shown == (
        "Classifier(embedder__width=8, encoder__dropout=None, random_state=3, recipe='bag')"
    )
    assert "Classifier" in model._repr_html_()


def test_settings_of_numpy_and_of_listed_parts():
    model = weft.Classifier("tfidf", classic__C=np.float64(2), classic__words=(1, np.int64(1)))
    assert model._config()["classic"] | {"kind": "tfidf"} == {
        "kind": "tfidf", "C": 2.0, "words": [1, 1],
    }  # fmt: skip
    sections = {**weft.recipe("bag").sections, "embedder": [{"kind": "lookup"}] * 2}
    model = weft.Classifier(sections, embedder__1__width=7)
    assert model._config()["embedder"][1]["width"] == 7


def test_unknown_parameters_and_settings():
    with pytest.raises(TypeError, match=r"Unknown parameter 'recpie'\. Did you mean 'recipe'"):
        weft.Classifier(recpie="cnn")
    with pytest.raises(TypeError, match=r"Unknown section 'encodr' in 'encodr__hidden'.*encoder"):
        weft.Classifier(encodr__hidden=3)
    with pytest.raises(UserError, match="Unknown parameter 'seed'"):
        weft.Classifier().set_params(seed=3)
    with pytest.raises(UserError, match=r"'hiden' in encoder 'cnn'\. Did you mean 'hidden'"):
        weft.Classifier("cnn", encoder__hiden=3).fit(TEXTS, LABELS)
    with pytest.raises(UserError, match="random_state and train__seed are the same setting"):
        weft.Classifier(train__seed=1, random_state=2).fit(TEXTS, LABELS)
    with pytest.raises(UserError, match=r"the recipe is for the task 'tag'.*Use weft\.Tagger"):
        weft.Classifier("crf").fit(TEXTS, LABELS)
    with pytest.raises(UserError, match=r"task 'classify', not 'pair-classify'"):
        weft.PairClassifier("tfidf").fit(PAIRS, LABELS)


@pytest.mark.parametrize(
    "model", [weft.Classifier(), weft.Regressor(), weft.Tagger(), weft.PairClassifier()]
)
def test_unfitted(model):
    X = {"Tagger": SENTENCES, "PairClassifier": PAIRS}.get(type(model).__name__, TEXTS)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model, "predictor_")
    with pytest.raises(NotFittedError):
        weft.Vectorizer().transform(TEXTS)


def write_rows(path, places):
    """Write some of the texts and labels as a file."""
    rows = "".join(f"{LABELS[i]}\t{TEXTS[i]}\n" for i in places)
    path.write_text("label\ttext\n" + rows, "utf-8")
    return path


def train_on_command_line(recipe, settings, seed, train, folder):
    """Train as an estimator with these parameters should."""
    sets = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in settings.items()]
    flags = [part for one in sets for part in ("--set", one)]
    ok("train", "--recipe", recipe, "--train", train, "--seed", seed, *flags, "-o", folder)
    return folder


def accuracy_on_command_line(folder, test):
    return json.loads(ok("evaluate", folder, test, "--json").out)["accuracy"]["value"]


@pytest.mark.parametrize("recipe", ["tfidf", "cnn"])
def test_equal_to_the_command_line_to_the_last_digit(recipe, tmp_path):
    train = write_rows(tmp_path / "train.tsv", range(48))
    test = write_rows(tmp_path / "test.tsv", range(len(TEXTS)))
    settings = FAST if recipe == "cnn" else {}
    run = train_on_command_line(recipe, settings, 7, train, tmp_path / "run")
    model = weft.Classifier(recipe, random_state=7, **settings).fit(TEXTS[:48], LABELS[:48])
    assert model.score(TEXTS, LABELS) == accuracy_on_command_line(run, test)
    answers = weft.load(run)(TEXTS)
    expected = np.array([answer.scores for answer in answers])
    np.testing.assert_array_equal(model.predict_proba(TEXTS), expected)
    saved = json.loads((run / "model" / "record.json").read_text("utf-8"))
    assert model.record_["figures"] == saved["figures"]


def test_classes_keep_their_type_and_order():
    numbers = np.array([{"positive": 10, "negative": 9}[label] for label in LABELS])
    model = weft.Classifier(classic__C=3.0).fit(TEXTS, numbers)
    np.testing.assert_array_equal(model.classes_, [9, 10])
    assert model.predict(NEW).dtype == numbers.dtype
    assert model.predict(NEW).tolist()[:2] == [10, 9]
    # Texts sort '10' before '9', the model's labels by value.
    texts = weft.Classifier(classic__C=3.0).fit(TEXTS, numbers.astype(str))
    assert texts.classes_.tolist() == ["10", "9"]
    np.testing.assert_array_equal(texts.predict_proba(NEW), model.predict_proba(NEW)[:, ::-1])
    assert texts.predict(NEW).tolist() == model.predict(NEW).astype(str).tolist()
    flags = weft.Classifier(classic__C=3.0).fit(TEXTS, numbers == 10)
    assert flags.predict(NEW).dtype == bool
    np.testing.assert_allclose(np.exp(model.predict_log_proba(NEW)), model.predict_proba(NEW))


def test_labels_that_a_fold_lacks_keep_the_columns():
    labels = [*LABELS[:-2], "rare", "rare"]
    folds = StratifiedKFold(2)
    model = weft.Classifier(classic__C=3.0)
    probs = cross_val_predict(model, TEXTS, labels, cv=folds, method="predict_proba")
    assert probs.shape == (len(TEXTS), 3)
    split = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]
    with pytest.warns(RuntimeWarning, match="Number of classes in training fold"):
        probs = cross_val_predict(model, TEXTS, labels, cv=split, method="predict_proba")
    assert not probs[30:, 2].any()  # learned from the first half, which has no 'rare'
    np.testing.assert_allclose(probs.sum(1), 1)


def test_a_label_out_of_scope_is_a_class():
    model = weft.Classifier(classic__C=3.0, data__out_of_scope="none").fit(TEXTS, LABELS)
    assert model.classes_.tolist() == ["negative", "none", "positive"]
    assert set(model.predict([*NEW, "xyz " * 9])) <= set(model.classes_)
    assert not model.predict_proba(NEW)[:, 1].any()
    with pytest.raises(UserError, match=r"data\.out_of_scope is the text 'none', but the labels"):
        clone(model).fit(TEXTS, [int(label == "positive") for label in LABELS])


def test_several_labels_a_text():
    Y = np.stack([[label == "positive" for label in LABELS], ["film" in text for text in TEXTS],
                  [False] * len(TEXTS)], 1).astype(int)  # fmt: skip
    model = weft.Classifier(classic__C=10.0).fit(TEXTS, Y)
    predicted, probs = model.predict(TEXTS), model.predict_proba(TEXTS)
    assert predicted.shape == probs.shape == Y.shape
    assert (predicted == Y).mean() > 0.9
    assert not probs[:, 2].any()
    assert model.score(TEXTS, Y) == (predicted == Y).all(1).mean()


def test_a_search_over_recipes_has_the_figures_of_the_command_line(tmp_path):
    grid = [
        {"recipe": ["tfidf"], "classic__C": [0.01, 3.0]},
        {"recipe": ["cnn"], "embedder__width": [8], **{k: [v] for k, v in FAST.items()}},
    ]
    folds = list(StratifiedKFold(2).split(TEXTS, LABELS))
    search = GridSearchCV(weft.Classifier(random_state=0), grid, cv=folds).fit(TEXTS, LABELS)
    found = search.cv_results_
    assert len(found["params"]) == 3
    train, test = (write_rows(tmp_path / f"{i}.tsv", rows) for i, rows in enumerate(folds[1]))
    for i, params in enumerate(found["params"]):
        settings = {key: value for key, value in params.items() if key != "recipe"}
        run = train_on_command_line(params["recipe"], settings, 0, train, tmp_path / f"run-{i}")
        assert found["split1_test_score"][i] == accuracy_on_command_line(run, test)
    assert search.best_params_ == {"recipe": "tfidf", "classic__C": 3.0}
    assert search.predict(NEW).tolist()[:2] == ["positive", "negative"]


def test_pipelines_calibration_and_voting():
    clean = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipe = make_pipeline(clean, weft.Classifier(classic__C=3.0))
    assert pipe.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.9
    assert cross_val_score(pipe, TEXTS, LABELS, cv=2).shape == (2,)
    weights = [1.0 + (label == "positive") for label in LABELS]
    pipe.fit(TEXTS, LABELS, classifier__sample_weight=weights)
    pipe.set_params(classifier__classic__C=1.0)
    model = CalibratedClassifierCV(weft.Classifier(classic__C=3.0), cv=2).fit(TEXTS, LABELS)
    np.testing.assert_allclose(model.predict_proba(NEW).sum(1), 1)
    assert model.predict(NEW).tolist()[:2] == ["positive", "negative"]
    parts = [(str(C), weft.Classifier(classic__C=C)) for C in (1.0, 3.0)]
    vote = VotingClassifier(parts, voting="soft").fit(TEXTS, LABELS)
    assert vote.predict(NEW).tolist()[:2] == ["positive", "negative"]


def test_seeds():
    def probs(state):
        return weft.Classifier("bag", random_state=state, **FAST).fit(TEXTS, LABELS)

    first = probs(1).predict_proba(NEW)
    np.testing.assert_array_equal(first, probs(1).predict_proba(NEW))
    assert (first != probs(2).predict_proba(NEW)).any()
    random = np.random.RandomState(0)
    assert (probs(random).predict_proba(NEW) != probs(random).predict_proba(NEW)).any()


def test_weights_of_rows():
    """Weight 0 is no row, down to the last bit; weight 2 leans to the label."""
    weights = np.array([i % 3 for i in range(len(TEXTS))], float)
    kept = [i for i, weight in enumerate(weights) if weight]
    for model in (weft.Classifier(classic__C=3.0), weft.Classifier("bag", **FAST)):
        zeros = clone(model).fit(TEXTS, LABELS, sample_weight=np.minimum(weights, 1))
        removed = clone(model).fit([TEXTS[i] for i in kept], [LABELS[i] for i in kept])
        np.testing.assert_array_equal(zeros.predict_proba(NEW), removed.predict_proba(NEW))
        heavy = np.where(np.array(LABELS) == "positive", 5.0, 1.0)
        plain = clone(model).fit(TEXTS, LABELS).predict_proba(NEW[2:])
        leaning = clone(model).fit(TEXTS, LABELS, sample_weight=heavy).predict_proba(NEW[2:])
        assert leaning[0, 1] > plain[0, 1]
    labels = [*LABELS[:-1], "rare"]
    model = weft.Classifier().fit(TEXTS, labels, sample_weight=[1] * (len(TEXTS) - 1) + [0])
    assert "rare" not in model.classes_


def test_held_out_data_stops_early(tmp_path):
    settings = FAST | {"train__epochs": 30, "train__patience": 1}
    dev = (["the film was good", "the plot was bad"] * 3, ["positive", "negative"] * 3)
    model = weft.Classifier("bag", folder=tmp_path / "run", **settings)
    model.fit(TEXTS, LABELS, dev=dev)
    assert model.record_["figures"]["dev"]["accuracy"]["n"] == 6
    assert "stopped early" in (tmp_path / "run" / "log.txt").read_text("utf-8")
    parted = weft.Classifier(dev_fraction=0.3).fit(TEXTS, LABELS)
    assert parted.record_["figures"]["dev"]["accuracy"]["n"] > 10
    whole = weft.Classifier(dev_fraction=0.0, classic__C=1.0).fit(TEXTS, LABELS)
    assert whole.record_["figures"] == {}


def test_folders_are_temporary_or_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    model = weft.Classifier(classic__C=3.0).fit(TEXTS, LABELS)
    assert model.run_folder_ is None
    assert not list((tmp_path / "temporary").iterdir())
    model.set_params(folder=tmp_path / "runs" / "a")
    places = [model.fit(TEXTS, LABELS).run_folder_ for _ in range(3)]
    assert places == [str(tmp_path / "runs" / name) for name in ("a", "a-2", "a-3")]
    assert weft.load(places[0])(NEW)[0].value == "positive"


def test_numbers():
    numbers = np.array([len(text.split()) + 0.5 for text in TEXTS])
    model = weft.Regressor(classic__words=[1, 1], data__dev_fraction=0.0).fit(TEXTS, numbers)
    assert model.score(TEXTS, numbers) > 0.5
    several = weft.Regressor(dev_fraction=0.0).fit(TEXTS, np.stack([numbers, -numbers], 1))
    assert several.predict(NEW).shape == (3, 2)
    weights = np.arange(len(TEXTS)) % 2
    zeros = clone(model).fit(TEXTS, numbers, weights)
    removed = clone(model).fit(TEXTS[1::2], numbers[1::2])
    np.testing.assert_array_equal(zeros.predict(NEW), removed.predict(NEW))
    assert cross_val_score(model, TEXTS, numbers, cv=2).shape == (2,)


def test_tags():
    pytest.importorskip("pycrfsuite")
    model = weft.Tagger("crf").fit(SENTENCES, TAGS)
    assert model.predict([["a", "good", "film"]]) == [["X", "ADJ", "X"]]
    assert model.classes_.tolist() == ["ADJ", "X"]
    assert model.score(SENTENCES, TAGS) == 1.0
    search = GridSearchCV(model, {"classic__l2": [0.1, 1.0]}, cv=2).fit(SENTENCES, TAGS)
    assert search.best_score_ == 1.0
    spans = weft.Tagger("crf").fit(SENTENCES, SPANS, sample_weight=[2] * len(SPANS))
    assert spans.predict([["a", "good", "film"]]) == [["O", "B-Q", "O"]]
    wrong = [["O"] * len(words) for words in SENTENCES]
    assert spans.score(SENTENCES, SPANS) == 1.0
    assert spans.score(SENTENCES, wrong) < 0.1  # F1 of spans, not the tags that are O


def test_pairs():
    overlap = ["yes" if set(a.split()) & set(b.split()) else "no" for a, b in PAIRS]
    labels = [*overlap[:-1], "no"]
    model = weft.PairClassifier(classic__C=1.0).fit(np.array(PAIRS, object), labels)
    assert model.predict_proba(PAIRS[:2]).shape == (2, 2)
    np.testing.assert_array_equal(model.predict(PAIRS), model.predict(np.array(PAIRS)))
