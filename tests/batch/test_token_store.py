import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.batch import TokenStore

ROWS = st.lists(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=7), min_size=1, max_size=20
)


@given(ROWS, st.sampled_from([1, 64, 10**6]))
def test_rows_come_back_from_memory_and_from_disk(rows, memory):
    store = TokenStore(memory=memory)
    for i, row in enumerate(rows):
        store.append(np.array(row), i % 3, line=i + 1)
    store.close()
    assert [store.row(i).tolist() for i in range(len(store))] == rows
    assert store.targets.tolist() == [i % 3 for i in range(len(rows))]
    assert store.lines.tolist() == list(range(1, len(rows) + 1))
    assert store.ids.on_disk == (4 * sum(map(len, rows)) > memory)
    padded = store.padded(np.arange(len(rows)))
    assert [row.tolist() for row in padded.rows()] == rows


@pytest.mark.parametrize("memory", [1, 10**6])
def test_pieces_of_tokens_are_padded_by_token_and_row(memory):
    store = TokenStore(subtokens=2, memory=memory)
    store.append(np.array([5, 6]), 0, subtokens=([[1], [2, 3]], [[9, 9, 9], [8]]))
    store.append(np.array([7]), 1, subtokens=([[4, 5]], [[7]]))
    store.close()
    out = store.padded(np.array([1, 0]))
    assert out.subtokens[0].tolist() == [[[4, 5], [0, 0]], [[1, 0], [2, 3]]]
    assert out.subtokens[1].tolist() == [[[7, 0, 0], [0, 0, 0]], [[9, 9, 9], [8, 0, 0]]]


def test_targets_keep_their_kind():
    numbers, rows = TokenStore(), TokenStore()
    numbers.append(np.array([1]), 0.5)
    rows.append(np.array([1]), np.array([1.0, 0.0], np.float32))
    assert numbers.close().targets.dtype == np.float32
    assert rows.close().targets.shape == (1, 2)


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 1.0, 0.5], [2.0, 1.0, 1.0]])
def test_weights_are_kept_from_the_first_that_is_not_one(weights):
    store = TokenStore()
    for weight in weights:
        store.append(np.array([1]), 0, weight=weight)
    kept = store.close().row_weights
    assert (kept is None) == (weights == [1.0, 1.0, 1.0])
    assert kept is None or kept.tolist() == weights
