"""Classify texts, or pairs of texts, by the conventions of scikit-learn.

n texts   C classes
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from weft.errors import UserError, UserNote
from weft.estimators.estimator import (
    LABEL,
    OTHER,
    TEXT,
    Columns,
    TextEstimator,
    check_dev,
    weigh_rows,
)
from weft.estimators.inputs import (
    ArrayLike,
    Labels,
    check_labels,
    check_lengths,
    check_order,
    check_pairs,
    check_texts,
    label_names,
)
from weft.tasks.classify import ClassSpace
from weft.tasks.task import Answer


class Classifier(ClassifierMixin, TextEstimator):
    """Classify texts with any recipe of the task 'classify'.

    `y` has one label per text, or is an indicator matrix (n, C) where a text can have several.
    """

    task_kind = "classify"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike = None,
        dev: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "Classifier":
        """Train on texts and labels.

        `dev` is held-out data, (texts, labels), to choose the best epoch and to stop early;
        without it, a fraction of X is held out.
        """
        inputs, labels = self._inputs(X), check_labels(y)
        check_lengths(X, labels.rows)
        check_order(X, y)
        rows = weigh_rows({**inputs, LABEL: labels.rows}, sample_weight)
        classes = labels.classes if labels.multi_label else _present_classes(labels, rows[LABEL])
        if len(classes) < 2:
            raise UserError(
                f"y has one class only: every row has the label {classes.tolist()[0]!r}. A "
                "classifier needs at least two."
            )
        dev_rows = None if dev is None else self._dev_rows(dev)
        self._fit(rows, dev_rows, {"task.multi_label": labels.multi_label})
        self.classes_ = self._with_out_of_scope(classes)
        self._multi_label = labels.multi_label
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the label of each text, or an indicator matrix (n, C)."""
        answers = self._answers(X)
        codes = {name: code for code, name in enumerate(label_names(self.classes_))}
        if not self._multi_label:
            predicted: np.ndarray = self.classes_[[codes[answer.value] for answer in answers]]
            return predicted
        found = np.zeros((len(answers), len(codes)), np.int64)
        for row, answer in zip(found, answers, strict=True):
            row[[codes[name] for name in answer.value]] = 1
        return found

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probability of each class (n, C), in the order of `classes_`.

        A label that the model did not learn has probability 0.
        """
        answers = self._answers(X)
        entries = {name: k for k, name in enumerate(self.predictor_.class_labels)}
        probs = np.array([answer.scores for answer in answers])  # (n, labels of the model)
        out = np.zeros((len(answers), len(self.classes_)))
        for code, name in enumerate(label_names(self.classes_)):
            if name in entries:
                out[:, code] = probs[:, entries[name]]
        return out

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the logarithms of the probabilities (n, C)."""
        with np.errstate(divide="ignore"):
            logs: np.ndarray = np.log(self.predict_proba(X))
        return logs

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike = None) -> float:
        """Return the accuracy; a label that training did not have counts as a mistake."""
        check_is_fitted(self)
        labels = check_labels(y)
        check_lengths(X, labels.rows)
        check_order(X, y)
        if not labels.multi_label:
            self._check_known(labels)
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _inputs(self, X: ArrayLike, name: str = "X") -> Columns:
        return {TEXT: check_texts(X, name)}

    def _answers(self, X: ArrayLike) -> list[Answer]:
        predictor = self.predictor_
        columns = self._inputs(X)
        pairs = list(zip(columns[TEXT], columns[OTHER], strict=True)) if OTHER in columns else ()
        return predictor(pairs or columns[TEXT])

    def _dev_rows(self, dev: tuple[ArrayLike, ArrayLike]) -> Columns:
        X, y = check_dev(dev)
        inputs, held_out = self._inputs(X, "dev X"), check_labels(y, "dev y")
        check_lengths(X, held_out.rows, "dev y")
        check_order(X, y, "dev ")
        return {**inputs, LABEL: held_out.rows}

    def _with_out_of_scope(self, classes: np.ndarray) -> np.ndarray:
        """Return the classes and the label of data.out_of_scope, which y need not have."""
        space = self.predictor_.space
        assert isinstance(space, ClassSpace)
        extra = [name for name in space.answers if name not in label_names(classes)]
        if extra and not isinstance(classes.tolist()[0], str):
            raise UserError(
                f"data.out_of_scope is the text {extra[0]!r}, but the labels are of type "
                f"{classes.dtype}. Name one of the labels, or use labels that are texts."
            )
        return np.unique([*classes.tolist(), *extra]) if extra else classes

    def _check_known(self, labels: Labels) -> None:
        """Warn of labels that training did not have; raise UserError for those of another type."""
        known = set(label_names(self.classes_))
        ours, theirs = (isinstance(one.tolist()[0], str) for one in (self.classes_, labels.classes))
        if ours != theirs:
            raise UserError(
                f"y[0] is of type {labels.classes.dtype}, but the classes are of type "
                f"{self.classes_.dtype}, such as {self.classes_[0]!r}. Use one type of label."
            )
        for i, name in enumerate(labels.rows):
            if name not in known:
                warnings.warn(
                    f"y[{i}]: the label {name!r} was not seen in training, so its rows count as "
                    f"mistakes. Known: {', '.join(sorted(known)[:20])}.",
                    UserNote,
                    stacklevel=3,
                )
                return


class PairClassifier(Classifier):
    """Classify pairs of texts with any recipe of the task 'pair-classify'.

    X is a list of pairs, (text, other), or has two columns.
    """

    task_kind = "pair-classify"
    default_recipe = "tfidf-pair"

    def _inputs(self, X: ArrayLike, name: str = "X") -> Columns:
        first, second = zip(*check_pairs(X, name), strict=True)
        return {TEXT: list(first), OTHER: list(second)}


def _present_classes(labels: Labels, rows: Sequence[str]) -> np.ndarray:
    """Return the classes that some rows have."""
    present = set(rows)
    kept: np.ndarray = labels.classes[[name in present for name in labels.names]]
    return kept
