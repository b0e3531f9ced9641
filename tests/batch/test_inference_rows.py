"""Batches of a prediction equal those of a token store, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.batch import TokenStore, inference_batches
from weft.batch.indexer import Row
from weft.batch.inference_rows import InferenceRows

TOKENS = st.lists(st.lists(st.integers(1, 2**31 - 1), max_size=4), min_size=1, max_size=7)


def stored(rows, **options):
    """The same rows in a token store."""
    store = TokenStore(len(rows[0].subtokens), **options)
    for row in rows:
        store.append(row.ids, 0, subtokens=row.subtokens, parents=row.parents, second=row.second)
    return store.close()


def check_equal(ours, theirs):
    """Both have the same batches, in values, types and order."""
    pairs = zip(
        inference_batches(ours, rows=3, budget=11),
        inference_batches(theirs, rows=3, budget=11),
        strict=True,
    )
    for one, other in pairs:
        np.testing.assert_array_equal(one.rows, other.rows)
        a, b = one.source, other.source
        for x, y in zip(
            (a.data, a.lengths, a.parents, a.second, *a.subtokens),
            (b.data, b.lengths, b.parents, b.second, *b.subtokens),
            strict=True,
        ):
            assert (x is None) == (y is None)
            assert x is None or (x.dtype == y.dtype and torch.equal(x, y))


@given(st.lists(TOKENS, min_size=1, max_size=13), st.sampled_from([0, 1, 2]))
def test_batches_of_ids_and_subtokens(texts, kinds):
    rows = [
        Row(i, np.array([len(ids) for ids in text], np.int32), (text,) * kinds, 1.0, None)
        for i, text in enumerate(texts)
    ]
    check_equal(InferenceRows(rows), stored(rows))


@given(st.lists(st.integers(2, 9), min_size=1, max_size=13))
def test_batches_of_pairs(lengths):
    rows = [
        Row(i, np.arange(n, dtype=np.int32), (), 1.0, None, second=1 + i % (n - 1))
        for i, n in enumerate(lengths)
    ]
    check_equal(InferenceRows(rows, pairs=True), stored(rows, pairs=True))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=13))
def test_batches_of_trees(lengths):
    rows = [
        Row(i, np.arange(n, dtype=np.int32), (), 1.0, None, parents=np.r_[1:n, -1].astype(np.int64))
        for i, n in enumerate(lengths)
    ]
    check_equal(InferenceRows(rows), stored(rows, trees=True))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=13))
def test_batches_of_vectors(lengths):
    draw = np.random.default_rng(3)
    rows = [
        Row(i, draw.normal(size=(n, 5)).astype(np.float32), (), 1.0, None)
        for i, n in enumerate(lengths)
    ]
    check_equal(InferenceRows(rows), stored(rows, features=5))


def test_no_rows_make_no_batch():
    assert not list(inference_batches(InferenceRows([]), rows=3, budget=11))


def test_widths_of_all_rows_are_compared():
    rows = [
        Row(0, np.array([1], np.int32), ([[5]],), 1.0, None),
        Row(1, np.array([1, 2], np.int32), ([[5, 6, 7], [8]],), 1.0, None),
    ]
    narrow = InferenceRows(rows).padded(np.array([0]))
    assert narrow.subtokens[0].shape == (1, 1, 3)
    with pytest.raises(AssertionError):  # deliberate break: the width of the batch alone
        check_equal(InferenceRows(rows[:1]), stored(rows))
