"""Promises of accuracy and coverage: the bound, its violations over many draws, damaged files."""

import copy

import numpy as np
import pytest
from scipy.stats import beta

from weft.errors import UserError
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.confidence.calibration import fit_temperature, softmax
from weft.tasks.confidence.table import (
    ANSWER_ALL,
    DELTA,
    MAX_QUANTILES,
    MIN_STEPS,
    _count_tests,
    build_table,
    load_table,
)

DRAWS = 2000


def selective_accuracy(threshold, power):
    """The accuracy above a threshold where confidence u is uniform and right with prob. 1 − cu^p.

    Confidences are drawn as u, so the exact mean of 1 − (1 − u)^power on (threshold, 1) is known.
    """
    low = max(threshold, 0.0)
    return 1 - (1 - low) ** power / (power + 1)


def draw(rng, n, power):
    confidences = rng.random(n)
    return confidences, rng.random(n) < 1 - (1 - confidences) ** power


@pytest.mark.parametrize("accuracy", [0.9, 0.95])
@pytest.mark.parametrize("n", [131, 523])
def test_promise_is_broken_in_at_most_delta_of_all_draws(accuracy, n):
    """The exact accuracy above the chosen threshold is too low in at most DELTA of the draws."""
    rng, power = np.random.default_rng(n), 4.0
    broken, promised = 0, 0
    for _ in range(DRAWS):
        try:
            threshold = build_table(*draw(rng, n, power)).abstention_threshold(accuracy)
        except UserError:
            continue
        promised += 1
        broken += selective_accuracy(threshold, power) < accuracy
    assert broken / DRAWS <= DELTA
    if n == 523:
        assert promised > 0.8 * DRAWS  # else the bound would be kept by never answering


def test_promise_survives_a_choice_of_checkpoint_and_temperature_on_the_same_texts():
    """Early stopping and the temperature saw the dev texts, too; the bound has room for it."""
    rng = np.random.default_rng(7)
    n, labels, checkpoints = 400, 5, 10
    broken = 0
    for _ in range(60):
        centre = rng.normal(size=(n + 20_000, labels)) * 2.2
        gold = (softmax(centre).cumsum(1) > rng.random((len(centre), 1))).argmax(1)
        best = max(
            (3 * (centre + rng.normal(size=centre.shape)) for _ in range(checkpoints)),
            key=lambda scores: (scores[:n].argmax(1) == gold[:n]).mean(),
        )
        best = best * fit_temperature(best[:n], gold[:n])
        confidences, right = softmax(best).max(1), best.argmax(1) == gold
        try:
            threshold = build_table(confidences[:n], right[:n]).abstention_threshold(0.9)
        except UserError:
            continue
        broken += right[n:][confidences[n:] > threshold].mean() < 0.9
    assert broken <= 60 * DELTA


def test_threshold_has_clopper_and_pearsons_bound():
    rng = np.random.default_rng(3)
    confidences, right = draw(rng, 523, 3.0)
    table = build_table(confidences, right)
    threshold = table.abstention_threshold(0.9)
    tests = _count_tests(523, 0.9)
    above = confidences > threshold
    wrong, n = (above & ~right).sum(), above.sum()
    assert beta.ppf(1 - DELTA / tests, wrong + 1, n - wrong) <= 0.1  # the upper bound of the risk
    i = table.thresholds.index(threshold)
    assert i < len(table.thresholds) - 1
    wrong, n = table.errors[i + 1], table.answered[i + 1]
    assert beta.ppf(1 - DELTA / tests, wrong + 1, n - wrong) > 0.1  # the next would be too low
    assert table.coverage_at(0.9) == pytest.approx(above.mean())


def test_perfect_answers_are_all_given_and_ties_stay_together():
    table = build_table(np.full(200, 0.7), np.ones(200, bool))
    assert table.abstention_threshold(0.95) == ANSWER_ALL
    mixed = build_table(np.repeat([0.9, 0.4], 200), np.repeat([True, False], 200))
    assert mixed.abstention_threshold(0.95) == 0.4  # strictly above: the texts at 0.9
    assert mixed.coverage_at(0.95) == 0.5


