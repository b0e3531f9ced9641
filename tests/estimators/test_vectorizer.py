"""Texts as vectors in scikit-learn: word vectors averaged, or the encoder of a model."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import weft
from tests.fixtures.estimator_data import FAST, LABELS, NEW, TEXTS
from weft.errors import UserError
from weft.vectors.store import Vectors

WORDS = {"good": [3.0, 4.0], "bad": [0.0, -2.0], "film": [1.0, 0.0]}


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    Vectors(list(WORDS), np.array(list(WORDS.values()), np.float32)).save(path)
    return path


def test_the_mean_of_unit_vectors(words):
    vectorizer = weft.Vectorizer(words).fit(TEXTS)
    found = vectorizer.transform(["a good film", "Bad", "unknown"])
    np.testing.assert_allclose(found, [[0.8, 0.4], [0, -1], [0, 0]], atol=1e-6)
    assert vectorizer.get_feature_names_out().tolist() == ["vectorizer0", "vectorizer1"]
    assert clone(vectorizer).fit_transform(NEW).dtype == np.float32


def test_the_sentence_vectors_of_a_model(tmp_path):
    model = weft.Classifier("bag", folder=tmp_path / "run", **FAST).fit(TEXTS, LABELS)
    vectorizer = weft.Vectorizer(tmp_path / "run").fit()
    found = vectorizer.transform(np.array(NEW))
    np.testing.assert_array_equal(found, model.predictor_.embed(NEW))
    assert len(vectorizer.get_feature_names_out()) == found.shape[1]


def test_in_a_pipeline_and_a_search(words):
    pipe = make_pipeline(weft.Vectorizer(words), LogisticRegression())
    assert pipe.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.95
    search = GridSearchCV(pipe, {"vectorizer__model": [words], "logisticregression__C": [1, 10]})
    assert search.fit(TEXTS, LABELS).best_score_ > 0.95
    framed = weft.Vectorizer(words).set_output(transform="default").fit_transform(NEW)
    assert framed.shape == (3, 2)


def test_bad_input(words, tmp_path):
    with pytest.raises(UserError, match=r"X\[1\] is missing"):
        weft.Vectorizer(words).fit(["a", None])
    with pytest.raises(UserError, match=r"X\[0\] is 3 \(int\)"):
        weft.Vectorizer(words).fit().transform([3])
    with pytest.raises(UserError, match="nothing"):
        weft.Vectorizer(tmp_path / "nothing.txt").fit()
    tfidf = weft.Classifier(folder=tmp_path / "tfidf").fit(TEXTS, LABELS)
    with pytest.raises(UserError, match="has no sentence vectors"):
        weft.Vectorizer(tfidf.run_folder_).fit()
