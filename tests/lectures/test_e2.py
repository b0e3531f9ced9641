"""Deck 001: a convolution with its residual, and layer norm before the non-linearity."""

import pytest
import torch

from weft.batch import Padded
from weft.encode.cnn import CNN

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
B, T, E = 3, 7, 5


def build(norm: str, activation: str = "relu") -> CNN:
    torch.manual_seed(1)
    net = CNN(E, hidden=E, widths=(3,), residual=True, norm=norm, activation=activation)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3).add_(torch.randn_like(parameter))
    return net.eval()


def windows(rows: torch.Tensor) -> torch.Tensor:
    """[x_{i−1}; x_i; x_{i+1}] of every step, with zeros past either end."""
    around = torch.cat([torch.zeros(1, E), rows, torch.zeros(1, E)])
    return torch.cat([around[:-2], around[1:-1], around[2:]], dim=1)


def weight_matrix(net: CNN) -> tuple[torch.Tensor, torch.Tensor]:
    """W (E, 3·E) and b of the only filter width."""
    (conv,) = net.layers[0].filters
    return conv.weight.permute(0, 2, 1).reshape(E, 3 * E), conv.bias


def layer_norm(a: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """ā_i = g_i/σ (a_i − μ) + b: Ba et al. (2016) add the shift b, and PyTorch 1e-5 to σ²."""
    mu = a.sum(1, keepdim=True) / E
    sigma = (((a - mu) ** 2).sum(1, keepdim=True) / E + 1e-5).sqrt()
    return g / sigma * (a - mu) + b


def test_residual_adds_the_step_to_the_convolution():
    """h_i = f(W [x_{i−1}; x_i; x_{i+1}] + b) + x_i."""
    net = build("none")
    W, b = weight_matrix(net)
    x = Padded(torch.randn(B, T, E), torch.tensor([7, 2, 5]))
    with torch.no_grad():
        for got, rows in zip(net(x).rows(), x.rows(), strict=True):
            torch.testing.assert_close(got, (windows(rows) @ W.T + b).relu() + rows, **CLOSE)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_activation_before_the_non_linearity_is_normalised(activation):
    net = build("before", activation)
    W, b = weight_matrix(net)
    norm = net.layers[0].pre_norm
    f = {"relu": torch.relu, "tanh": torch.tanh}[activation]
    x = Padded(torch.randn(B, T, E), torch.tensor([7, 2, 5]))
    with torch.no_grad():
        for got, rows in zip(net(x).rows(), x.rows(), strict=True):
            normed = layer_norm(windows(rows) @ W.T + b, norm.weight, norm.bias)
            torch.testing.assert_close(got, f(normed) + rows, **CLOSE)


def test_layer_norm_after_normalises_the_sum_with_the_step():
    net = build("after")
    W, b = weight_matrix(net)
    norm = net.layers[0].norm
    x = Padded(torch.randn(B, T, E), torch.tensor([7, 2, 5]))
    with torch.no_grad():
        for got, rows in zip(net(x).rows(), x.rows(), strict=True):
            states = (windows(rows) @ W.T + b).relu() + rows
            expected = layer_norm(states, norm.weight, norm.bias)
            torch.testing.assert_close(got, expected, **CLOSE)
