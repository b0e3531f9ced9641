"""Figures against scikit-learn and scipy, and merging against counting at once."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from weft.metrics import ClassificationMetric, Metric, MultiLabelMetric, RegressionMetric


def random_classes(seed: int, unseen: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(-1 if unseen else 0, 5, 97)
    predicted = np.where(rng.random(97) < 0.5, np.maximum(gold, 0), rng.integers(0, 5, 97))
    return predicted, gold


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_classification_agrees_with_scikit_learn(seed: int, unseen: bool) -> None:
    predicted, gold = random_classes(seed, unseen)
    measure = ClassificationMetric(7)  # two classes never occur
    measure.add(predicted, gold)
    found = measure.compute(resamples=0)
    assert found["accuracy"].value == pytest.approx(metrics.accuracy_score(gold, predicted))
    wanted = metrics.f1_score(gold, predicted, average="macro", zero_division=0)
    assert found["macro_f1"].value == pytest.approx(wanted)
    wanted = metrics.matthews_corrcoef(gold, predicted)
    assert found["matthews"].value == pytest.approx(wanted)
    assert found["accuracy"].n == 97
    rows = metrics.precision_recall_fscore_support(
        gold, predicted, labels=range(7), zero_division=0
    )
    for i, one in enumerate(measure.per_class()):
        wanted = [row[i] for row in rows]
        assert [one.precision, one.recall, one.f1, one.support] == pytest.approx(wanted)
    table = metrics.confusion_matrix(gold, predicted, labels=range(7))
    np.testing.assert_array_equal(measure.confusion[:-1], table)
    assert measure.confusion[-1].sum() == (gold == -1).sum()


def test_a_label_never_seen_is_wrong_and_has_its_own_row() -> None:
    measure = ClassificationMetric(3)
    measure.add(np.array([2, 2, 0]), np.array([-1, 2, 0]))
    assert measure.compute()["accuracy"].value == pytest.approx(2 / 3)
    assert measure.compute()["macro_f1"].value == pytest.approx((1 + 2 / 3 + 0) / 3)
    np.testing.assert_array_equal(measure.confusion, [[1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 1]])


def test_one_answer_for_all_correlates_with_nothing() -> None:
    measure = ClassificationMetric(2)
    measure.add(np.zeros(3_000_001, int), np.repeat([0, 1], [3_000_000, 1]))  # squares are large
    assert measure.compute(resamples=0)["matthews"].value == 0.0
    measure.add(np.array([1]), np.array([1]))
    wanted = np.sqrt(0.5)  # of two rare ones, one was found
    assert measure.compute(resamples=0)["matthews"].value == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("size", [5, 11])  # 2 x 5 bits do not fill a byte, 2 x 11 take three
def test_label_sets_agree_with_scikit_learn(size: int) -> None:
    rng = np.random.default_rng(size)
    gold = (rng.random((53, size)) < 0.3).astype(int)
    predicted = np.where(rng.random(gold.shape) < 0.8, gold, 1 - gold)
    measure = MultiLabelMetric(size)
    measure.add(predicted, gold)
    found = measure.compute(resamples=0)
    for name, average in (("micro_f1", "micro"), ("macro_f1", "macro")):
        wanted = metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert found[name].value == pytest.approx(wanted)
    assert found["accuracy"].value == pytest.approx(metrics.accuracy_score(gold, predicted))
    rows = metrics.precision_recall_fscore_support(gold, predicted, zero_division=0)
    for i, one in enumerate(measure.per_class()):
        wanted = [row[i] for row in rows]
        assert [one.precision, one.recall, one.f1, one.support] == pytest.approx(wanted)


def test_labels_that_never_occur_do_not_lower_macro_f1() -> None:
    measure = MultiLabelMetric(3)
    measure.add(np.array([[1, 0, 0], [1, 0, 0]]), np.array([[1, 0, 0], [0, 1, 0]]))
    assert measure.compute()["macro_f1"].value == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("ties", [False, True])
def test_regression_agrees_with_scipy(ties: bool) -> None:
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 5, 89).astype(float) if ties else rng.normal(size=89)
    predicted = gold + rng.normal(size=89)
    if ties:
        predicted = predicted.round()
    measure = RegressionMetric(unit=3.0)
    measure.add(predicted, gold)
    found = measure.compute(resamples=0)
    assert found["pearson"].value == pytest.approx(stats.pearsonr(predicted, gold)[0])
    assert found["spearman"].value == pytest.approx(stats.spearmanr(predicted, gold)[0])
    assert found["mse"].value == pytest.approx(9 * np.mean((predicted - gold) ** 2))


@pytest.mark.parametrize("gold", [[1.0, 2.0, 4.0], [0.1, 0.1, 0.1]])
def test_a_constant_side_has_no_correlation(gold: list[float]) -> None:
    measure = RegressionMetric()
    # The mean of 3 times 0.1 is not 0.1, so the variance is not 0: two such sides would give 1.
    measure.add(np.full(3, 0.1), np.array(gold))
    found = measure.compute(resamples=11)
    for name in ("pearson", "spearman"):
        assert found[name].value == found[name].low == found[name].high == 0.0


@pytest.mark.parametrize(
    "measure", [ClassificationMetric(3), MultiLabelMetric(3), RegressionMetric()]
)
def test_nothing_counted_gives_zeros_with_n_0(measure: Metric) -> None:
    for figure in measure.compute().values():
        assert figure.to_json() == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}


cuts = st.lists(st.integers(0, 31), max_size=3).map(sorted)


def in_pieces(make: type, argument: float, predicted: np.ndarray, gold: np.ndarray, at: list[int]):
    """The figures of pieces counted apart and merged in reverse order."""
    whole = make(argument)
    pairs = zip(np.split(predicted, at), np.split(gold, at), strict=True)
    for piece in reversed(list(pairs)):
        part = make(argument)
        part.add(*piece)
        whole.merge(part)
    return whole.compute(resamples=13)


def at_once(make: type, argument: float, predicted: np.ndarray, gold: np.ndarray):
    measure = make(argument)
    measure.add(predicted, gold)
    return measure.compute(resamples=13)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), cuts)
def test_merging_equals_counting_at_once(seed: int, at: list[int]) -> None:
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 3, (2, 31))
    sets = rng.integers(0, 2, (2, 31, 3))
    numbers = rng.normal(size=(2, 31))
    for make, argument, data in (
        (ClassificationMetric, 3, one),
        (MultiLabelMetric, 3, sets),
        (RegressionMetric, 2.0, numbers),
    ):
        assert in_pieces(make, argument, data[0], data[1], at) == at_once(make, argument, *data)


def test_measuring_needs_no_torch_and_no_scikit_learn() -> None:
    code = "import sys, weft.metrics; assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
