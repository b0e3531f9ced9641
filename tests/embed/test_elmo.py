"""ELMo's network against its equations written out, and what of a text each direction may know."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from weft import registry
from weft.batch import Padded
from weft.embed.elmo import Elmo, ProjectedLSTM, embedder_section, network_weights
from weft.errors import UserError

E, H = 5, 7
SMALL = {
    "width": E,
    "character_width": 3,
    "filters": ((1, 3), (2, 5)),
    "hidden": H,
    "max_bytes": 11,
}
SENTENCE = ["the", "naïve", "cat", "sees", "it"]


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def embedder(seed=0, **options):
    torch.manual_seed(seed)
    return Elmo(**{**SMALL, **options}).eval()


def spelled(one, *texts):
    pieces = [one.subtoken_ids(text) for text in texts]
    wide = max(len(word) for row in pieces for word in row)
    data = torch.zeros(len(texts), max(map(len, texts)), wide, dtype=torch.long)
    for i, row in enumerate(pieces):
        for t, word in enumerate(row):
            data[i, t, : len(word)] = torch.tensor(word)
    return Padded(data, torch.tensor([len(text) for text in texts]))


def cell_by_cell(layer, side, x, clip):
    """Sak et al.'s LSTM one step at a time: the states of vectors (T, E)."""
    W, U, b, R = (w[side] for w in (layer.enter, layer.again, layer.bias, layer.project))
    hidden, cell, states = torch.zeros(E), torch.zeros(H), []
    for one in x:
        i, f, g, o = (W @ one + U @ hidden + b).chunk(4)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        cell = cell.clamp(-clip, clip)
        hidden = (R @ (torch.sigmoid(o) * torch.tanh(cell))).clamp(-clip, clip)
        states.append(hidden)
    return torch.stack(states)


def test_without_clipping_it_is_pytorchs_lstm_with_a_projection():
    torch.manual_seed(0)
    layer, x = ProjectedLSTM(E, H, clip=0.0), torch.randn(2, 3, 11, E)
    states, cells = layer(x, torch.zeros(2, 3, E), torch.zeros(2, 3, H), slice(0, 2))
    for side in range(2):
        net = nn.LSTM(E, H, proj_size=E, batch_first=True)
        weights = (layer.enter, layer.again, layer.bias, torch.zeros(2, 4 * H), layer.project)
        with torch.no_grad():
            for own, other in zip(net.parameters(), weights, strict=True):
                own.copy_(other[side])
        wanted, (_, last) = net(x[side])
        close(states[side], wanted)
        close(cells[-1][side], last[0])


def test_cells_and_states_are_clipped_where_the_authors_do():
    torch.manual_seed(0)
    layer, x = ProjectedLSTM(E, H, clip=0.3), 9 * torch.randn(2, 1, 13, E)
    states, cells = layer(x, torch.zeros(2, 1, E), torch.zeros(2, 1, H), slice(0, 2))
    for side in range(2):
        close(states[side, 0], cell_by_cell(layer, side, x[side, 0], clip=0.3))
    assert (torch.stack(cells).abs() == 0.3).any()
    assert (states.abs() == 0.3).any()
    assert torch.stack(cells).abs().max() <= 0.3
    assert states.abs().max() <= 0.3


def test_layers_are_those_of_the_paper():
    one = embedder()
    x = spelled(one, SENTENCE)
    words = one.network.embed_words(x).data[0]  # (T, E)
    mark = one.network.boundary_vector()
    found = one.layers(x)
    assert [tuple(layer.shape) for layer in found] == [(1, 5, 2 * E)] * 3
    close(found[0][0], torch.cat([words, words], 1))
    first, second = one.network.layers
    for side, order in ((0, words), (1, words.flip(0))):
        below = cell_by_cell(first, side, torch.stack([mark, *order]), 3.0)
        above = cell_by_cell(second, side, below, 3.0) + below  # the residual
        for layer, states in ((found[1], below), (found[2], above)):
            own = states[1:] if side == 0 else states[1:].flip(0)
            close(layer[0, :, side * E : (side + 1) * E], own)


@pytest.mark.parametrize("word", range(5))
def test_no_direction_sees_what_it_has_not_read(word):
    one = embedder()
    other = list(SENTENCE)
    other[word] = "zebra"
    before, after = (one.layers(spelled(one, text)) for text in (SENTENCE, other))
    for a, b in zip(before[1:], after[1:], strict=True):
        changed = ((a - b).abs() > 1e-7)[0]  # (T, 2*E)
        ahead, back = changed[:, :E].any(1).tolist(), changed[:, E:].any(1).tolist()
        assert ahead == [t >= word for t in range(5)]
        assert back == [t <= word for t in range(5)]


