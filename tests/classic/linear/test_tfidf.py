"""N-grams against scikit-learn's vectorizer, the models against scikit-learn's own, the files."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.svm import LinearSVC

from weft.classic.linear.regularisation import GRIDS, fit_for
from weft.classic.linear.regularisation import scores as linear_scores
from weft.classic.linear.tfidf import TfIdf
from weft.classic.linear.tfidf_vectorizer import Grams, character_grams, word_grams
from weft.errors import UserError
from weft.registry import build
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.regress import LabelScale, Regress
from weft.tasks.task import compute_metrics
from weft.text.class_balance import Balance

TEXT = "the a not very good bad film Was, I didn't like it ! ? naïve 3.5 Ελλάδα 映画 x"
WORDS = TEXT.split()
PATTERN = r"\w+|[^\w\s]"


def corpus(n: int = 61, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(0, 11))) for _ in range(n)]


def targets(n: int = 61, size: int = 3) -> np.ndarray:
    return np.array([(i * 7 + i // 3) % size for i in range(n)])


def complaint(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def reference(kind: str, span: tuple[int, int], **options) -> TfidfVectorizer:
    if kind == "words":
        options["token_pattern"] = PATTERN
    return TfidfVectorizer(
        analyzer="word" if kind == "words" else "char_wb", ngram_range=span, **options
    )


@pytest.mark.parametrize("sublinear", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize(
    ("kind", "span"),
    [("words", (1, 1)), ("words", (1, 2)), ("words", (2, 3)), ("chars", (2, 5)), ("chars", (1, 3))],
)
def test_rows_equal_scikit_learns(kind, span, lowercase: bool, sublinear: bool) -> None:
    split = word_grams if kind == "words" else character_grams
    grams = Grams(split, span, lowercase, sublinear)
    learned = grams.learn(corpus(), minimum=2, size=0)
    vectorizer = reference(kind, span, lowercase=lowercase, sublinear_tf=sublinear, min_df=2)
    wanted = vectorizer.fit_transform(corpus())
    assert list(grams.index) == vectorizer.get_feature_names_out().tolist()
    np.testing.assert_allclose(learned.toarray(), wanted.toarray(), atol=1e-7)
    new = [*corpus(13, seed=5), "", "  ", "never\tseen\u00a0words x", "Bad\nBAD bad"]
    np.testing.assert_allclose(
        grams.rows(new).toarray(), vectorizer.transform(new).toarray(), atol=1e-7
    )


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=23))
def test_any_text_is_split_like_scikit_learn_does(text: str) -> None:
    for kind, split, span in (("words", word_grams, (1, 3)), ("chars", character_grams, (2, 4))):
        wanted = reference(kind, span).build_analyzer()(text)
        assert sorted(split(text.lower(), *span)) == sorted(wanted)


def test_size_keeps_the_most_frequent() -> None:
    grams = Grams(word_grams, (1, 1), True, True)
    grams.learn(["a b c", "a b", "a c d", "a e"], minimum=1, size=3)
    assert list(grams.index) == ["a", "b", "c"]


def fitted(task, space, wanted: np.ndarray, balance="none", **options) -> TfIdf:
    model = TfIdf(**{"characters": [], "C": 10.0, **options})
    model.fit(corpus(), wanted, task, space, seed=0, balance=Balance(balance))
    return model


def test_no_more_weights_than_memory_allows(monkeypatch) -> None:
    monkeypatch.setattr("weft.classic.linear.tfidf.MAX_WEIGHTS", 60)
    for size, kept in ((3, 20), (2, 60)):  # two classes share one column of weights
        model = TfIdf(characters=[], C=10.0)
        model.fit(corpus(), targets(size=size), Classify(), ClassSpace(tuple("abc"[:size])))
        assert len(model.weights) == kept
        assert model.weights.size == 60


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("classifier", "make"),
    [
        ("logistic", lambda: LogisticRegression(C=3.0, max_iter=1000)),
        ("svm", lambda: LinearSVC(C=3.0, random_state=0)),
        ("bayes", lambda: MultinomialNB(alpha=1 / 3)),
    ],
)
def test_scores_are_those_of_scikit_learn(classifier: str, make, size: int) -> None:
    wanted = targets(size=size)
    space = ClassSpace(tuple("abc"[:size]))
    model = fitted(Classify(), space, wanted, classifier=classifier, C=3.0)
    rows = reference("words", (1, 2), sublinear_tf=True, dtype=np.float32).fit_transform(corpus())
    theirs = make().fit(rows, wanted)
    scores = model.predict(corpus())
    assert scores.shape == (61, size)
    np.testing.assert_array_equal(scores.argmax(1), theirs.predict(rows))
    if classifier == "svm":
        decision = theirs.decision_function(rows)
        found = scores[:, 1] - scores[:, 0] if size == 2 else scores
        np.testing.assert_allclose(found, decision, atol=1e-3)
    else:
        chances = Classify().probabilities(scores, space)
        np.testing.assert_allclose(chances, theirs.predict_proba(rows), atol=1e-3)


@pytest.mark.parametrize("classifier", ["logistic", "svm", "bayes"])
def test_several_labels_are_one_model_each(classifier: str) -> None:
    one = targets(size=3)
    wanted = np.stack([one == 0, one < 2, np.ones(61), np.zeros(61)], axis=1).astype(np.float32)
    task, space = Classify(multi_label=True), ClassSpace(tuple("abcd"))
    scores = fitted(task, space, wanted, classifier=classifier).predict(corpus())
    assert scores.shape == (61, 4)
    assert (scores[:, 2] > 50).all()
    assert (scores[:, 3] < -50).all()
    single = fitted(Classify(), ClassSpace(("no", "yes")), wanted[:, 1], classifier=classifier)
    alone = single.predict(corpus())
    np.testing.assert_allclose(scores[:, 1], alone[:, 1], atol=1e-5)


def test_a_number_is_ridge_regression() -> None:
    wanted = np.random.default_rng(0).normal(size=61)
    model = fitted(Regress(), LabelScale(0.0, 1.0), wanted, C=2.0)
    rows = reference("words", (1, 2), sublinear_tf=True).fit_transform(corpus())
    theirs = Ridge(alpha=0.5).fit(rows, wanted).predict(rows)
    np.testing.assert_allclose(model.predict(corpus()), theirs[:, None], atol=1e-3)


def test_class_without_training_texts_is_never_predicted() -> None:
    space = ClassSpace(tuple("abcd"))
    model = fitted(Classify(), space, targets(size=3) + 1)
    probs = Classify().probabilities(model.predict(corpus()), ClassSpace(tuple("abcd")))
    assert probs[:, 0].max() < 1e-30
    two = fitted(Classify(), space, targets(size=2) * 3)
    assert set(two.predict(corpus()).argmax(1)) == {0, 3}


def test_the_best_score_learns_the_training_texts() -> None:
    texts = ["good film", "bad film", "not good", "not bad", "?", "!"]
    wanted = np.array([1, 0, 0, 1, 0, 1])
    model = build("classic", {"kind": "tfidf", "characters": [], "C": 1000.0})
    model.fit(texts, wanted, Classify(), ClassSpace(("no", "yes")), seed=0)
    np.testing.assert_array_equal(model.predict(texts).argmax(1), wanted)
    assert model.parameters() == len(model.families["words"].index) + 2


SETTINGS: dict[str, Any] = {
    "words": [1, 2],
    "characters": [2, 3],
    "min_count": 2,
    "C": 10.0,
}


def saved(folder: Path, half: str = "") -> TfIdf:
    model = TfIdf(**SETTINGS)
    texts = [text + half for text in corpus()]
    model.fit(texts, targets(), Classify(), ClassSpace(tuple("abc")), seed=0)
    model.save(folder)
    return model


@pytest.mark.parametrize("half", ["", " \ud83d"])  # half a surrogate pair
def test_saved_and_loaded_gives_the_same_bits(tmp_path: Path, half: str) -> None:
    model = saved(tmp_path, half)
    again = TfIdf.load(tmp_path, {"kind": "tfidf", **SETTINGS})
    new = [*corpus(13, seed=5), "", half]
    np.testing.assert_array_equal(model.predict(new), again.predict(new))
    assert model.predict(new).dtype == np.float32
    assert again.parameters() == model.parameters()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["vocabulary.json", "weights.safetensors"]


def test_fitting_twice_gives_the_same_bits() -> None:
    for classifier in ("logistic", "svm", "bayes"):
        first, second = (
            fitted(Classify(), ClassSpace(tuple("abc")), targets(), classifier=classifier)
            for _ in range(2)
        )
        np.testing.assert_array_equal(first.weights, second.weights)


def test_a_text_scores_the_same_alone_and_in_company(tmp_path: Path) -> None:
    model = saved(tmp_path)
    together = model.predict(corpus())
    alone = np.concatenate([model.predict([text]) for text in corpus()])
    np.testing.assert_array_equal(together, alone)
    assert model.predict([]).shape == (0, 3)


def test_predicting_imports_neither_scikit_learn_nor_torch(tmp_path: Path) -> None:
    saved(tmp_path)
    code = (
        "import sys; from pathlib import Path; from weft.classic.linear.tfidf import TfIdf;"
        f"model = TfIdf.load(Path({str(tmp_path)!r}), {SETTINGS!r}); model.predict(['good film']);"
        "assert not {'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["vocabulary.json", "weights.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "garbage"])
def test_damaged_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    saved(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": whole[:-7], "empty": b"", "garbage": b"\xff" * 50}[damage])
    found = complaint(lambda: TfIdf.load(tmp_path, SETTINGS))
    assert found.startswith(f"{path}: incomplete 'tfidf' model (")
    assert found.endswith("Copy the model folder again or retrain.")
    assert ("the file is missing" in found) == (damage == "missing")


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "vocabulary.json"
    terms = json.loads(path.read_text("utf-8"))

    def after(change) -> str:
        path.write_text(json.dumps(change), "utf-8")
        return complaint(lambda: TfIdf.load(tmp_path, SETTINGS))

    assert "its words do not match" in after({**terms, "words": terms["words"][1:]})
    assert "its words do not match" in after({**terms, "words": ["a"] * len(terms["words"])})
    assert "it should hold words and characters" in after({"words": terms["words"]})
    assert "'words' is not a list of texts" in after({**terms, "words": [1]})
    path.write_text(json.dumps(terms), "utf-8")
    arrays = load_file(tmp_path / "weights.safetensors")
    weights = arrays["weights"]

    def with_arrays(changed: dict) -> str:
        save_file(changed, tmp_path / "weights.safetensors")
        return complaint(lambda: TfIdf.load(tmp_path, SETTINGS))

    assert "its shapes do not match" in with_arrays({**arrays, "weights": weights[1:].copy()})
    narrow = {**arrays, "weights": weights[:, 1:].copy()}
    assert "weights and bias do not match" in with_arrays(narrow)
    assert "it holds ['weights']" in with_arrays({"weights": weights})


def endings(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Words made up for one text each: only their endings say what the label is."""
    rng = random.Random(seed)
    wanted = [rng.randrange(2) for _ in range(n)]
    stems = ["".join(rng.choices("bdgklmnprstvz", k=7)) for _ in wanted]
    return [stem + ("ique" if y else "ology") for stem, y in zip(stems, wanted, strict=True)], (
        np.array(wanted)
    )


