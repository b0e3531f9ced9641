"""Deck 001: the GRU, with the reset gate before the product with the state."""

import pytest
import torch

from weft.batch import Padded
from weft.encode.rnn import Recurrent

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
B, T, E, H = 3, 7, 5, 2


def build(cell: str, **options) -> Recurrent:
    torch.manual_seed(1)
    encoder = Recurrent(E, H, cell=cell, **options)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    return encoder.eval()


def sigma(x):
    return 1 / (1 + torch.exp(-x))


def deck_gru(encoder, rows, name="l0"):
    """The slide, with row vectors: h̃ = tanh(x W_h + (r ⊙ h) U_h), and a bias b_h beside it."""
    Wz, Wr, Wh = getattr(encoder.net, f"weight_ih_{name}").T.chunk(3, dim=1)
    Uz, Ur, Uh = getattr(encoder.net, f"weight_hh_{name}").T.chunk(3, dim=1)
    bz, br, bh = getattr(encoder.net, f"bias_ih_{name}").chunk(3)
    h, states = torch.zeros(H), []
    for x in rows:
        z = sigma(x @ Wz + h @ Uz + bz)
        r = sigma(x @ Wr + h @ Ur + br)
        fresh = torch.tanh(x @ Wh + (r * h) @ Uh + bh)
        h = (1 - z) * h + z * fresh
        states.append(h)
    return torch.stack(states)


def sample():
    torch.manual_seed(0)
    return Padded(torch.randn(B, T, E), torch.tensor([7, 1, 5]))


@torch.no_grad()
def test_gru_applies_the_reset_gate_before_the_product():
    encoder, x = build("gru-reset-before", bidirectional=False), sample()
    for got, rows in zip(encoder(x).rows(), x.rows(), strict=True):
        torch.testing.assert_close(got, deck_gru(encoder, rows), **CLOSE)


@torch.no_grad()
def test_both_directions_and_layers_are_the_slide():
    encoder, x = build("gru-reset-before", layers=2), sample()
    for got, rows in zip(encoder(x).rows(), x.rows(), strict=True):
        for layer in ("l0", "l1"):
            back = deck_gru(encoder, rows.flip(0), f"{layer}_reverse").flip(0)
            rows = torch.cat([deck_gru(encoder, rows, layer), back], dim=1)
        torch.testing.assert_close(got, rows, **CLOSE)


def test_candidate_has_no_bias_before_training_as_on_the_slide():
    assert not Recurrent(E, H, cell="gru-reset-before").net.bias_ih_l0.any()


@torch.no_grad()
def test_the_two_forms_differ_unless_the_reset_gate_is_open():
    """PyTorch resets U h instead of h, has its gates in another order, and its z is 1 − z."""
    ours, fused, x = build("gru-reset-before"), build("gru"), sample()
    for name in ("l0", "l0_reverse"):
        for kind in ("weight_ih", "weight_hh", "bias_ih"):
            blocks = getattr(ours.net, f"{kind}_{name}").chunk(3)
            theirs = torch.cat([blocks[1], -blocks[0], blocks[2]])
            getattr(fused.net, f"{kind}_{name}").copy_(theirs)
        getattr(fused.net, f"bias_hh_{name}").zero_()
    assert not torch.allclose(ours(x).data, fused(x).data, atol=1e-3)
    for name in ("l0", "l0_reverse"):
        getattr(ours.net, f"bias_ih_{name}")[H : 2 * H] = 99.0
        getattr(fused.net, f"bias_ih_{name}")[:H] = 99.0
    torch.testing.assert_close(ours(x).data, fused(x).data, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_runs_in_other_precisions(dtype):
    encoder, x = build("gru-reset-before", initial="trained").to(dtype), sample()
    assert encoder(Padded(x.data.to(dtype), x.lengths)).data.dtype == dtype
