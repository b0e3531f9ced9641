"""Weights of rows in classical models: a weight of 2 is two copies, a weight of 0 no row."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from weft.classic.crf.tagger import Tagger
from weft.classic.fasttext.classifier import FastText
from weft.classic.linear.sklearn_fit import fit_classes, fit_number, fit_sets
from weft.classic.linear.tfidf import TfIdf
from weft.errors import UserError
from weft.tasks.classify import Classify
from weft.tasks.tag import Tag
from weft.text.example import Example, WordAnnotations

WEIGHTS = np.array([2.0, 1.0, 0.0, 3.0, 1.0, 2.0])
COPIES = np.repeat(np.arange(6), WEIGHTS.astype(int))
ROWS = csr_matrix(np.random.default_rng(0).random((6, 4)))
CLASSES = np.array([0, 1, 0, 2, 1, 0])


@pytest.mark.parametrize("classifier", ["logistic", "svm", "bayes"])
def test_linear_classes(classifier):
    # LinearSVC stops early, at an accuracy that the order of its rows decides.
    tolerance = 5e-3 if classifier == "svm" else 1e-6
    for targets, size in ((CLASSES, 3), (CLASSES > 0, 2)):
        targets = targets.astype(np.int64)
        how = (size, [1.0], 0, False)
        ((ours, bias),) = fit_classes(classifier, ROWS, targets, *how, WEIGHTS)
        ((theirs, other),) = fit_classes(classifier, ROWS[COPIES], targets[COPIES], *how)
        ((plain, _),) = fit_classes(classifier, ROWS, targets, *how)
        np.testing.assert_allclose(ours, theirs, atol=tolerance)
        np.testing.assert_allclose(bias, other, atol=tolerance)
        assert np.abs(ours - plain).max() > 10 * tolerance


def test_sets_and_numbers():
    sets = np.array([[1, 0], [0, 1], [1, 1], [0, 1], [1, 0], [0, 0]])
    ((ours, _),) = fit_sets("logistic", ROWS, sets, [1.0], 0, False, WEIGHTS)
    ((theirs, _),) = fit_sets("logistic", ROWS[COPIES], sets[COPIES], [1.0], 0)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    numbers = np.random.default_rng(1).random((6, 2))
    ((ours, bias),) = fit_number(ROWS, numbers, [1.0], WEIGHTS)
    ((theirs, other),) = fit_number(ROWS[COPIES], numbers[COPIES], [1.0])
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    np.testing.assert_allclose(bias, other, atol=1e-9)


TEXTS = ["good film", "bad film", "good plot", "bad plot", "good", "bad"] * 10
LABELS = np.array([1, 0, 1, 0, 1, 0] * 10)


def test_tfidf_passes_weights_on_with_and_without_a_chosen_strength():
    examples = [Example(text, str(y)) for text, y in zip(TEXTS, LABELS, strict=True)]
    task = Classify()
    space = task.space(examples)
    heavy = np.where(LABELS == 1, 5.0, 1.0)
    for settings in ({"C": 1.0}, {}):
        plain, weighted = TfIdf(**settings), TfIdf(**settings)
        plain.fit(TEXTS, LABELS, task, space)
        weighted.fit(TEXTS, LABELS, task, space, row_weights=heavy)
        before, after = (m.predict(["film plot"])[0] for m in (plain, weighted))
        assert after[1] - after[0] > before[1] - before[0] + 0.1


def test_fasttext_multiplies_losses_and_gradients():
    from weft.classic.fasttext.kernels import SOFTMAX, TrainingTargets, Weights, learn

    def step(weight, smoothing=0.1):
        aims = TrainingTargets(
            SOFTMAX, np.array([1], np.int32), np.zeros((0, 0), np.float32), smoothing,
            np.zeros(0, np.float32), 0.0, np.array(weight, np.float32),
        )  # fmt: skip
        random = np.random.default_rng(0)
        weights = Weights(
            random.random((3, 16), np.float32), np.zeros(3, np.float32),
            np.zeros((0, 16), np.float32), np.zeros(0, np.float32),
            random.random((16, 3), np.float32), np.zeros(3, np.float32),
            np.zeros(3, np.float32), np.zeros(3, np.float32),
        )  # fmt: skip
        rows, ends = np.array([0, 2], np.int32), np.array([2], np.int64)
        loss = learn(rows, ends, np.array([0]), 0, 1, aims, weights, 0.1, 0.1)
        return loss, weights

    loss, plain = step([])
    double, weighted = step([2.0])
    nothing, removed = step([0.0])
    assert double == pytest.approx(2 * loss, rel=1e-6)
    # AdaGrad's gains are the sums of squared gradients.
    np.testing.assert_allclose(weighted.bias_gains, 4 * plain.bias_gains, rtol=1e-6)
    np.testing.assert_allclose(weighted.gains, 4 * plain.gains, rtol=1e-5)
    assert nothing == 0
    assert not removed.bias_gains.any()
    assert not removed.gains.any()


def test_fasttext_fits_the_heavier_label():
    examples = [Example(text, str(y)) for text, y in zip(TEXTS, LABELS, strict=True)]
    task = Classify()
    space = task.space(examples)
    plain, weighted = (FastText(buckets=100, epochs=5) for _ in range(2))
    plain.fit(TEXTS, LABELS, task, space)
    weighted.fit(TEXTS, LABELS, task, space, row_weights=np.where(LABELS == 1, 5.0, 1.0))
    before, after = (m.predict(["film plot"])[0] for m in (plain, weighted))
    assert after[1] - after[0] > before[1] - before[0]


def test_crf_repeats_sentences():
    pytest.importorskip("pycrfsuite")
    sentences = [
        (("a", "dog"), ("D", "N")), (("the", "dog"), ("D", "N")), (("dogs", "run"), ("N", "V")),
    ]  # fmt: skip
    examples = [
        Example(" ".join(words), WordAnnotations({"tag": tags}, "tag"), words=words)
        for words, tags in sentences
    ]
    task = Tag(columns=["tag"])
    space = task.space(examples)

    def fit(rows, weights=None):
        tagger = Tagger()
        targets = [task.target(examples[i], space) for i in rows]
        tagger.fit([examples[i] for i in rows], targets, task, space, row_weights=weights)
        (chain,) = tagger.chains
        return chain.transitions

    np.testing.assert_array_equal(
        fit([0, 1, 2], np.array([2.0, 1.0, 3.0])), fit([0, 0, 1, 2, 2, 2])
    )
    with pytest.raises(UserError, match=r"the weight is 0\.5, but CRFsuite takes whole numbers"):
        fit([0, 1, 2], np.array([1.0, 0.5, 1.0]))
