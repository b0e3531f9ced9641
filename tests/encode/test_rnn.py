"""Recurrent encoders, unrolled by hand from the formulas."""

import pytest
import torch
from torch import nn

from weft.batch import Padded
from weft.encode.rnn import Recurrent

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
E, H = 5, 3
LENGTHS = [7, 0, 1, 4]


def elman(W, U, b, x, s):
    return torch.tanh(U @ s[0] + W @ x + b.sum(0)), None


def lstm(W, U, b, x, s):
    """c = f⊙c + i⊙c̃; h = o⊙tanh c, the gates from one product of weights with [x; h]."""
    gates = torch.cat([W, U], dim=1) @ torch.cat([x, s[0]]) + b.sum(0)
    i, f, candidate, o = gates.chunk(4)
    c = f.sigmoid() * s[1] + i.sigmoid() * candidate.tanh()
    return o.sigmoid() * c.tanh(), c


def gru(W, U, b, x, s):
    """z update, r reset, h̃ = tanh(W x + r⊙(U h)), h = (1 − z)⊙h̃ + z⊙h."""
    Wr, Wz, Wn = W.chunk(3)
    Ur, Uz, Un = U.chunk(3)
    (br, bz, bn), (cr, cz, cn) = (part.chunk(3) for part in b)
    r = torch.sigmoid(Wr @ x + br + Ur @ s[0] + cr)
    z = torch.sigmoid(Wz @ x + bz + Uz @ s[0] + cz)
    fresh = torch.tanh(Wn @ x + bn + r * (Un @ s[0] + cn))
    return (1 - z) * fresh + z * s[0], None


CELLS = {"rnn": elman, "gru": gru, "lstm": lstm}


def unrolled(encoder, row):
    """One row, one step, one direction, one layer at a time."""
    net, states = encoder.net, list(row)
    for layer in range(net.num_layers):
        sides = []
        for d in range(encoder.directions):
            end = f"l{layer}" + ("_reverse" if d else "")
            W, U = getattr(net, f"weight_ih_{end}"), getattr(net, f"weight_hh_{end}")
            b = torch.stack([getattr(net, f"bias_ih_{end}"), getattr(net, f"bias_hh_{end}")])
            start = [s[layer * encoder.directions + d] for s in encoder.starts]
            state = start or [torch.zeros(H)]
            state = [*state, torch.zeros(H)][:2]
            found = []
            for x in states[::-1] if d else states:
                state = CELLS[encoder.cell](W, U, b, x, state)
                found.append(state[0])
            sides.append(found[::-1] if d else found)
        states = [torch.cat(pair) for pair in zip(*sides, strict=True)]
    if encoder.outputs:
        states = [
            torch.cat(
                [
                    torch.tanh(o(part))
                    for o, part in zip(encoder.outputs, s.chunk(len(encoder.outputs)), strict=True)
                ]
            )
            for s in states
        ]
    return torch.stack(states) if states else torch.zeros(0, encoder.output_size)


def build(**options):
    torch.manual_seed(1)
    encoder = Recurrent(E, H, **options)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return encoder.eval()


def sample():
    torch.manual_seed(0)
    return Padded(torch.randn(4, 7, E), torch.tensor(LENGTHS))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("extra", [{}, {"initial": "trained", "output_layer": True}])
def test_states_are_the_formulas(cell, bidirectional, layers, extra):
    encoder = build(cell=cell, bidirectional=bidirectional, layers=layers, **extra)
    x = sample()
    with torch.no_grad():
        for got, row in zip(encoder(x).rows(), x.rows(), strict=True):
            torch.testing.assert_close(got, unrolled(encoder, row), **CLOSE)


def deck_gru(Wz, Uz, bz, Wr, Ur, br, Wh, Uh, x, h):
    """Deck 001: h̃ = tanh(x W + (r⊙h) U), h = (1 − z)⊙h + z⊙h̃, vectors on the left."""
    z = torch.sigmoid(x @ Wz + h @ Uz + bz)
    r = torch.sigmoid(x @ Wr + h @ Ur + br)
    fresh = torch.tanh(x @ Wh + (r * h) @ Uh)
    return (1 - z) * h + z * fresh


def test_gru_is_deck_001_where_the_reset_may_move():
    """The kernels reset U h and not h: the same for a diagonal U. Their z is 1 − the deck's."""
    encoder = build(cell="gru", bidirectional=False)
    net, x = encoder.net, sample()
    with torch.no_grad():
        net.weight_hh_l0[2 * H :] = torch.diag(torch.randn(H))
        net.bias_ih_l0[2 * H :] = net.bias_hh_l0[2 * H :] = 0
        Wr, Wz, Wh = net.weight_ih_l0.T.chunk(3, dim=1)
        Ur, Uz, Uh = net.weight_hh_l0.T.chunk(3, dim=1)
        br, bz, _ = (net.bias_ih_l0 + net.bias_hh_l0).chunk(3)
        h, expected = torch.zeros(H), []
        for step in x.data[0]:
            h = deck_gru(-Wz, -Uz, -bz, Wr, Ur, br, Wh, Uh, step, h)
            expected.append(h)
        torch.testing.assert_close(encoder(x).data[0], torch.stack(expected), **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("initial", ["zero", "trained"])
def test_packed_and_reversed_agree(cell, initial):
    encoder = build(cell=cell, layers=2, initial=initial)
    x = sample()
    first = encoder._initial_state(x.data, None)
    a, b = encoder._run_packed(x, first)[0], encoder._run_layers(x, first)[0]
    torch.testing.assert_close(a[x.mask], b[x.mask], **CLOSE)


def test_full_batches_agree_with_padded_ones():
    encoder = build(layers=2, initial="trained")
    x = sample()
    alone = Padded(x.data[:1], x.lengths[:1])
    assert alone.full
    torch.testing.assert_close(encoder(alone).data[0], encoder(x).data[0], **CLOSE)


def test_forget_gates_start_open():
    net = Recurrent(E, H, layers=2, forget_bias=1.5).net
    for name in ("l0", "l0_reverse", "l1", "l1_reverse"):
        total = getattr(net, f"bias_ih_{name}") + getattr(net, f"bias_hh_{name}")
        assert total.tolist() == [0] * H + [1.5] * H + [0] * 2 * H


def test_recurrent_matrices_start_orthogonal():
    net = Recurrent(E, H, cell="gru").net
    for gate in net.weight_hh_l0.chunk(3):
        torch.testing.assert_close(gate @ gate.T, torch.eye(H), **CLOSE)


def test_dropout_between_layers_in_training_only():
    encoder = build(layers=2, dropout=0.5)
    x = sample()
    assert torch.equal(encoder(x).data, encoder(x).data)
    encoder.train()
    assert not torch.equal(encoder(x).data, encoder(x).data)


def test_last_states_of_pytorch_are_where_the_pool_looks():
    encoder = build()
    x = sample()
    _, (h, _) = encoder.net(x.data[:1])
    got = encoder(x).data[0]
    torch.testing.assert_close(got[-1, :H], h[0, 0], **CLOSE)
    torch.testing.assert_close(got[0, H:], h[1, 0], **CLOSE)
    assert isinstance(encoder.net, nn.LSTM)
