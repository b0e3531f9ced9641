"""Intervals against brute-force resampling of examples; paired tests; spread."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from weft.metrics import (
    ClassificationMetric,
    MetricValue,
    MultiLabelMetric,
    RegressionMetric,
    bootstrap_interval,
    paired_bootstrap,
    summarise_seeds,
)


def brute_force(statistic, predicted: np.ndarray, gold: np.ndarray, resamples: int = 2000):
    rng = np.random.default_rng(17)
    values = []
    for _ in range(resamples):
        pick = rng.integers(0, len(gold), len(gold))
        values.append(statistic(predicted[pick], gold[pick]))
    return np.quantile(values, [0.025, 0.975])


def macro_f1(predicted: np.ndarray, gold: np.ndarray) -> float:
    """Mean F1 over classes that occur, by the definition."""
    found = []
    for c in set(gold.tolist()) | set(predicted.tolist()):
        right = np.sum((gold == c) & (predicted == c))
        found.append(2 * right / (np.sum(gold == c) + np.sum(predicted == c)))
    return float(np.mean(found))


def near(figure: MetricValue, wanted: np.ndarray) -> None:
    """Both are random: 2,000 resamples leave the ends uncertain by a twentieth of the width."""
    slack = 0.1 * (wanted[1] - wanted[0])
    assert figure.low == pytest.approx(wanted[0], abs=slack)
    assert figure.high == pytest.approx(wanted[1], abs=slack)


def test_classification_interval_is_that_of_resampled_examples() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(-1, 4, 61)
    predicted = np.where(rng.random(61) < 0.6, np.maximum(gold, 0), rng.integers(0, 4, 61))
    measure = ClassificationMetric(5)
    measure.add(predicted, gold)
    found = measure.compute(resamples=2000)
    near(found["accuracy"], brute_force(lambda p, g: np.mean(p == g), predicted, gold))
    near(found["macro_f1"], brute_force(macro_f1, predicted, gold))


def test_label_set_interval_is_that_of_resampled_examples() -> None:
    rng = np.random.default_rng(1)
    gold = rng.integers(0, 2, (53, 3))
    predicted = np.where(rng.random(gold.shape) < 0.7, gold, 1 - gold)
    measure = MultiLabelMetric(3)
    measure.add(predicted, gold)
    found = measure.compute(resamples=2000)
    for average in ("micro", "macro"):
        # Scikit-learn is slow and here only for the definition, so fewer resamples.
        wanted = brute_force(
            lambda p, g, a=average: metrics.f1_score(g, p, average=a, zero_division=0),
            predicted,
            gold,
            600,
        )
        slack = 0.15 * (wanted[1] - wanted[0])
        figure = found[f"{average}_f1"]
        assert [figure.low, figure.high] == pytest.approx(wanted.tolist(), abs=slack)
    near(found["accuracy"], brute_force(lambda p, g: (p == g).all(1).mean(), predicted, gold))


def test_regression_interval_is_that_of_resampled_examples() -> None:
    rng = np.random.default_rng(2)
    gold = rng.integers(0, 6, 47).astype(float)
    predicted = (gold + rng.normal(size=47)).round(1)
    measure = RegressionMetric()
    measure.add(predicted, gold)
    found = measure.compute(resamples=2000)
    near(found["pearson"], brute_force(lambda p, g: stats.pearsonr(p, g)[0], predicted, gold))
    near(found["spearman"], brute_force(lambda p, g: stats.spearmanr(p, g)[0], predicted, gold))
    near(found["mse"], brute_force(lambda p, g: np.mean((p - g) ** 2), predicted, gold))


def test_any_statistic_gets_the_normal_interval_of_a_mean() -> None:
    values = np.random.default_rng(5).normal(3, 2, 400)
    figure = bootstrap_interval(np.mean, values, resamples=4000)
    error = values.std() / 20
    assert figure.value == values.mean()
    assert figure.n == 400
    assert figure.low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert figure.high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)
    narrow = bootstrap_interval(np.mean, values, resamples=4000, level=0.5)
    assert narrow.high - narrow.low == pytest.approx(2 * 0.674 * error, rel=0.1)


def test_the_same_seed_gives_the_same_interval() -> None:
    measure = ClassificationMetric(2)
    measure.add(np.arange(31) % 2, np.arange(31) % 3 % 2)
    assert measure.compute(seed=3) == measure.compute(seed=3)
    assert measure.compute(seed=3) != measure.compute(seed=4)


def test_paired_bootstrap_agrees_with_the_normal_approximation() -> None:
    rng = np.random.default_rng(7)
    a = rng.random(997) < 0.80
    b = np.where(rng.random(997) < 0.9, a, ~a)
    difference = a.astype(float) - b
    z = abs(difference.mean()) / (difference.std() / np.sqrt(997))
    assert 0.5 < z < 6
    assert paired_bootstrap(a, b) == pytest.approx(2 * stats.norm.sf(z), abs=0.01)
    assert paired_bootstrap(a, b) == paired_bootstrap(b, a)


def test_paired_bootstrap_at_its_ends() -> None:
    right = np.ones(101, dtype=bool)
    assert paired_bootstrap(right, right) == 1.0
    mostly = np.arange(101) % 3 == 0
    assert paired_bootstrap(right, mostly, resamples=999) == 1 / 1000  # never 0
    assert paired_bootstrap(right[:0], right[:0]) == 1.0


def test_paired_bootstrap_is_level_when_nothing_differs() -> None:
    rng = np.random.default_rng(11)
    trials = [rng.random((2, 211)) < 0.7 for _ in range(200)]
    rejected = np.mean([paired_bootstrap(a, b, resamples=500) < 0.1 for a, b in trials])
    assert 0.04 < rejected < 0.18  # 10 % of 200 trials, two standard errors and more


def test_spread_over_seeds() -> None:
    found = summarise_seeds([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.n == 3
    assert found.deviation == pytest.approx(np.sqrt(7 / 3))  # divided by n - 1
    assert summarise_seeds([5.0]).deviation == 0.0
