"""Fitted estimators; tests only read them."""

import pytest

import weft
from tests.fixtures.estimator_data import LABELS, TEXTS


@pytest.fixture(scope="session")
def classifier() -> "weft.Classifier":
    return weft.Classifier("tfidf", classic__C=3.0).fit(TEXTS, LABELS)
