"""E8: the Transformer encoder block, layer norm after or before each part (all decks)."""

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.encode.transformer import TransformerEncoder

T, H, N = 5, 6, 2
K = H // N


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, norm: torch.nn.LayerNorm) -> np.ndarray:
    z = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + norm.eps)
    return z * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def linear(x: np.ndarray, layer: torch.nn.Linear) -> np.ndarray:
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def attention(x: np.ndarray, part) -> np.ndarray:
    """Concatenate softmax(Q Kᵀ / √k) V of every head, then project."""
    q, k, v = linear(x, part.query), linear(x, part.key), linear(x, part.value)
    heads = []
    for n in range(N):
        at = slice(n * K, (n + 1) * K)
        heads.append(softmax(q[:, at] @ k[:, at].T / np.sqrt(K)) @ v[:, at])
    return linear(np.hstack(heads), part.output)


def feed_forward(x: np.ndarray, block) -> np.ndarray:
    return linear(np.maximum(linear(x, block.feed_in), 0), block.feed_out)


def sinusoids() -> np.ndarray:
    """PE(t, 2i) = sin(t / 10000^(2i/H)), PE(t, 2i+1) = cos of the same."""
    out = np.zeros((T, H))
    for t in range(T):
        for i in range(H // 2):
            out[t, 2 * i] = np.sin(t / 10000 ** (2 * i / H))
            out[t, 2 * i + 1] = np.cos(t / 10000 ** (2 * i / H))
    return out


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_block_is_attention_and_feed_forward_with_residuals_and_norms(norm):
    torch.manual_seed(1)
    net = TransformerEncoder(
        H, hidden=H, layers=1, heads=N, feed_forward=11, norm=norm, activation="relu", dropout=0.0
    ).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randn(1, T, H)
    block, states = net.blocks[0], x[0].numpy() + sinusoids()
    if norm == "post":
        states = layer_norm(states + attention(states, block.attention), block.attention_norm)
        states = layer_norm(states + feed_forward(states, block), block.feed_norm)
    else:
        states = states + attention(layer_norm(states, block.attention_norm), block.attention)
        states = states + feed_forward(layer_norm(states, block.feed_norm), block)
        states = layer_norm(states, net.norm)
    with torch.no_grad():
        got = net(Padded(x, torch.tensor([T]))).data[0].numpy()
    np.testing.assert_allclose(got, states, atol=1e-5)