def test_by_default_endings_of_unknown_words_count(tmp_path: Path) -> None:
    task, space, model = Classify(), ClassSpace(("a", "b")), TfIdf()
    model.fit(*endings(211, 0), task, space, dev=endings(53, 1))
    texts, wanted = endings(101, 2)
    assert (model.predict(texts).argmax(1) == wanted).mean() > 0.95
    assert "with character n-grams" in model.remarks[-1]
    alone = TfIdf(characters=[])
    alone.fit(*endings(211, 0), task, space, dev=endings(53, 1))
    assert (alone.predict(texts).argmax(1) == wanted).mean() < 0.7  # deliberate break: words only
    model.save(tmp_path)
    again = TfIdf.load(tmp_path, {"kind": "tfidf"})
    np.testing.assert_array_equal(model.predict(texts), again.predict(texts))


def test_characters_that_do_not_help_on_dev_are_left_out(tmp_path: Path) -> None:
    texts = [f"{'good' if i % 2 else 'bad'} {i}" for i in range(101)]
    wanted = np.arange(101) % 2
    model = TfIdf()
    model.fit(texts, wanted, Classify(), ClassSpace(("a", "b")), dev=(texts[:31], wanted[:31]))
    assert "without character n-grams" in model.remarks[-1]
    assert len(model.weights) == len(model.families["words"].index)
    model.save(tmp_path)
    again = TfIdf.load(tmp_path, {"kind": "tfidf"})
    np.testing.assert_array_equal(model.predict(texts), again.predict(texts))


