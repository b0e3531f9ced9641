"""Merged columns: the same products, optimum and path as the columns before."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy.sparse import csr_matrix, hstack, random
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from weft.classic.linear.lone_columns import MergedColumns, merge_lone_columns
from weft.classic.linear.regularisation import fit_for
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.regress import LabelScale, Regress


@pytest.fixture
def rows() -> csr_matrix:
    """60 rows, 40 columns that many rows share, and 200 that a single row fills."""
    rng = np.random.default_rng(5)
    shared = random(60, 40, 0.3, "csr", rng=rng)
    lone = csr_matrix((rng.random(200) - 0.3, (rng.integers(60, size=200), np.arange(200))))
    lone.resize(60, 200)
    mixed = hstack([shared, lone], format="csr")
    return mixed[:, rng.permutation(240)].tocsr()


@pytest.fixture
def labels(rows: csr_matrix) -> np.ndarray:
    return np.random.default_rng(6).integers(3, size=rows.shape[0])


def merge(rows: csr_matrix) -> MergedColumns:
    merged = merge_lone_columns(rows)
    assert merged is not None
    return merged


def test_the_products_of_rows_stay_the_same(rows):
    merged = merge(rows)
    assert merged.rows.shape[1] < 110  # 40, and at most one for each row
    assert np.allclose((merged.rows @ merged.rows.T).toarray(), (rows @ rows.T).toarray())


def test_restored_weights_give_the_same_scores_and_norm(rows):
    merged = merge(rows)
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(merged.rows.shape[1], 3)), rng.normal(size=3)
    restored = merged.restore(weights)
    assert np.allclose(rows @ restored[0], merged.rows @ weights[0])
    assert np.allclose(np.square(restored[0]).sum(), np.square(weights[0]).sum())
    assert restored[1] is weights[1]


@pytest.mark.parametrize("steps", [5, 1000])
def test_logistic_regression_takes_the_same_steps(rows, labels, steps):
    merged = merge(rows)

    def fit(x):
        model = LogisticRegression(C=3.0, max_iter=steps, tol=1e-9)
        model.fit(x, labels)
        return model.coef_.T, model.intercept_

    with pytest.warns() if steps == 5 else nullcontext():
        plain, short = fit(rows), fit(merged.rows)
    assert np.allclose(merged.restore(short)[0], plain[0], atol=1e-6)
    assert np.allclose(short[1], plain[1], atol=1e-6)


def test_an_svm_finds_the_same_weights(rows, labels):
    merged = merge(rows)
    how = {"C": 0.5, "tol": 1e-9, "max_iter": 100_000, "random_state": 1}
    plain, short = LinearSVC(**how).fit(rows, labels), LinearSVC(**how).fit(merged.rows, labels)
    restored, _ = merged.restore((short.coef_.T, short.intercept_))
    assert np.allclose(restored, plain.coef_.T, atol=1e-5)


def test_few_lone_columns_are_left_alone(rows):
    shared = rows[:, np.bincount(rows.indices, minlength=240) > 1]
    assert merge_lone_columns(shared) is None


def test_a_column_that_holds_an_explicit_zero_keeps_a_weight_of_zero(rows):
    alone = csr_matrix(([0.0], ([3], [0])), shape=(60, 1))
    only = rows.tolil()
    only[3] = 0
    both = hstack([alone, only.tocsr()], format="csr")
    merged = merge(both)
    restored, _ = merged.restore((np.ones((merged.rows.shape[1], 1)), np.zeros(1)))
    assert np.isfinite(restored).all()
    assert restored[0] == 0


def test_a_fit_has_a_weight_for_every_column(rows, labels, monkeypatch):
    space = ClassSpace(("a", "b", "c"))
    ((weights, bias),) = fit_for("logistic", Classify(), space, seed=1)(rows, labels, [3.0])
    monkeypatch.setattr("weft.classic.linear.regularisation.merge_lone_columns", lambda rows: None)
    ((plain, plain_bias),) = fit_for("logistic", Classify(), space, seed=1)(rows, labels, [3.0])
    assert np.allclose(weights, plain, atol=1e-3)
    assert np.allclose(bias, plain_bias, atol=1e-3)


def test_ridge_regression_equals_scikit_learn_on_all_columns(rows):
    targets = np.random.default_rng(8).normal(size=(60, 1))
    fit = fit_for("ridge", Regress(), LabelScale(mean=0.0, deviation=1.0), seed=1)
    ((weights, bias),) = fit(rows, targets, [2.0])
    expected = Ridge(alpha=0.5, solver="lsqr", tol=1e-10).fit(rows, targets)
    assert np.allclose(weights[:, 0], expected.coef_.ravel(), atol=1e-4)
    assert np.allclose(bias, expected.intercept_, atol=1e-4)
