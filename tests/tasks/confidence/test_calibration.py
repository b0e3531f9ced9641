"""Temperature against scipy, the guard on it, and the expected calibration error by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from weft.metrics.calibration import expected_calibration_error, risk_coverage
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.confidence.calibration import (
    calibration_error,
    fit_scale,
    fit_temperature,
    negative_log_likelihood,
    sigmoid,
    softmax,
    uncalibrate,
)

C = 7
SPACE = ClassSpace(tuple("abcdefg"))


def draw(rows, factor, seed=0):
    """Logits whose probabilities are right after division by `factor`, and labels drawn so."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, C)) * 2
    gold = (softmax(logits).cumsum(1) > rng.random((rows, 1))).argmax(1)
    return logits * factor, gold


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_temperature_is_the_one_that_scipy_finds(factor):
    scores, gold = draw(613, factor)

    def loss(log_scale):
        return -log_softmax(np.exp(log_scale) * scores, axis=1)[np.arange(613), gold].mean()

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    assert fit_scale(scores, gold) == pytest.approx(np.exp(best.x), rel=1e-5)
    assert 1 / fit_scale(scores, gold) == pytest.approx(factor, rel=0.15)


def test_temperature_of_several_labels_is_the_one_that_scipy_finds():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(411, C)) * 2
    gold = (rng.random((411, C)) < sigmoid(logits)).astype(np.float32)
    scores = 2.5 * logits

    def loss(log_scale):
        scaled = np.exp(log_scale) * scores
        return (np.logaddexp(0, scaled) - gold * scaled).sum()

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    assert fit_scale(scores, gold) == pytest.approx(np.exp(best.x), rel=1e-5)


def test_likelihood_is_the_definition():
    scores, gold = draw(23, 1.0)
    by_hand = np.mean([logsumexp(row) - row[g] for row, g in zip(scores, gold, strict=True)])
    assert negative_log_likelihood(scores, gold) == pytest.approx(by_hand)


def test_overconfident_logits_get_calibrated_probabilities():
    scores, gold = draw(2000, 4.0)
    later, later_gold = draw(2000, 4.0, seed=5)
    scale = fit_temperature(scores, gold)
    assert calibration_error(later, later_gold) > 0.15
    assert calibration_error(scale * later, later_gold) < 0.04


def test_a_temperature_that_does_not_generalise_is_not_kept():
    scores, gold = draw(300, 1.0, seed=3)  # right already: a fitted one is noise
    kept = [fit_temperature(*draw(300, 1.0, seed=seed)) for seed in range(20)]
    assert kept.count(1.0) >= 10
    assert fit_temperature(scores[:49], gold[:49]) == 1  # too few to tell
    far, far_gold = draw(49, 5.0)
    assert fit_scale(far, far_gold) != 1
    assert fit_temperature(far, far_gold) == 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.floats(0.2, 6), rows=st.integers(50, 90))
def test_calibrating_never_changes_a_label(seed, factor, rows):
    scores, gold = draw(rows, factor, seed)
    space = Classify().calibrate(scores, gold, SPACE)
    np.testing.assert_array_equal(
        Classify().predict_targets(scores, space), Classify().predict_targets(scores, SPACE)
    )
    values = [answer.value for answer in Classify().answers(scores, space)]
    assert values == [SPACE.entries[i] for i in scores.argmax(1)]


def test_calibrating_never_changes_a_set_of_labels():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(301, C)) * 2
    gold = (rng.random((301, C)) < sigmoid(logits)).astype(np.float32)
    task, scores = Classify(multi_label=True), 3 * logits
    before = task.tune(scores, gold, SPACE)
    after = task.calibrate(scores, gold, before)
    assert after.scale == pytest.approx(1 / 3, rel=0.2)
    assert after.threshold != before.threshold
    np.testing.assert_array_equal(
        task.predict_targets(scores, before), task.predict_targets(scores, after)
    )


def test_probabilities_before_calibration_can_be_had_again():
    scores, _ = draw(19, 2.0)
    np.testing.assert_allclose(uncalibrate(softmax(0.3 * scores), 0.3), softmax(scores), atol=1e-12)


def test_calibration_error_by_hand():
    confidences = np.array([0.1, 0.62, 0.64, 0.9, 1.0])
    right = np.array([False, True, False, True, True])
    # Five bins (low, high]: 0.1 alone; none; none; 0.62 and 0.64; 0.9 and 1.0.
    by_hand = (1 * 0.1 + 2 * abs(0.5 - 0.63) + 2 * abs(1 - 0.95)) / 5
    assert expected_calibration_error(confidences, right, 5) == pytest.approx(by_hand)
    assert expected_calibration_error(np.zeros(0), np.zeros(0, bool)) == 0


def test_risk_coverage_by_hand():
    curve = risk_coverage(np.array([0.5, 0.9, 0.7, 0.7]), np.array([False, True, True, False]))
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]  # equals are answered together
    assert curve.accuracy.tolist() == pytest.approx([1.0, 2 / 3, 0.5])
    assert curve.coverage_at(0.9) == 0.25
    assert curve.coverage_at(0.6) == 0.75
    assert risk_coverage(np.array([0.3]), np.array([False])).coverage_at(0.5) == 0
    assert curve.area == pytest.approx(0.5 * (1 / 3) + 0.25 * 0.5)
