"""Linear models over sparse rows, fitted by scikit-learn and handed back as plain arrays.

n texts   V features   C classes   K weight columns: C, or 1 for two classes
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import UserError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NEVER = -100.0  # logit of a class without training examples: a probability of about 1e-44

Weights = tuple[np.ndarray, np.ndarray]  # (V, K) and (C,)


def fit_classes(
    classifier: str, rows: "csr_matrix", targets: np.ndarray, size: int, strength: float, seed: int
) -> Weights:
    """One of `size` classes; with two, one column of weights says how much the second is meant."""
    found = np.unique(targets)
    if len(found) < 2:
        raise UserError(
            "classic 'tfidf': the training part holds one class only. Enlarge or shuffle it."
        )
    model = _make(classifier, strength, seed).fit(rows, targets)
    if classifier == "bayes":
        weights, bias = model.feature_log_prob_.T, model.class_log_prior_  # (V, C), (C,)
        if len(found) == 2:
            weights, bias = weights[:, 1:] - weights[:, :1], bias[1:] - bias[:1]
    else:
        weights, bias = model.coef_.T, model.intercept_
    if len(found) == 2:
        bias = np.array([0.0, bias[0]])
        if size == 2:
            return weights, bias
        weights = np.concatenate([np.zeros_like(weights), weights], axis=1)  # (V, 2)
    all_weights = np.zeros((rows.shape[1], size))
    all_bias = np.full(size, NEVER)
    all_weights[:, found], all_bias[found] = weights, bias
    return all_weights, all_bias


def fit_sets(
    classifier: str, rows: "csr_matrix", targets: np.ndarray, strength: float, seed: int
) -> Weights:
    """A yes-or-no model for each column of the 0/1 targets (n, C)."""
    size = targets.shape[1]
    weights, bias = np.zeros((rows.shape[1], size)), np.zeros(size)
    for label in range(size):
        wanted = (targets[:, label] > 0).astype(np.int64)
        if wanted.all() or not wanted.any():  # nothing to tell apart: always that answer
            bias[label] = NEVER * (1 - 2 * wanted[0])
            continue
        column, offset = fit_classes(classifier, rows, wanted, 2, strength, seed)
        weights[:, label], bias[label] = column[:, 0], offset[1]
    return weights, bias


def fit_number(rows: "csr_matrix", targets: np.ndarray, strength: float) -> Weights:
    """Ridge regression on one number."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1 / strength).fit(rows.astype(np.float64), targets)
    return model.coef_.reshape(-1, 1), np.array([model.intercept_])


def _make(classifier: str, strength: float, seed: int) -> Any:
    if classifier == "bayes":
        from sklearn.naive_bayes import MultinomialNB

        return MultinomialNB(alpha=1 / strength)
    if classifier == "svm":
        from sklearn.svm import LinearSVC

        return LinearSVC(C=strength, random_state=seed)
    from sklearn.linear_model import LogisticRegression

    # Twice scikit-learn's tolerance: a third fewer steps, and the same answers on five data sets.
    return LogisticRegression(C=strength, max_iter=1000, tol=2e-4)