def test_promises_that_cannot_be_kept_are_errors():
    rng = np.random.default_rng(0)
    hopeless = build_table(rng.random(500), rng.random(500) < 0.7)
    with pytest.raises(
        UserError, match=r"cannot be promised: on the 500.*highest that can is 0\.6"
    ):
        hopeless.abstention_threshold(0.95)
    few = build_table(rng.random(40), np.ones(40, bool))
    with pytest.raises(UserError, match="from 40 dev texts; it takes at least 59"):
        few.abstention_threshold(0.95)
    with pytest.raises(UserError, match="above 0 and below 1, got 95"):
        few.abstention_threshold(95)
    with pytest.raises(UserError, match=r"label_sets 0\.99 cannot.* at least 99"):
        build_table(rng.random(40), np.ones(40, bool), rng.random(40)).label_set_quantile(0.99)
    with pytest.raises(UserError, match="sets of labels already"):
        few.label_set_quantile(0.9)


@pytest.mark.parametrize("n", [59, 700])
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_label_sets_cover_as_often_as_promised(n, coverage):
    """The coverage over calibration and test texts is the promised one, and not much more."""
    rng = np.random.default_rng(n)
    hits, sizes = [], []
    for _ in range(400):
        scores = rng.normal(size=(n + 50, 6)) * 1.5
        gold = (softmax(scores * 0.7).cumsum(1) > rng.random((n + 50, 1))).argmax(1)
        probs = softmax(scores)  # the model is overconfident, and the promise holds all the same
        right = probs.argmax(1) == gold
        nonconformity = 1 - probs[np.arange(n + 50), gold]
        table = build_table(probs.max(1)[:n], right[:n], nonconformity[:n])
        quantile = table.label_set_quantile(coverage)
        hits.append((nonconformity[n:] <= quantile).mean())
        sizes.append((1 - probs[n:] <= quantile).sum(1).mean())
    noise = 3 * np.std(hits) / 20
    assert coverage - noise <= np.mean(hits) <= coverage + 1 / (n + 1) + 1 / MAX_QUANTILES + noise
    assert np.mean(sizes) < 6


def test_many_quantiles_are_thinned_upwards():
    values = np.sort(np.random.default_rng(1).random(12_345))
    table = build_table(values, np.ones(len(values), bool), values)
    assert len(table.nonconformity) == MAX_QUANTILES
    exact = values[int(np.ceil(12_346 * 0.9)) - 1]
    assert exact <= table.label_set_quantile(0.9) <= values[int(12_346 * 0.903)]


def test_table_survives_saving():
    rng = np.random.default_rng(5)
    scores, gold = rng.normal(size=(101, 3)), rng.integers(3, size=101)
    space = Classify().calibrate(scores, gold, ClassSpace(("a", "b", "c")))
    assert space.confidence is not None
    assert Classify().load_space(space.to_json()) == space


DAMAGE = {
    "format": (("format", "1"), "format '1'"),
    "newer": (("format", 2), "format 2, this Weft reads 1. Upgrade"),
    "text": (("n", "101"), "whole numbers"),
    "huge": (("n", 10**30), "whole numbers"),
    "other n": (("n", 1001), "list of"),
    "short": (("errors", [0]), "list of 5"),
    "object": (("thresholds", {"a": 1}), "list of 5"),
    "above 1": (("thresholds", [7.0] * MIN_STEPS), "from -1 to 1"),
    "nan": (("thresholds", [float("nan")] * MIN_STEPS), "from -1 to 1"),
    "rising": (("thresholds", [i / 20 for i in range(MIN_STEPS)]), "do not fall"),
    "too many": (("answered", [101] * MIN_STEPS), "more answers than texts"),
    "errors": (("errors", [101] * MIN_STEPS), "more errors than answers"),
    "fall": (("errors", [1] + [0] * (MIN_STEPS - 1)), "that fall"),
    "boolean": (("errors", [True] * MIN_STEPS), "whole numbers"),
    "quantiles": (("nonconformity", [0.5] * 3), "list of 101"),
    "missing": (("answered", None), "whole numbers"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_tables_are_errors(name):
    rng = np.random.default_rng(5)
    saved = build_table(rng.random(101), rng.random(101) < 0.8, rng.random(101)).to_json()
    (key, value), message = DAMAGE[name]
    saved = {**copy.deepcopy(saved), key: value}
    with pytest.raises(UserError, match=message):
        load_table(saved)
    labels = {"entries": ["a", "b"], "threshold": 0.5, "confidence": saved}
    with pytest.raises(UserError, match=message):
        Classify().load_space(labels)


@pytest.mark.parametrize("saved", [None, [], 3, {}])
def test_a_table_of_another_kind_is_an_error(saved):
    with pytest.raises(UserError, match="confidence table is damaged"):
        load_table(saved)
