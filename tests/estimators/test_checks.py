"""scikit-learn's own checks: those of text estimators, and all others with numbers as words."""

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

import weft

TEXT_ESTIMATORS = [
    weft.Classifier(),
    weft.Regressor(),
    weft.Tagger(),
    weft.PairClassifier(),
    weft.Vectorizer(),
]


@parametrize_with_checks(TEXT_ESTIMATORS)
def test_checks_of_text_estimators(estimator, check):
    check(estimator)


class NumbersAsWords:
    """Rows of numbers as texts, one word for each, so that checks on matrices apply."""

    precision: ClassVar[float] = 2.0

    def _texts(self, X: Any, reset: bool) -> list[str]:
        X = validate_data(self, X, reset=reset, dtype=float)
        steps = np.floor(self.precision * X).astype(int)
        return [" ".join(f"c{j}v{v}".replace("-", "m") for j, v in enumerate(row)) for row in steps]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        tags.input_tags.string = False
        tags.regressor_tags and setattr(tags.regressor_tags, "poor_score", True)
        return tags


class NumberClassifier(NumbersAsWords, weft.Classifier):
    def fit(self, X, y, sample_weight=None, dev=None):
        return super().fit(self._texts(X, True), y, sample_weight, dev)

    def _inputs(self, X, name="X"):
        known = isinstance(X, list) and isinstance(X[0], str)
        return super()._inputs(X if known else self._texts(X, False), name)


class NumberRegressor(NumbersAsWords, weft.Regressor):
    def fit(self, X, y, sample_weight=None, dev=None):
        return super().fit(self._texts(X, True), y, sample_weight, dev)

    def predict(self, X):
        check_is_fitted(self)
        return super().predict(self._texts(X, False))


# A configuration and no settings: those would be parameters of this instance, not of the class.
RECIPE = {
    "classic": {"kind": "tfidf", "words": [1, 1], "characters": [], "C": 30.0},
    "data": {"dev_fraction": 0.0},
}
UNKNOWN = "it passes the name of **settings; an unknown keyword is a TypeError, as in any function"
COUNTS = "weights are those of the loss; n-grams are counted, and weighted by rarity, without them"
EXPECTED = {
    "check_do_not_raise_errors_in_init_or_set_params": UNKNOWN,
    "check_sample_weight_equivalence_on_dense_data": COUNTS,
}


@parametrize_with_checks(
    [NumberClassifier(RECIPE), NumberRegressor(RECIPE)], expected_failed_checks=lambda _: EXPECTED
)
def test_checks_of_matrices(estimator, check):
    check(estimator)
