"""Predict numbers of texts by the conventions of scikit-learn.

n texts   K numbers of a text
"""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from weft.config import Config
from weft.errors import UserError
from weft.estimators.estimator import LABEL, TEXT, Columns, TextEstimator, check_dev, weigh_rows
from weft.estimators.inputs import ArrayLike, check_lengths, check_numbers, check_order, check_texts


class Regressor(RegressorMixin, TextEstimator):
    """Predict a number per text, or several, with any recipe of the task 'classify'.

    `y` is (n,), or (n, K) for several numbers.
    """

    task_kind = "regress"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike = None,
        dev: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "Regressor":
        """Train on texts and numbers; `dev` is held-out data, (texts, numbers)."""
        rows = weigh_rows(self._rows(X, y), sample_weight)
        first = rows[LABEL][0]
        dimensions = len(first) if isinstance(first, list) else 1
        if all(one == first for one in rows[LABEL]):
            raise UserError(
                f"y: every number is {first}, of n_samples = {len(rows[LABEL])}: there is nothing "
                "to learn. Give rows with other numbers."
            )
        dev_rows = None if dev is None else self._rows(*check_dev(dev), "dev ")
        self._fit(rows, dev_rows, {"task.dimensions": dimensions})
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the number of each text (n,), or the numbers (n, K)."""
        predictor = self.predictor_
        return np.array([answer.value for answer in predictor(check_texts(X))], np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _rows(self, X: ArrayLike, y: ArrayLike, of: str = "") -> Columns:
        texts, numbers = check_texts(X, f"{of}X"), check_numbers(y, f"{of}y")
        check_lengths(texts, numbers, f"{of}y")
        check_order(X, y, of)
        return {TEXT: texts, LABEL: numbers.tolist()}

    def _with_task(self, config: Config) -> Config:
        """Return the configuration with the task 'regress', which every classifier can learn."""
        if config["task"].get("kind", "classify") == "classify":
            config = config.with_values({"task.kind": "regress"}, type(self).__name__)
        return super()._with_task(config)
