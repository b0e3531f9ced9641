"""One long text in pieces: nothing left out, rows that go on, and positions that can be saved."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.batch import Position
from weft.batch.lm_windows import LMLoader, TokenStream


def stream(size=53, memory=1 << 20):
    """The numbers from 1 on in texts of three, behind a 99."""
    out = TokenStream(99, memory=memory)
    for start in range(1, size + 1, 3):
        out.append(np.arange(start, min(start + 3, size + 1)), line=start)
    return out.close()


def pieces(size=53, rows=5, window=7, epochs=1, **options):
    options = {"in_order": True, **options}
    return LMLoader(stream(size), rows=rows, window=window, seed=3, epochs=epochs, **options)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 7), st.integers(2, 9))
def test_parallel_streams_predict_every_token_and_continue_rows(size, rows, window):
    rows = min(rows, size)
    last, seen, lengths = None, set(), set()
    for batch, _ in pieces(size, rows, window):
        given, target = batch.source.data, batch.target
        assert given.shape == target.shape == (rows, given.shape[1])
        torch.testing.assert_close(given[:, 1:], target[:, :-1])
        assert (target - given)[given != 99].eq(1).all()
        if last is not None:
            torch.testing.assert_close(given[:, 0], last)
        last = target[:, -1]
        seen |= set(target.flatten().tolist())
        lengths.add(given.shape[1])
        assert batch.count == target.numel()
    assert seen == set(range(1, size + 1))
    assert max(lengths) <= window


@settings(deadline=None)
@given(st.integers(9, 60), st.integers(1, 7), st.integers(2, 9))
def test_shuffled_windows_predict_every_token(size, rows, window):
    seen: dict[int, set[int]] = {}
    epoch = 0
    for batch, position in pieces(size, rows, window, in_order=False, epochs=3):
        assert batch.source.data.shape[1] == window
        assert len(batch) <= rows
        seen.setdefault(epoch, set()).update(batch.target.flatten().tolist())
        epoch = position.epoch
    assert sorted(seen) == [0, 1, 2]
    assert all(tokens == set(range(1, size + 1)) for tokens in seen.values())


def test_windows_lie_elsewhere_in_each_epoch():
    found = [[], []]
    batches = pieces(in_order=False, epochs=2)
    epoch = 0
    for batch, position in batches:
        found[epoch] += batch.rows.tolist()
        epoch = position.epoch
    assert sorted(found[0]) != sorted(found[1])
    assert found[0] != sorted(found[0])


def test_targets_in_input_makes_the_source_equal_the_target():
    for batch, _ in pieces(in_order=False, targets_in_input=True):
        torch.testing.assert_close(batch.source.data, batch.target)


@pytest.mark.parametrize("in_order", [True, False])
def test_saved_position_resumes_exactly(in_order):
    whole = list(pieces(epochs=3, in_order=in_order))
    for number in range(len(whole)):
        again = pieces(epochs=3, in_order=in_order)
        again.position = Position() if not number else whole[number - 1][1]
        for (a, p), (b, q) in zip(again, whole[number:], strict=True):
            assert p == q
            torch.testing.assert_close(a.target, b.target)
    assert again.fraction_done(whole[-1][1]) == 1
    assert whole[-1][1] == Position(3, 0)


def test_on_disk_it_is_the_same():
    small = stream(memory=16)
    assert small.ids.on_disk
    np.testing.assert_array_equal(small.read(7, 4), stream().read(7, 4))


def test_tokens_know_their_line():
    text = stream()
    assert [text.line(i) for i in (0, 2, 3, 52)] == [1, 1, 4, 52]
