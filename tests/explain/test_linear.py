"""Linear contributions: exact, and on the right words."""

import numpy as np
import pytest

from weft.classic.linear.tfidf import TfIdf
from weft.classic.linear.tfidf_vectorizer import (
    character_grams,
    character_offsets,
    word_grams,
    word_offsets,
)
from weft.explain import explain
from weft.tasks.classify import Classify, ClassSpace

TEXTS = ["the film was good", "bad bad film!", "so-so İzmir plot", "the cast, fine", "dull İ end"]


def fitted(targets=(0, 1, 2, 0, 1), **settings):
    part = TfIdf(**settings)
    size = max(targets) + 1
    space = ClassSpace(tuple("abc"[:size]))
    part.fit(TEXTS, np.array(targets), Classify(), space)
    return part


@pytest.mark.parametrize("text", ["a film, a film!", "", "one", "x  yy\tzzz-z"])
@pytest.mark.parametrize("span", [(1, 1), (1, 3), (2, 3), (3, 5)])
def test_places_are_those_of_the_n_grams(text, span):
    for grams, places in ((word_grams, word_offsets), (character_grams, character_offsets)):
        assert [gram for gram, _ in places(text, *span)] == list(grams(text, *span))
    for gram, spans in word_offsets(text, *span):
        assert " ".join(text[start:end] for start, end in spans) == gram
    for gram, [(start, end)] in character_offsets(text, *span):
        assert text[start:end] == gram.strip() or (gram == " " and end == start + 1)


@pytest.mark.parametrize("classifier", ["logistic", "svm", "bayes"])
@pytest.mark.parametrize("targets", [(0, 1, 2, 0, 1), (0, 1, 1, 0, 1)])
@pytest.mark.parametrize("words", [[1, 2], []])
def test_contributions_sum_to_the_scores_less_the_bias(classifier, targets, words):
    characters = [] if words else [2, 4]
    part = fitted(targets, classifier=classifier, words=words, characters=characters)
    for direction in np.eye(max(targets) + 1, dtype=np.float32):
        for text in [*TEXTS, "good good film, good?", "nothing known", ""]:
            pieces = part.contributions(text, direction)
            wanted = (part.predict([text])[0] - part.bias) @ direction
            assert sum(weight for _, _, weight in pieces) == pytest.approx(
                wanted, rel=1e-6, abs=1e-5
            )


def test_both_families_count():
    part = fitted(words=[1, 2], characters=[2, 3])
    direction = np.array([1, -0.5, -0.5], np.float32)
    pieces = part.contributions(TEXTS[1], direction)
    wanted = (part.predict([TEXTS[1]])[0] - part.bias) @ direction
    assert sum(weight for _, _, weight in pieces) == pytest.approx(wanted, rel=1e-6, abs=1e-5)


def test_letters_that_grow_when_lowered_do_not_shift_the_rest():
    part = fitted(words=[1, 1])
    text = TEXTS[4]
    assert len(text.lower()) > len(text)
    spans = {(start, end) for start, end, _ in part.contributions(text, np.eye(3)[1])}
    assert {text[start:end] for start, end in spans} >= {"dull", "İ", "end"}


@pytest.mark.parametrize("name", ["tfidf", "fasttext"])
def test_the_deciding_word_of_a_trained_model_is_found(name, trained):
    predictor = trained(name)
    texts = ["the film was good", "the film was bad"]
    for found, word in zip(explain(predictor, texts), ("good", "bad"), strict=True):
        assert found.method == "linear"
        (best,) = found.strongest(1)
        assert found.text[best.start : best.end] == word
        assert best.weight > 0
        direction = [-1, 1] if found.target == "positive" else [1, -1]
        wanted = predictor.engine.part.predict([found.text])[0] - predictor.engine.part.bias
        assert sum(w.weight for w in found.words) == pytest.approx(wanted @ direction, abs=1e-5)
    # For the other label every word says the opposite.
    (other,) = explain(predictor, texts[:1], target="negative")
    (own,) = explain(predictor, texts[:1], target="positive")
    assert [w.weight for w in other.words] == pytest.approx([-w.weight for w in own.words])
