"""Convolutions and window perceptrons against loops."""

import pytest
import torch

from weft.batch import Padded
from weft.encode.cnn import CNN
from weft.encode.mlp import MLP
from weft.errors import UserError

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
E = 5


def slow_layer(layer, rows, apart):
    """One position, one filter, one neighbour at a time; zeros past either end."""
    out = []
    for centre in range(0, len(rows), layer.stride):
        values = []
        for conv in layer.filters:
            width = conv.weight.shape[2]
            for f in range(conv.weight.shape[0]):
                total = conv.bias[f]
                for k in range(width):
                    at = centre - (width - 1) * apart // 2 + k * apart
                    if 0 <= at < len(rows):
                        total = total + conv.weight[f, :, k] @ rows[at]
                values.append(total.relu())
        state = torch.stack(values)
        if layer.shortcut is not None:
            state = state + layer.shortcut(rows[centre])
        out.append(layer.norm(state))
    return out


@pytest.mark.parametrize(
    "options",
    [
        {"widths": (3,)},
        {"widths": (1, 2, 4)},
        {"widths": (2, 3), "dilation": 3},
        {"widths": (3, 5), "stride": 2, "layers": 2},
        {"widths": (3,), "layers": 3, "dilation": (1, 2, 4), "residual": True, "norm": "after"},
        {"widths": (2,), "layers": 2, "stride": 3, "residual": True},
    ],
    ids=str,
)
def test_states_are_the_formula(options):
    torch.manual_seed(0)
    net = CNN(E, hidden=3, **options)
    x = Padded(torch.randn(3, 11, E), torch.tensor([11, 1, 4]))
    apart = options.get("dilation", 1)
    apart = apart if isinstance(apart, tuple) else (apart,) * len(net.layers)
    for got, rows in zip(net(x).rows(), x.rows(), strict=True):
        for layer, step in zip(net.layers, apart, strict=True):
            rows = slow_layer(layer, rows, step)
        torch.testing.assert_close(got, torch.stack(list(rows)), **CLOSE)


def test_a_residual_of_equal_width_adds_the_step_itself():
    net = CNN(E, hidden=E, widths=(3,), residual=True)
    plain = CNN(E, hidden=E, widths=(3,))
    plain.load_state_dict(net.state_dict())
    x = Padded(torch.randn(2, 7, E), torch.tensor([7, 7]))
    torch.testing.assert_close(net(x).data, plain(x).data + x.data, **CLOSE)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, 5),
        ({"widths": (3,), "layers": 3, "dilation": (1, 2, 4)}, 15),
        ({"widths": (3, 2), "layers": 2, "stride": 2}, 7),
    ],
)
def test_receptive_field_is_what_a_step_sees(options, field):
    net = CNN(E, hidden=3, activation="tanh", **options)
    assert net.receptive_field == field
    data = torch.randn(1, 61, E, requires_grad=True)
    out = net(Padded(data, torch.tensor([61]))).data
    out[0, out.shape[1] // 2].sum().backward()
    seen = data.grad[0].any(-1).nonzero()
    assert int(seen.max() - seen.min()) + 1 == field


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": ()}, r"'widths' should be numbers from 1 on, got \[\]"),
        ({"layers": 2, "dilation": (1,)}, "one for each of the 2 layers"),
        ({"stride": 0}, "'stride' should be at least 1, got 0"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(UserError, match=message):
        CNN(E, **options)


@pytest.mark.parametrize("window", [1, 4, 5])
def test_perceptron_sees_its_window(window):
    torch.manual_seed(0)
    net = MLP(E, hidden=3, layers=2, window=window, activation="sigmoid")
    x = Padded(torch.randn(2, 7, E), torch.tensor([7, 3]))
    for got, rows in zip(net(x).rows(), x.rows(), strict=True):
        for t in range(len(rows)):
            around = range(t - (window - 1) // 2, t + window // 2 + 1)
            h = torch.cat([rows[i] if 0 <= i < len(rows) else torch.zeros(E) for i in around])
            for layer in net.layers:
                h = torch.sigmoid(layer.weight @ h + layer.bias)
            torch.testing.assert_close(got[t], h, **CLOSE)
