"""E1: sums, averages, concatenation and an L-layer MLP (decks 000, 003, 004)."""

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.encode.mlp import MLP
from weft.encode.pool import MeanPool, SumPool

B, T, E, H = 3, 5, 7, 11
PHI = {
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}


def texts() -> Padded:
    return Padded(torch.randn(B, T, E, dtype=torch.float64), torch.tensor([5, 3, 2]))


def test_sum_and_average_run_over_the_words_of_a_text():
    x = texts()
    total, average = SumPool(E)(x)[0], MeanPool(E)(x)[0]
    for row, n in enumerate([5, 3, 2]):
        expected = np.zeros(E)
        for t in range(n):
            expected = expected + x.data[row, t].numpy()
        np.testing.assert_allclose(total[row], expected, atol=1e-12)
        np.testing.assert_allclose(average[row], expected / n, atol=1e-12)


@pytest.mark.parametrize("activation", PHI)
def test_layers_are_phi_of_w_h_plus_b_over_concatenated_neighbours(activation):
    net, x = MLP(E, H, layers=2, window=3, activation=activation).double(), texts()
    states = net(x).data.detach().numpy()
    for row, n in enumerate([5, 3, 2]):
        words = np.vstack([np.zeros(E), x.data[row, :n].numpy(), np.zeros(E)])
        for t in range(n):
            h = np.concatenate([words[t], words[t + 1], words[t + 2]])
            for layer in net.layers:
                weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
                h = PHI[activation](weight @ h + bias)
            np.testing.assert_allclose(states[row, t], h, atol=1e-10)