def test_words_are_read_by_their_letters():
    one = embedder()
    x = spelled(one, ["cat", "cats", "cat", "Cat"])
    words = one.network.embed_words(x).data[0]
    assert torch.equal(words[0], words[2])
    assert not torch.equal(words[0], words[1])
    assert not torch.equal(words[0], words[3])


def test_a_word_that_comes_twice_learns_twice():
    """In training too each kind of word is read once; the gradient must not know."""
    grads = []
    for once in (True, False):
        one = embedder().train()
        one.network.characters.dedupe_in_training = once
        vectors = one(spelled(one, ["cat", "sees", "cat"], ["cat"]))
        (vectors.data * torch.arange(2.0 * E)).sum().backward()
        grads.append([p.grad for p in one.network.characters.parameters()])
    for a, b in zip(*grads, strict=True):
        close(a, b)


@pytest.mark.parametrize("norm", [False, True])
def test_the_mix_and_its_gradients(norm):
    one = embedder(norm=norm, frozen=True).train()
    with torch.no_grad():
        one.mix.scores.copy_(torch.tensor([0.5, -1.0, 2.0]))
        one.mix.gamma.fill_(1.7)
    x = spelled(one, SENTENCE)
    layers = [layer.detach() for layer in one.layers(x)]
    if norm:
        layers = [
            (h - h.mean(2, keepdim=True)) / (h.var(2, keepdim=True, unbiased=False) + 1e-5).sqrt()
            for h in layers
        ]
    shares = torch.tensor([0.5, -1.0, 2.0]).exp()
    shares = shares / shares.sum()
    mixed = sum(s * h for s, h in zip(shares, layers, strict=True))
    out = one(x).data
    close(out, 1.7 * mixed)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    close(one.mix.gamma.grad, (mixed * weight).sum())
    dots = torch.stack([1.7 * (h * weight).sum() for h in layers])
    close(one.mix.scores.grad, shares * (dots - (shares * dots).sum()))  # through the softmax
    assert all(p.grad is None for p in one.network.parameters())


def test_frozen_and_not():
    x = spelled(embedder(), SENTENCE)
    frozen, tuned = embedder(frozen=True), embedder()
    assert [n for n, p in frozen.named_parameters() if p.requires_grad] == [
        "mix.scores", "mix.gamma",
    ]  # fmt: skip
    assert torch.equal(frozen(x).data, tuned(x).data)
    levels = tuned.layer_groups()
    assert [len(level) for level in levels] == [len(list(p.parameters())) for p in (
        tuned.network.characters, *tuned.network.layers,
    )]  # fmt: skip
    last = embedder(mix=False)
    close(last(x).data, last.layers(x)[-1])


def test_a_language_model_becomes_an_embedder():
    torch.manual_seed(0)
    spec = {"kind": "elmo", **SMALL, "filters": [list(pair) for pair in SMALL["filters"]]}
    decoder = registry.build("decoder", {**spec, "dropout": 0.0}, vocabulary_size=13).eval()
    filled = registry.fill("decoder", spec, ("vocabulary_size", "memory_size", "directions"))
    section = embedder_section(filled)
    assert section["frozen"]
    one = registry.build("embedder", {**section, "mix": False}, vocabulary_size=3).eval()
    weights = {f"head.decoder.{name}": w for name, w in decoder.state_dict().items()}
    one.load_state_dict(network_weights(weights), strict=True)
    # What the language models know after a word is what the embedder says of it.
    vectors = one(spelled(one, SENTENCE)).data[0]
    for side, order in ((False, SENTENCE), (True, SENTENCE[::-1])):
        pieces = spelled(one, ["", *order]).data
        tokens = Padded(F.pad(pieces, (1, 0)), torch.tensor([6]))
        features = decoder.backward_features if side else decoder.features
        states = features(tokens)[0, 1:]
        close(vectors[:, E:].flip(0) if side else vectors[:, :E], states)
    with pytest.raises(UserError, match="not the weights of an ELMo: pre-train one with --recipe"):
        network_weights({"head.decoder.words.bias": torch.zeros(3)})


def test_options_that_make_no_sense():
    with pytest.raises(UserError, match=r"embedder 'elmo': 'hidden' should be at least 1, got 0"):
        Elmo(hidden=0)
    with pytest.raises(
        UserError, match=r"embedder 'elmo': 'clip' and 'highway_layers' should be 0 or"
    ):
        Elmo(clip=-1.0)
    with pytest.raises(UserError, match=r"'elmo': 'filters' should be pairs \[width, count\], got"):
        Elmo(filters=((1, 0),))
    with pytest.raises(UserError, match=r"embedder 'elmo': 'dropout' should be from 0"):
        Elmo(dropout=1.0)
