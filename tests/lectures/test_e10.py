"""Deck 002: encoders one upon the other, such as an LSTM under a BiLSTM, or a CNN under an LSTM."""

import pytest
import torch

from weft.batch import Padded
from weft.model.build import build_encoder

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
B, T, E, H = 3, 7, 5, 3


def build(*specs):
    torch.manual_seed(1)
    encoder = build_encoder({"encoder": list(specs)}, E).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return encoder


def sample():
    torch.manual_seed(0)
    return Padded(torch.randn(B, T, E), torch.tensor([7, 2, 5]))


def sigma(x):
    return 1 / (1 + torch.exp(-x))


def convolve(member, rows):
    """h_i = relu(W [x_{i−1}; x_i; x_{i+1}] + b)."""
    (conv,) = member.layers[0].filters
    around = torch.cat([torch.zeros(1, rows.shape[1]), rows, torch.zeros(1, rows.shape[1])])
    windows = torch.stack([around[:-2], around[1:-1], around[2:]], dim=2)  # (T, E, 3)
    return (windows.flatten(1) @ conv.weight.flatten(1).T + conv.bias).relu()


def lstm(member, rows, name="l0"):
    """c = c' ⊙ f + c̃ ⊙ i, h = tanh(c) ⊙ o."""
    net = member.net
    W, U = getattr(net, f"weight_ih_{name}"), getattr(net, f"weight_hh_{name}")
    b = getattr(net, f"bias_ih_{name}") + getattr(net, f"bias_hh_{name}")
    h = c = torch.zeros(net.hidden_size)
    out = []
    for x in rows:
        i, f, fresh, o = (W @ x + U @ h + b).chunk(4)
        c = c * sigma(f) + torch.tanh(fresh) * sigma(i)
        h = torch.tanh(c) * sigma(o)
        out.append(h)
    return torch.stack(out)


def bilstm(member, rows):
    back = lstm(member, rows.flip(0), "l0_reverse").flip(0)
    return torch.cat([lstm(member, rows), back], dim=1)


@torch.no_grad()
def test_a_cnn_under_an_lstm():
    encoder = build(
        {"kind": "cnn", "hidden": 4, "widths": [3]},
        {"kind": "rnn", "hidden": H, "bidirectional": False},
    )
    x = sample()
    cnn, top = encoder.members
    for got, rows in zip(encoder(x).rows(), x.rows(), strict=True):
        torch.testing.assert_close(got, lstm(top, convolve(cnn, rows)), **CLOSE)


@torch.no_grad()
def test_an_lstm_under_a_bilstm_as_in_the_keras_example():
    """lstm1 = LSTM(64)(input); lstm2 = Bidirectional(LSTM(128))(lstm1)."""
    encoder = build(
        {"kind": "rnn", "hidden": H, "bidirectional": False, "dropout": 0.2},
        {"kind": "rnn", "hidden": 2 * H, "bidirectional": True},
    )
    x = sample()
    low, top = encoder.members
    assert (encoder.output_size, encoder.directions) == (4 * H, 2)
    for got, rows in zip(encoder(x).rows(), x.rows(), strict=True):
        torch.testing.assert_close(got, bilstm(top, lstm(low, rows)), **CLOSE)


@pytest.mark.parametrize("stride", [1, 2])
@torch.no_grad()
def test_strides_multiply_and_limits_count_steps_of_the_text(stride):
    cnn = {"kind": "cnn", "hidden": 4, "widths": [3], "stride": stride}
    top = {"kind": "transformer", "hidden": 4, "heads": 2, "positions": "learned"}
    encoder = build(cnn, cnn, {**top, "max_positions": 3})
    assert encoder.stride == stride**2
    assert encoder.max_positions == 3 * stride**2
    longest = Padded(torch.randn(1, 3 * stride**2, E), torch.tensor([3 * stride**2]))
    assert encoder(longest).data.shape == (1, 3, 4)
