"""Windows of a recurrent encoder against the same layers on slices of each row."""

import pytest
import torch

from weft.batch import Padded
from weft.encode.windowed import WindowedRecurrent
from weft.errors import UserError

E, H, W = 5, 3, 8
LENGTHS = [29, 0, 8, 9, 13, 1, 24]


def build(**options):
    torch.manual_seed(1)
    return WindowedRecurrent(E, H, window=W, **options).eval()


def sample(lengths=LENGTHS):
    torch.manual_seed(2)
    return Padded(torch.randn(len(lengths), max(lengths), E), torch.tensor(lengths))


def read_by_slices(encoder, row):
    """One row: each step's state from the first window with a quarter of it behind the step."""
    starts = [0]
    while starts[-1] + W < len(row):
        starts.append(starts[-1] + W // 2)
    states = []
    for start in starts:
        part = row[start : start + W]
        read = encoder.reader(Padded(part[None], torch.tensor([len(part)]))).data[0]
        stop = len(part) if start == starts[-1] else W - W // 4
        states.append(read[len(states) and W // 4 : stop])
    return torch.cat(states) if len(row) else torch.zeros(0, encoder.output_size)


@pytest.mark.parametrize("options", [{}, {"layers": 2, "cell": "gru"}, {"bidirectional": False}])
def test_states_are_those_of_windows_read_alone(options):
    encoder, x = build(**options), sample()
    states = encoder(x)
    for row, own in zip(x.rows(), states.rows(), strict=True):
        torch.testing.assert_close(own, read_by_slices(encoder, row), rtol=1e-5, atol=1e-6)


def test_rows_within_a_window_are_read_whole():
    encoder, x = build(), sample([8, 3, 5])
    torch.testing.assert_close(encoder(x).data, encoder.reader(x).data, rtol=0, atol=0)


def test_a_step_depends_on_its_window_only():
    encoder, x = build(), sample([40])
    data = x.data.clone().requires_grad_()
    encoder(Padded(data, x.lengths)).data[0, 20].sum().backward()
    (seen,) = data.grad.abs().sum(2).nonzero()[:, 1:].T
    assert 20 - seen.min() >= W // 4
    assert seen.max() - 20 >= W // 4
    assert len(seen) == W


@pytest.mark.parametrize("window", [0, 3, 10])
def test_a_wrong_window_is_refused(window):
    with pytest.raises(UserError, match="multiple of 4"):
        WindowedRecurrent(E, H, window=window)
