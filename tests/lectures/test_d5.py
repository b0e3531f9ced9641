"""D5: the recurrent decoders of the lectures, written out step by step for one row at a time."""

import pytest
import torch

from weft.batch import Padded
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.errors import UserError

V, M, H, E, T = 11, 6, 7, 5, 3
LENGTHS = [3, 2, 5]
CELLS = ["rnn", "gru", "lstm"]


def build(**options):
    torch.manual_seed(1)
    decoder = RecurrentDecoder(V, M, directions=2, width=E, hidden=H, **options).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return decoder


def memory():
    torch.manual_seed(2)
    return Padded(torch.randn(3, 5, M), torch.tensor(LENGTHS))


def words():
    torch.manual_seed(4)
    return Padded(torch.randint(1, V, (3, T)), torch.tensor([T, T, T]))


def rows():
    """Ids and encoder states h_1 … h_n of each row."""
    encoded, ids = memory(), words()
    return [(i, ids.data[i], encoded.data[i, :n]) for i, n in enumerate(LENGTHS)]


def ends(h):
    """The two ends of a bidirectional encoder: [→h_n; ←h_1]."""
    return torch.cat([h[-1, : M // 2], h[0, M // 2 :]])


def initial(decoder, vector):
    """s₀ = tanh(W c + b), for each layer; an LSTM has a cell as well."""
    flat = torch.tanh(decoder.first.weight @ vector + decoder.first.bias)
    return flat.view(decoder.kept, decoder.layers, H)


def step(decoder, cell, x, state, layer=0):
    """One step of a cell; the state is s, or [s; cell] of an LSTM."""
    W, U, b, d = (p for p in decoder.net.all_weights[layer])
    s = state[0]
    if cell == "rnn":
        return torch.stack([torch.tanh(W @ x + b + U @ s + d)])
    if cell == "gru":
        (rx, zx, nx), (rs, zs, ns) = (W @ x + b).chunk(3), (U @ s + d).chunk(3)
        r, z = torch.sigmoid(rx + rs), torch.sigmoid(zx + zs)
        return torch.stack([(1 - z) * torch.tanh(nx + r * ns) + z * s])
    i, f, g, o = (W @ x + b + U @ s + d).chunk(4)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.stack([torch.sigmoid(o) * torch.tanh(c), c])


def embed(decoder, i):
    return decoder.words.table.weight[i]


def logits(decoder, features):
    return decoder.words.scored @ features + decoder.words.bias


def attend(decoder, s, h):
    """e_ij = v·tanh(W s + U h_j + b), α = softmax(e), c = Σ α_j h_j."""
    score = decoder.score
    inside = [score.query.weight @ s + score.query.bias + score.memory.weight @ one for one in h]
    energies = torch.stack([score.weigh.weight[0] @ torch.tanh(one) for one in inside])
    weights = energies.exp() / energies.exp().sum()
    return weights @ h, weights


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_idea_one_starts_from_the_encoder_vector(cell):
    decoder = build(source="start", cell=cell)
    scores = decoder(words(), memory())
    for row, ids, h in rows():
        state = initial(decoder, ends(h))[:, 0]
        for t, i in enumerate(ids):
            state = step(decoder, cell, embed(decoder, i), state)
            close(scores[row, t], logits(decoder, state[0]))


@pytest.mark.parametrize("cell", CELLS)
def test_idea_two_reads_the_encoder_vector_at_every_step(cell):
    decoder = build(source="every", cell=cell)
    scores = decoder(words(), memory())
    for row, ids, h in rows():
        c = ends(h)
        state = initial(decoder, c)[:, 0]
        for t, i in enumerate(ids):
            state = step(decoder, cell, torch.cat([embed(decoder, i), c]), state)
            close(scores[row, t], logits(decoder, state[0]))


@pytest.mark.parametrize("cell", CELLS)
def test_luong_attends_from_the_new_state(cell):
    decoder = build(cell=cell)
    scores, output = decoder(words(), memory()), decoder.read(words(), memory())
    for row, ids, h in rows():
        state = initial(decoder, ends(h))[:, 0]
        for t, i in enumerate(ids):
            state = step(decoder, cell, embed(decoder, i), state)
            c, weights = attend(decoder, state[0], h)
            joined = decoder.mix.weight @ torch.cat([c, state[0]]) + decoder.mix.bias
            close(scores[row, t], logits(decoder, torch.tanh(joined)))
            close(output.weights[row, t, : len(h)], weights)


def read_out(decoder, readout, before, after, word, c):
    """t = MLP(U_o s_{j-1} + V_o E y_{j-1} + C_o c_j + b_o), or of s_j alone."""
    W, b = decoder.mix.project.weight, decoder.mix.project.bias
    if readout == "state":
        return torch.tanh(W @ after + b)
    U, V_, C = W[:, :H], W[:, H : H + E], W[:, H + E :]
    t = U @ before + V_ @ word + C @ c + b
    return torch.tanh(t) if readout == "tanh" else torch.maximum(t[0::2], t[1::2])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("readout", ["maxout", "tanh", "state"])
def test_bahdanau_attends_from_the_previous_state_and_feeds_the_context(cell, readout):
    decoder = build(cell=cell, attention="bahdanau", readout=readout, summary="backward")
    scores, output = decoder(words(), memory()), decoder.read(words(), memory())
    for row, ids, h in rows():
        state = initial(decoder, h[0, M // 2 :])[:, 0]  # s₀ = tanh(W_s ←h_1)
        for t, i in enumerate(ids):
            before = state[0]
            c, weights = attend(decoder, before, h)
            state = step(decoder, cell, torch.cat([embed(decoder, i), c]), state)
            features = read_out(decoder, readout, before, state[0], embed(decoder, i), c)
            close(scores[row, t], logits(decoder, features))
            close(output.weights[row, t, : len(h)], weights)
            close(output.hidden[row, t], state[0])


def test_bahdanau_stacks_layers_and_attends_from_the_top():
    decoder = build(cell="lstm", layers=2, attention="bahdanau", readout="tanh")
    scores = decoder(words(), memory())
    for row, ids, h in rows():
        bottom, top = initial(decoder, ends(h)).unbind(1)
        for t, i in enumerate(ids):
            before = top[0]
            c, _ = attend(decoder, before, h)
            bottom = step(decoder, "lstm", torch.cat([embed(decoder, i), c]), bottom)
            top = step(decoder, "lstm", bottom[0], top, layer=1)
            features = read_out(decoder, "tanh", before, top[0], embed(decoder, i), c)
            close(scores[row, t], logits(decoder, features))


def test_bahdanau_drops_out_between_layers():
    decoder = build(cell="gru", layers=2, attention="bahdanau", dropout=0.5).train()
    decoder.dropout.p = 0.0  # the one at inputs and features
    ids, encoded = words(), memory()
    first, second = (decoder.read(ids, encoded).hidden for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(*(decoder.eval().read(ids, encoded).hidden for _ in range(2)))


def test_options_of_the_other_order_are_refused():
    with pytest.raises(UserError, match="'attention' needs source = \"attention\", got 'every'"):
        build(source="every", attention="bahdanau")
    with pytest.raises(UserError, match="'input_feeding' needs attention = \"luong\""):
        build(attention="bahdanau", input_feeding=True)
    with pytest.raises(UserError, match="'readout' needs attention = \"bahdanau\""):
        build(readout="tanh")
    with pytest.raises(
        UserError, match=r'summary = "backward" needs encoder\.bidirectional = true'
    ):
        RecurrentDecoder(V, M, summary="backward")
