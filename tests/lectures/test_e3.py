"""E3: s_t = tanh(W^s s_{t−1} + W^x x_t + b^s), y_t = tanh(W^y s_t + b^y) (all decks but 002)."""

import numpy as np
import torch

from weft.batch import Padded
from weft.encode.rnn import Recurrent

T, E, H = 5, 7, 3


def test_elman_states_and_outputs_follow_the_slide():
    torch.manual_seed(1)
    net = Recurrent(E, H, cell="rnn", bidirectional=False, output_layer=True).double().eval()
    x = torch.randn(1, T, E, dtype=torch.float64)
    weights = {name: p.detach().numpy() for name, p in net.named_parameters()}
    Wx = next(w for n, w in weights.items() if "weight_ih" in n)
    Ws = next(w for n, w in weights.items() if "weight_hh" in n)
    b = sum(w for n, w in weights.items() if "bias_" in n)
    Wy = next(w for n, w in weights.items() if n.startswith("outputs") and n.endswith("weight"))
    by = next(w for n, w in weights.items() if n.startswith("outputs") and n.endswith("bias"))
    s, expected = np.zeros(H), []
    for t in range(T):
        s = np.tanh(Ws @ s + Wx @ x[0, t].numpy() + b)
        expected.append(np.tanh(Wy @ s + by))
    states = net(Padded(x, torch.tensor([T]))).data.detach().numpy()
    np.testing.assert_allclose(states[0], np.array(expected), atol=1e-10)
