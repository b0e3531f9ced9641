"""E4: the LSTM of all five decks, its gates from one matrix product."""

import numpy as np
import torch

from weft.batch import Padded
from weft.encode.rnn import Recurrent

T, E, H = 5, 7, 3


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def test_gates_cell_and_state_follow_the_slide():
    torch.manual_seed(1)
    net = Recurrent(E, H, cell="lstm", bidirectional=False).double().eval()
    x = torch.randn(1, T, E, dtype=torch.float64)
    weights = {name: p.detach().numpy() for name, p in net.named_parameters()}
    # W [h; x] of the slide: all gates in a single matrix product, in the order i, f, candidate, o.
    U = next(w for n, w in weights.items() if "weight_hh" in n)
    W = next(w for n, w in weights.items() if "weight_ih" in n)
    b = sum(w for n, w in weights.items() if "bias_" in n)
    h, C, expected = np.zeros(H), np.zeros(H), []
    for t in range(T):
        product = np.hstack([U, W]) @ np.concatenate([h, x[0, t].numpy()]) + b
        i, f, candidate, o = np.split(product, 4)
        C = sigmoid(f) * C + sigmoid(i) * np.tanh(candidate)
        h = sigmoid(o) * np.tanh(C)
        expected.append(h)
    states = net(Padded(x, torch.tensor([T]))).data.detach().numpy()
    np.testing.assert_allclose(states[0], np.array(expected), atol=1e-10)


def test_forget_bias_starts_at_one():
    net = Recurrent(E, H, cell="lstm", bidirectional=True)
    for direction in ("", "_reverse"):
        bias = sum(
            p.detach()
            for n, p in net.named_parameters()
            if n.endswith((f"bias_ih_l0{direction}", f"bias_hh_l0{direction}"))
        )
        assert torch.equal(bias[H : 2 * H], torch.ones(H))
