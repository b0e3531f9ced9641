"""Decks 000 and 004: recurrent cells from a sum to the LSTM, and tied gates."""

import pytest
import torch

from weft.batch import Padded
from weft.encode.rnn import Recurrent

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
B, T, E, H = 3, 7, 5, 2


def sigma(x):
    return 1 / (1 + torch.exp(-x))


# One step of each slide: the weights of a layer, x_t and the states before -> the states after.


def simple_sum(w, x, s):
    """s_t = s_{t−1} + x_t, for x of another width after a matrix."""
    return (s[0] + (x if w["W"] is None else w["W"] @ x),)


def tanh_sum(w, x, s):
    """s_t = tanh(s_{t−1} + x_t + b)."""
    return (torch.tanh(s[0] + (x if w["W"] is None else w["W"] @ x) + w["b"]),)


def elman(w, x, s):
    """s_t = tanh(W^s s_{t−1} + W^x x_t + b)."""
    return (torch.tanh(w["U"] @ s[0] + w["W"] @ x + w["b"]),)


def prototype_lstm(w, x, s):
    """s_t = s_{t−1} ⊙ f_t + s̃_t ⊙ i_t."""
    (Wf, Wi, Ws), (Uf, Ui, Us), (bf, bi, bs) = w["W"].chunk(3), w["U"].chunk(3), w["b"].chunk(3)
    f = sigma(Uf @ s[0] + Wf @ x + bf)
    i = sigma(Ui @ s[0] + Wi @ x + bi)
    fresh = torch.tanh(Us @ s[0] + Ws @ x + bs)
    return (s[0] * f + fresh * i,)


def lstm(w, x, s):
    """c_t = c_{t−1} ⊙ f_t + c̃_t ⊙ i_t, h_t = tanh(c_t) ⊙ o_t."""
    h, c = s
    Wi, Wf, Ws, Wo = w["W"].chunk(4)
    Ui, Uf, Us, Uo = w["U"].chunk(4)
    bi, bf, bs, bo = w["b"].chunk(4)
    f = sigma(Uf @ h + Wf @ x + bf)
    i = sigma(Ui @ h + Wi @ x + bi)
    o = sigma(Uo @ h + Wo @ x + bo)
    c = c * f + torch.tanh(Us @ h + Ws @ x + bs) * i
    return torch.tanh(c) * o, c


def tied_lstm(w, x, s):
    """The LSTM with i = 1 − f."""
    h, c = s
    (Wf, Ws, Wo), (Uf, Us, Uo), (bf, bs, bo) = w["W"].chunk(3), w["U"].chunk(3), w["b"].chunk(3)
    f = sigma(Uf @ h + Wf @ x + bf)
    o = sigma(Uo @ h + Wo @ x + bo)
    c = c * f + torch.tanh(Us @ h + Ws @ x + bs) * (1 - f)
    return torch.tanh(c) * o, c


STEPS = {
    "sum": simple_sum,
    "tanh-sum": tanh_sum,
    "rnn": elman,
    "prototype-lstm": prototype_lstm,
    "lstm": lstm,
    "tied-lstm": tied_lstm,
}


def build(cell, hidden=H, **options):
    torch.manual_seed(1)
    encoder = Recurrent(E, hidden, cell=cell, **options)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.7)
    return encoder.eval()


def sample():
    torch.manual_seed(0)
    return Padded(torch.randn(B, T, E), torch.tensor([7, 1, 5]))


def weights(encoder, name):
    """W, U and b of a layer; PyTorch's own layers have b as a sum of two."""
    own = dict(encoder.net.named_parameters())
    biases = [own[n] for n in (f"bias_ih_{name}", f"bias_hh_{name}") if n in own]
    return {
        "W": own.get(f"weight_ih_{name}"),
        "U": own.get(f"weight_hh_{name}"),
        "b": sum(biases) if biases else None,
    }


