"""Uneven classes: what counts as uneven, and class-balanced samples."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.batch.bucketing import shuffle_batches
from weft.text.class_balance import (
    balanced_weights,
    group_rows,
    is_uneven,
    positive_weights,
    sample_balanced,
)


@pytest.mark.parametrize(
    ("counts", "uneven"),
    [
        ((90, 10), True),
        ((89, 11), False),
        ((500, 400, 10), True),
        ((490, 400, 10), False),
        ((50, 0, 49), False),  # a class that never occurs is none
        ((7,), False),
        ((), False),
    ],
)
def test_uneven(counts, uneven):
    assert is_uneven(counts, sum(counts)) is uneven


def test_weights_of_absent_classes_are_one():
    np.testing.assert_allclose(balanced_weights(np.array([6, 0, 2])), [8 / 12, 1, 8 / 4])
    np.testing.assert_allclose(positive_weights(np.array([1, 0, 4]), 4), [3, 1, 1])


def test_rows_without_a_class_form_a_group():
    groups = group_rows([[0, 2], [], [2, 2], [5]])
    assert [list(rows) for rows in groups] == [[1], [0], [0, 2], [3]]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(0, 200), st.integers(0, 9))
def test_samples_are_balanced_and_evenly_spread(sizes, n, seed):
    edges = np.cumsum([0, *sizes])
    groups = [np.arange(a, b) for a, b in pairwise(edges)]
    rows = sample_balanced(groups, n, np.random.default_rng(seed))
    assert len(rows) == n
    counts = np.bincount(rows, minlength=edges[-1])
    by_group = [counts[group] for group in groups]
    assert max(map(sum, by_group)) - min(map(sum, by_group)) <= 1
    assert all(one.max() - one.min() <= 1 for one in by_group)


def test_epochs_differ_and_are_the_same_again():
    lengths = np.random.default_rng(1).integers(1, 20, 300)
    groups = [np.arange(290), np.arange(290, 300)]

    def epoch(number, seed=1):
        settings = {"rows": 16, "budget": 999, "seed": seed, "groups": groups}
        return np.concatenate(list(shuffle_batches(lengths, epoch=number, **settings)))

    assert (epoch(0) == epoch(0)).all()
    assert (epoch(0) != epoch(1)).any()
    assert (epoch(0) != epoch(0, seed=2)).any()
    assert (epoch(0) >= 290).sum() == 150
