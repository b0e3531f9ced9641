"""Linear models over sparse rows, fitted by scikit-learn and handed back as plain arrays.

n texts   V features   C classes   K weight columns: C, or 1 for two classes
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import UserError
from weft.machine import require_memory

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NEVER = -100.0  # logit of a class without training examples: a probability of about 1e-44

# Steps of the optimiser from one strength to the next; the weights found for one are where the
# next begins. More made no difference on the dev parts of nine data sets.
STEPS = 20

Weights = tuple[np.ndarray, np.ndarray]  # (V, K) and (C,)


def check_size(classifier: str, texts: int, labels: int, dev: int = 0) -> None:
    """Raise OutOfMemory before the fit where its dense tables of texts × labels would not fit.

    Logistic regression holds the scores of every text twice, naive Bayes every label as a column;
    an SVM fits one label after the other. The dev part is scored as a whole.
    """
    columns = labels if labels > 2 else 1
    held = 0 if classifier == "svm" else 2 * texts
    require_memory(
        8 * columns * (held + 2 * dev),
        f"classic 'tfidf' with {texts:,} texts and {labels:,} labels",
        "Merge or drop rare labels, train on fewer texts, or use --recipe fasttext: slower, "
        "but small.",
    )


def fit_classes(
    classifier: str,
    rows: "csr_matrix",
    targets: np.ndarray,
    size: int,
    strengths: Sequence[float],
    seed: int,
    balanced: bool = False,
    row_weights: np.ndarray | None = None,
) -> Iterator[Weights]:
    """Fit one of `size` classes at each strength; with two classes the weights are one column.

    `row_weights` (n,) multiply the losses of texts.
    """
    found = np.unique(targets)
    if len(found) < 2:
        raise UserError(
            "classic 'tfidf': the training part holds one class only. Enlarge or shuffle it."
        )
    from sklearn.utils.class_weight import compute_sample_weight

    model: Any = None
    bayes = classifier == "bayes"
    for strength in strengths:
        model = _make(classifier, strength, seed, balanced, model, len(strengths) > 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a step of a path is not meant to converge
            weights = row_weights
            if bayes and balanced:  # it has no class_weight
                weights = compute_sample_weight("balanced", targets)
                weights = weights if row_weights is None else weights * row_weights
            model.fit(rows, targets, **({} if weights is None else {"sample_weight": weights}))
        yield _weights(model, classifier, found, size)


def _weights(model: Any, classifier: str, found: np.ndarray, size: int) -> Weights:
    """Return what a model of scikit-learn learned, with a column for each of `size` classes."""
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
    all_weights = np.zeros((len(weights), size))
    all_bias = np.full(size, NEVER)
    all_weights[:, found], all_bias[found] = weights, bias
    return all_weights, all_bias


def fit_sets(
    classifier: str,
    rows: "csr_matrix",
    targets: np.ndarray,
    strengths: Sequence[float],
    seed: int,
    balanced: bool = False,
    row_weights: np.ndarray | None = None,
) -> Iterator[Weights]:
    """Fit a yes-or-no model for each column of the 0/1 targets (n, C), at each strength."""
    size = targets.shape[1]
    always = np.zeros(size)
    paths: dict[int, Iterator[Weights]] = {}
    for label in range(size):
        wanted = (targets[:, label] > 0).astype(np.int64)
        if wanted.all() or not wanted.any():  # nothing to tell apart: always that answer
            always[label] = NEVER * (1 - 2 * wanted[0])
        else:
            paths[label] = fit_classes(
                classifier, rows, wanted, 2, strengths, seed, balanced, row_weights
            )
    for _ in strengths:
        weights, bias = np.zeros((rows.shape[1], size)), always.copy()
        for label, path in paths.items():
            column, offset = next(path)
            weights[:, label], bias[label] = column[:, 0], offset[1]
        yield weights, bias


def fit_number(
    rows: "csr_matrix",
    targets: np.ndarray,
    strengths: Sequence[float],
    row_weights: np.ndarray | None = None,
) -> Iterator[Weights]:
    """Fit ridge regression on one number, or several, at each strength."""
    from sklearn.linear_model import Ridge

    rows = rows.astype(np.float64)
    for strength in strengths:
        model = Ridge(alpha=1 / strength).fit(rows, targets, sample_weight=row_weights)
        yield np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)


def _make(
    classifier: str, strength: float, seed: int, balanced: bool, before: Any, path: bool
) -> Any:
    """Return an unfitted model; on a path, one that goes on from the model before."""
    if classifier == "bayes":
        from sklearn.naive_bayes import MultinomialNB

        return MultinomialNB(alpha=1 / strength)
    weight = "balanced" if balanced else None
    if classifier == "svm":
        from sklearn.svm import LinearSVC

        return LinearSVC(C=strength, random_state=seed, class_weight=weight)
    if before is not None:
        return before.set_params(C=strength)
    from sklearn.linear_model import LogisticRegression

    if path:
        return LogisticRegression(
            C=strength, max_iter=STEPS, tol=1e-5, warm_start=True, class_weight=weight
        )
    # Twice scikit-learn's tolerance: a third fewer steps, and the same answers on five data sets.
    return LogisticRegression(C=strength, max_iter=1000, tol=2e-4, class_weight=weight)
