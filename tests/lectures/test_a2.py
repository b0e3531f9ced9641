"""A2: attention pooling with a learned query, and deck 003's attention to the last state."""

import numpy as np
import torch

from weft.batch import Padded
from weft.encode.pool import AttentionPool, LastAttentionPool

T, H = 5, 7


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


def test_learned_query_weighs_states_by_the_additive_score():
    torch.manual_seed(1)
    pool, x = AttentionPool(H).double(), torch.randn(1, T, H, dtype=torch.float64)
    W, b = pool.score.query.weight.detach().numpy(), pool.score.query.bias.detach().numpy()
    W2, u = pool.score.memory.weight.detach().numpy(), pool.score.weigh.weight.detach().numpy()[0]
    q, h = pool.query.detach().numpy(), x[0].numpy()
    weights = softmax(np.array([u @ np.tanh(W @ q + W2 @ h[t] + b) for t in range(T)]))
    vector, got = pool(Padded(x, torch.tensor([T])))
    np.testing.assert_allclose(got[0].detach(), weights, atol=1e-10)
    np.testing.assert_allclose(vector[0].detach(), weights @ h, atol=1e-10)


def test_last_state_queries_the_others_as_in_deck_003():
    torch.manual_seed(1)
    pool, x = LastAttentionPool(H).double(), torch.randn(1, T, H, dtype=torch.float64)
    W, b, h = pool.query.weight.detach().numpy(), pool.query.bias.detach().numpy(), x[0].numpy()
    q = [np.tanh(W @ h[t] + b) for t in range(T)]
    s = softmax(np.array([q[t] @ q[-1] for t in range(T)]))
    vector, got = pool(Padded(x, torch.tensor([T])))
    np.testing.assert_allclose(got[0].detach(), s, atol=1e-10)
    np.testing.assert_allclose(vector[0].detach(), sum(s[t] * h[t] for t in range(T)), atol=1e-10)
