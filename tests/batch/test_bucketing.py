import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.batch import BatchLoader, Position, TokenStore
from weft.batch.bucketing import order_batches, shuffle_batches, split_batches

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=300).map(np.array)


def store(lengths):
    out = TokenStore()
    for i, n in enumerate(lengths):
        out.append(np.full(n, i + 1), i)
    return out.close()


@given(LENGTHS, st.integers(1, 9), st.integers(1, 200), st.integers(0, 5))
def test_every_row_once_within_the_budget(lengths, rows, budget, epoch):
    plan = list(shuffle_batches(lengths, rows=rows, budget=budget, seed=3, epoch=epoch))
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) <= rows
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@given(LENGTHS)
def test_reading_goes_from_short_to_long(lengths):
    order = np.concatenate(list(order_batches(lengths, rows=4, budget=100)))
    assert (np.diff(lengths[order]) >= 0).all()


def test_cut_is_greedy():
    assert split_batches(np.array([1, 2, 3, 9]), rows=9, budget=6) == [
        slice(0, 2),
        slice(2, 3),
        slice(3, 4),
    ]


def test_seed_and_epoch_decide_the_order():
    lengths = np.arange(1, 101) % 13 + 1

    def plan(seed, epoch):
        return [
            b.tolist() for b in shuffle_batches(lengths, rows=4, budget=99, seed=seed, epoch=epoch)
        ]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(2, 0)
    assert plan(1, 0) != plan(1, 1)


def test_buckets_save_padding():
    lengths = np.random.default_rng(0).integers(1, 100, 2000)

    def padded(plan):
        return sum(len(b) * lengths[b].max() for b in plan)

    buckets = padded(shuffle_batches(lengths, rows=20, budget=10**6, seed=0, epoch=0))
    arrival = padded(np.arange(2000).reshape(-1, 20))
    assert buckets < 1.1 * lengths.sum() < arrival


@pytest.mark.parametrize("stop", [1, 4, 7, 8, 13])
def test_saved_position_resumes_exactly(stop):
    lengths = [1 + i % 7 for i in range(23)]

    def stream():
        return BatchLoader(store(lengths), rows=3, budget=99, seed=5, epochs=2)

    whole = [(b.rows.tolist(), p) for b, p in stream()]
    assert whole[-1][1] == Position(2, 0)
    again = stream()
    again.position = whole[stop - 1][1]
    assert [(b.rows.tolist(), p) for b, p in again] == whole[stop:]


def test_share_runs_from_none_to_all():
    batches = BatchLoader(store([2] * 10), rows=5, budget=99, seed=0, epochs=4)
    assert batches.fraction_done(Position()) == 0
    assert batches.fraction_done(Position(2, 1)) == 0.625
    assert batches.fraction_done(Position(4, 0)) == 1


def test_a_batch_splits_into_its_rows():
    batches = BatchLoader(store([5, 1, 3, 2, 4]), rows=5, budget=99, seed=0, epochs=1)
    (batch, _), *_ = batches
    parts = batch.split(2)
    assert [len(p) for p in parts] == [3, 2]
    assert np.concatenate([p.rows for p in parts]).tolist() == batch.rows.tolist()
    assert sum(p.count for p in parts) == batch.count
    for part in parts:
        assert part.source.data.shape[1] == part.source.lengths.max()
        assert [set(r.tolist()) for r in part.source.rows()] == [{i + 1} for i in part.rows]


def test_batches_for_prediction_hold_little_padding():
    lengths = np.random.default_rng(3).integers(1, 200, 500)
    batches = list(order_batches(lengths, rows=256, budget=4096, max_padding=0.1, few=4))
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    large = [lengths[batch] for batch in batches if len(batch) > 4]
    assert all(own.sum() >= 0.9 * own.max() * len(own) for own in large)
    assert all(own.max() * len(own) <= 4096 for own in large)
    assert len(batches) < 50
