"""A3: key–value attention, one head and several, the causal mask, cross-attention (all decks)."""

import numpy as np
import pytest
import torch

from weft.attend.multihead import MultiHeadAttention

T, S, H, M = 5, 3, 6, 7


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def linear(x: np.ndarray, layer: torch.nn.Linear) -> np.ndarray:
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_softmax_of_queries_and_keys_times_values(heads, causal):
    torch.manual_seed(1)
    net, x = MultiHeadAttention(H, heads).double().eval(), torch.randn(1, T, H, dtype=torch.double)
    out, weights = net(x, causal=causal, return_weights=True)
    expected_out, expected_weights = by_hand(net, x[0].numpy(), x[0].numpy(), heads, causal)
    np.testing.assert_allclose(weights[0].detach(), expected_weights, atol=1e-10)
    np.testing.assert_allclose(out[0].detach(), expected_out, atol=1e-10)
    np.testing.assert_allclose(net(x, causal=causal)[0][0].detach(), expected_out, atol=1e-10)


@pytest.mark.parametrize("heads", [1, 2])
def test_cross_attention_takes_keys_and_values_from_the_other_text(heads):
    torch.manual_seed(1)
    net = MultiHeadAttention(H, heads, memory_size=M).double().eval()
    x, memory = torch.randn(1, T, H).double(), torch.randn(1, S, M).double()
    expected, _ = by_hand(net, x[0].numpy(), memory[0].numpy(), heads, False)
    np.testing.assert_allclose(net(x, memory)[0][0].detach(), expected, atol=1e-10)


def by_hand(net, x, memory, heads, causal):
    q, k, v = linear(x, net.query), linear(memory, net.key), linear(memory, net.value)
    size, summaries, weights = H // heads, [], []
    for n in range(heads):
        at = slice(n * size, (n + 1) * size)
        scores = q[:, at] @ k[:, at].T / np.sqrt(size)
        if causal:  # step t sees only steps up to t
            scores[np.triu_indices(len(x), 1)] = -np.inf
        weights.append(softmax(scores))
        summaries.append(weights[-1] @ v[:, at])
    return linear(np.hstack(summaries), net.output), np.array(weights)