def test_long_texts_are_read_by_words_alone(monkeypatch) -> None:
    monkeypatch.setattr("weft.classic.linear.tfidf.MAX_CHARACTERS", 100)
    model = TfIdf()
    model.fit(corpus(), targets(size=2), Classify(), ClassSpace(("a", "b")))
    assert model.remarks[0].startswith("character n-grams are left out: ")
    assert not model.families["characters"].index
    assert model.predict(corpus()).shape == (61, 2)


@pytest.mark.parametrize("classifier", ["logistic", "svm", "bayes"])
@pytest.mark.parametrize("several", [False, True])
def test_the_strength_is_the_best_on_dev(classifier: str, several: bool) -> None:
    task, space = Classify(multi_label=several), ClassSpace(tuple("abc"))
    one = targets(61), targets(31)
    wanted, held = (np.eye(3, dtype=np.float32)[y] if several else y for y in one)
    model = TfIdf(classifier, characters=[])
    model.fit(corpus(), wanted, task, space, dev=(corpus(31, seed=5), held))
    found = []
    rows = model.families["words"].rows(corpus())
    later = model.families["words"].rows(corpus(31, seed=5))
    fit = fit_for(classifier, task, space, 0, False)
    for weights in fit(rows, wanted, GRIDS[classifier]):
        known = compute_metrics(task, space, linear_scores(later, weights), held)
        both = known["micro_f1"] if several else (known["accuracy"] + known["macro_f1"]) / 2
        found.append(both)
    strength = float(model.remarks[-1].split()[1].rstrip(","))
    # Where two in a row are worse, stronger ones are not tried.
    tried = found[: GRIDS[classifier].index(strength) + 1]
    assert found[GRIDS[classifier].index(strength)] == pytest.approx(max(tried))