def unrolled(encoder, rows, name="l0", which=0):
    """One layer in one direction, by the slide."""
    H = encoder.net.hidden_size
    states = [start[which] for start in encoder.starts]
    states = states or [torch.zeros(H)] * (2 if "lstm" in encoder.cell else 1)
    states = states[:1] if encoder.cell == "prototype-lstm" else states
    out = []
    for x in rows:
        states = STEPS[encoder.cell](weights(encoder, name), x, states)
        out.append(states[0])
    return torch.stack(out)


@pytest.mark.parametrize("cell", STEPS)
@pytest.mark.parametrize("initial", ["zero", "trained"])
@torch.no_grad()
def test_cell_is_the_slide(cell, initial):
    encoder, x = build(cell, bidirectional=False, initial=initial), sample()
    for got, rows in zip(encoder(x).rows(), x.rows(), strict=True):
        torch.testing.assert_close(got, unrolled(encoder, rows), **CLOSE)


@pytest.mark.parametrize("cell", STEPS)
@torch.no_grad()
def test_cell_is_the_slide_in_two_layers_and_directions(cell):
    encoder, x = build(cell, layers=2, initial="trained"), sample()
    for got, rows in zip(encoder(x).rows(), x.rows(), strict=True):
        for i, layer in enumerate(("l0", "l1")):
            back = unrolled(encoder, rows.flip(0), f"{layer}_reverse", 2 * i + 1).flip(0)
            rows = torch.cat([unrolled(encoder, rows, layer, 2 * i), back], dim=1)
        torch.testing.assert_close(got, rows, **CLOSE)


@torch.no_grad()
def test_sum_of_equal_width_adds_the_steps_and_has_no_parameters():
    encoder, x = Recurrent(E, E, cell="sum", bidirectional=False), sample()
    assert not list(encoder.parameters())
    torch.testing.assert_close(encoder(x).data[0], x.data[0].cumsum(0), **CLOSE)


@torch.no_grad()
def test_tanh_of_the_sum_has_a_bias_alone_if_widths_are_equal():
    encoder, x = build("tanh-sum", hidden=E, bidirectional=False), sample()
    (bias,) = encoder.parameters()
    s = torch.zeros(E)
    for t in range(T):
        s = torch.tanh(s + x.data[0, t] + bias)
        torch.testing.assert_close(encoder(x).data[0, t], s, **CLOSE)


@torch.no_grad()
def test_tied_gates_are_an_lstm_whose_input_gate_is_one_minus_the_forget_gate():
    """1 − σ(a) = σ(−a): PyTorch's LSTM with W_i = −W_f, U_i = −U_f and b_i = −b_f."""
    tied, free, x = build("tied-lstm"), build("lstm"), sample()
    for name in ("l0", "l0_reverse"):
        for kind in ("weight_ih", "weight_hh", "bias_ih"):
            f, fresh, o = getattr(tied.net, f"{kind}_{name}").chunk(3)
            getattr(free.net, f"{kind}_{name}").copy_(torch.cat([-f, f, fresh, o]))
        getattr(free.net, f"bias_hh_{name}").zero_()
    torch.testing.assert_close(tied(x).data, free(x).data, **CLOSE)


@pytest.mark.parametrize("cell", ["prototype-lstm", "lstm", "tied-lstm"])
def test_forget_gates_start_open(cell):
    """Deck 000: initialise such that f_t → 1, b^f = 1 or more."""
    encoder = Recurrent(E, H, cell=cell, forget_bias=1.5, bidirectional=False)
    bias = weights(encoder, "l0")["b"]
    forget = {"lstm": 1}.get(cell, 0)
    expected = torch.zeros_like(bias)
    expected[forget * H : (forget + 1) * H] = 1.5
    assert torch.equal(bias, expected)


@pytest.mark.parametrize("cell", STEPS)
@torch.no_grad()
def test_unrolling_gives_the_same_states(cell):
    encoder, x = build(cell, layers=2, initial="trained"), sample()
    states, taken = encoder.unroll(x)
    torch.testing.assert_close(states.data, encoder(x).data, **CLOSE)
    cells = [name for name in taken if name.endswith("cell")]
    assert len(cells) == (4 if cell in ("lstm", "tied-lstm") else 0)
    assert all(len(steps) == T for steps in taken.values())