def test_without_dev_the_model_is_fitted_on_everything() -> None:
    task, space = Classify(), ClassSpace(("a", "b"))
    texts, wanted = endings(211, 0)
    model = TfIdf()
    model.fit(texts, wanted, task, space)
    held = endings(101, 2)
    assert (model.predict(held[0]).argmax(1) == held[1]).mean() > 0.95
    few = TfIdf(characters=[])
    few.fit(corpus(), targets(61), task, ClassSpace(tuple("abc")))
    tiny = TfIdf()
    tiny.fit(["good", "bad", "good", "bad"], np.array([1, 0, 1, 0]), task, space)
    assert tiny.remarks == ["strength 10: too few texts to choose one, without character n-grams"]


def test_probabilities_without_dev_are_calibrated_on_held_out_rows() -> None:
    """Labels that are noise for the most part: a fit that follows them is far too sure."""
    rng = np.random.default_rng(0)
    task, space = Classify(), ClassSpace(("a", "b"))
    wanted, held = rng.integers(2, size=211), rng.integers(2, size=101)
    texts, later = corpus(211, seed=3), corpus(101, seed=4)
    model = TfIdf(characters=[])
    model.fit(texts, wanted, task, space)
    chances = task.probabilities(model.predict(later), space)[np.arange(101), held]
    assert -np.log(chances).mean() < 0.8  # 0.69 says that nothing is known
    sure = TfIdf(characters=[], C=100.0)
    sure.fit(texts, wanted, task, space)
    chances = task.probabilities(sure.predict(later), space)[np.arange(101), held]
    assert -np.log(chances).mean() > 1.0
    same = model.predict(later).argmax(1)
    assert len(set(same.tolist())) == 2


def test_labels_only_in_held_out_rows_do_not_affect_the_choice() -> None:
    task, space = Classify(), ClassSpace(("a", "b"))
    texts, wanted = corpus(61), (np.arange(61) % 10 == 9).astype(int)
    model = TfIdf(characters=[])
    model.fit(texts, wanted, task, space)  # every tenth row is held out, and has all of one label
    assert "too few texts" in model.remarks[-1]
    three, rare = ClassSpace(("a", "b", "c")), targets(61, 2)
    rare[19] = 2
    model = TfIdf(characters=[])
    model.fit(texts, rare, task, three)
    chances = task.probabilities(model.predict(texts), space)
    assert chances[:, :2].max() > 0.6  # a row that cannot be right would make all alike


def test_balanced_gives_rare_classes_more_weight() -> None:
    wanted = (np.arange(61) % 11 == 0).astype(int)
    space = ClassSpace(("a", "b"))
    plain, balanced = (
        fitted(Classify(), space, wanted, balance=on, C=0.1).predict(corpus()).argmax(1)
        for on in ("none", "weights")
    )
    assert balanced.sum() > plain.sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": [2, 1]}, "words is [2, 1]; give the shortest and longest n-gram"),
        ({"characters": [2, 3, 4]}, "characters is [2, 3, 4]"),
        ({"words": [0, 1]}, "words is [0, 1]"),
        ({"words": [], "characters": []}, "words and characters are both []"),
        ({"C": -1.0}, "C is -1.0; it must be above 0, or 0 to choose it on dev"),
    ],
)
def test_settings_that_cannot_work(options: dict, message: str) -> None:
    assert message in complaint(lambda: TfIdf(**options))


def test_unlearnable_data_raises_user_error() -> None:
    one = complaint(lambda: fitted(Classify(), ClassSpace(("a", "b")), np.zeros(61)))
    assert "one class only" in one
    rare = complaint(lambda: fitted(Classify(), ClassSpace(("a", "b")), targets(), min_count=62))
    assert rare.startswith("classic 'tfidf': no n-gram occurs in 62 training texts.")
    number = complaint(lambda: fitted(Regress(), LabelScale(0, 1), np.zeros(61), classifier="svm"))
    assert "classifier 'svm' cannot predict a number" in number


def test_sentence_vectors_are_refused(tmp_path: Path) -> None:
    assert "has no sentence vectors" in complaint(lambda: saved(tmp_path).embed(["x"]))
