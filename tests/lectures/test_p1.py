"""P1: ELMo as in the lecture, its layers written out, and layer norm in the language models."""

import math

import pytest
import torch

import weft
from weft import registry
from weft.batch import Padded
from weft.config import with_pretrained
from weft.decode.decoders.language_models import RecurrentLM, RecurrentLMState
from weft.embed.elmo import Elmo
from weft.embed.spelling import encode_word
from weft.predict import load

V, E, H, T = 13, 5, 7, 4
SMALL = {"width": E, "hidden": H, "character_width": 3, "filters": ((1, 3), (2, 5))}
WORDS = ["The", "loom", "stands", "still"]


def shake(module):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


def normalise(a, g, b):
    """g/σ ⊙ (a − μ) + b, with mean μ and deviation σ of the H numbers of a."""
    mean = a.sum() / len(a)
    deviation = ((a - mean).square().sum() / len(a) + 1e-5).sqrt()
    return g / deviation * (a - mean) + b


def highway(x, change, gate):
    """g = σ(W_g h + b_g), h' = (1 − g) ⊙ h + g ⊙ ReLU(W h + b)."""
    g = torch.sigmoid(gate.weight @ x + gate.bias)
    return (1 - g) * x + g * torch.relu(change.weight @ x + change.bias)


def lstm(layer, side, x, h, c, clip):
    """One step of an LSTM with a projection, within ± clip."""
    i, f, g, o = (layer.enter[side] @ x + layer.again[side] @ h + layer.bias[side]).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    c = c.clamp(-clip, clip)
    return (layer.project[side] @ (torch.sigmoid(o) * torch.tanh(c))).clamp(-clip, clip), c


def layers_by_hand(network, vectors, side):
    """h^l = LN(LSTM(h^{l-1}) + h^{l-1}), without the sum in the first layer."""
    out = []
    for number, layer in enumerate(network.layers):
        h, c, states = torch.zeros(E), torch.zeros(H), []
        for x in vectors:
            h, c = lstm(layer, side, x, h, c, layer.clip)
            y = h + x if number else h
            if network.norms:
                norm = network.norms[number]
                y = normalise(y, norm.weight[side], norm.bias[side])
            states.append(y)
        vectors = states
        out.append(torch.stack(states))
    return out


def sentence(embedder):
    rows = [torch.tensor(row) for row in embedder.subtoken_ids(WORDS)]
    return Padded(torch.nn.utils.rnn.pad_sequence(rows, True)[None], torch.tensor([T]))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("layer_norm", [False, True])
def test_elmo_mixes_the_layers_of_both_language_models(layer_norm):
    elmo = shake(Elmo(**SMALL, clip=0.5, layer_norm=layer_norm))
    words = elmo.network.embed_words(sentence(elmo)).data[0]  # (T, E)
    mark = elmo.network.boundary_vector()
    ahead = layers_by_hand(elmo.network, [mark, *words], 0)
    back = layers_by_hand(elmo.network, [mark, *words.flip(0)], 1)
    h = [torch.cat([words, words], 1)]
    h += [torch.cat([f[1:], b[1:].flip(0)], 1) for f, b in zip(ahead, back, strict=True)]
    s = elmo.mix.scores.exp() / elmo.mix.scores.exp().sum()
    vectors = elmo(sentence(elmo)).data[0]
    for k in range(T):  # ELMo_k = γ Σ_L s_L h_k^L
        close(vectors[k], elmo.mix.gamma * sum(s[n] * h[n][k] for n in range(3)))


@torch.no_grad()
def test_words_are_read_by_convolutions_maximum_and_two_highway_layers():
    characters = shake(Elmo(**SMALL)).network.characters
    for word in WORDS:
        x = characters.table.weight[encode_word(word)]  # (W, 3)
        found = []
        for (width, count), one in zip(SMALL["filters"], characters.convolutions, strict=True):
            windows = [x[i : i + width].T for i in range(len(x) - width + 1)]
            sums = [(one.weight * window).sum((1, 2)) + one.bias for window in windows]
            assert len(sums[0]) == count
            found.append(torch.stack(sums).amax(0))
        vector = torch.relu(torch.cat(found))
        for layer in zip(characters.highway.changes, characters.highway.gates, strict=True):
            vector = highway(vector, *layer)
        vector = characters.project.weight @ vector + characters.project.bias
        close(characters.embed_words(torch.tensor([encode_word(word)]))[0], vector)
    assert len(characters.highway.gates) == 2


def cell_by_hand(model, layer, x, state):
    W, U, b, d = model.net.all_weights[layer]
    if model.cell == "rnn":
        return [torch.tanh(W @ x + b + U @ state[0] + d)]
    if model.cell == "gru":
        (rx, zx, nx), (rs, zs, ns) = (W @ x + b).chunk(3), (U @ state[0] + d).chunk(3)
        r, z = torch.sigmoid(rx + rs), torch.sigmoid(zx + zs)
        return [(1 - z) * torch.tanh(nx + r * ns) + z * state[0]]
    i, f, g, o = (W @ x + b + U @ state[0] + d).chunk(4)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


@torch.no_grad()
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_language_model_normalises_the_output_of_each_layer(cell):
    model = shake(RecurrentLM(V, E, H, layers=2, cell=cell, layer_norm=True))
    ids = Padded(torch.randint(1, V, (4, T)), torch.tensor([2, 4, 0, 3]))
    logits, carried = model(ids), model.carry(ids)
    for row, length in enumerate(ids.lengths.tolist()):
        states = [[torch.zeros(H)] * (2 if cell == "lstm" else 1) for _ in range(2)]
        for t in range(length):
            x = model.words.table.weight[ids.data[row, t]]
            for layer in range(2):
                states[layer] = cell_by_hand(model, layer, x, states[layer])
                x = normalise(states[layer][0], model.norms[layer].weight, model.norms[layer].bias)
            close(logits[row, t], model.words.scored @ x + model.words.bias)
            close(carried.features[row, t], x)
        close(carried.state.hidden[row], torch.stack([one[0] for one in states]))
        if cell == "lstm":
            close(carried.state.cell[row], torch.stack([one[1] for one in states]))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn-lm", "elmo"])
def test_windows_carry_the_state_and_steps_agree(kind):
    spec = {"kind": kind, "width": E, "hidden": H, "layers": 2, "layer_norm": True}
    spec |= {} if kind == "rnn-lm" else {"filters": [[1, 3], [2, 5]], "character_width": 3}
    model = shake(registry.build("decoder", spec, vocabulary_size=V))
    torch.manual_seed(3)
    ids = torch.randint(1, V, (3, 2 * T))
    whole = model.features(Padded(ids, torch.full((3,), 2 * T)))
    state, pieces = None, []
    for window in ids.split(T, 1):
        output = model.carry(Padded(window, torch.full((3,), T)), state)
        state = output.state
        pieces.append(output.features)
    close(torch.cat(pieces, 1), whole)
    state, steps = model.start(3), []
    for column in ids.unbind(1):
        output, state = model.step_features(column, state)
        steps.append(output.features)
    close(torch.cat(steps, 1), whole)
    if kind == "rnn-lm":
        close(model.unroll(Padded(ids, torch.full((3,), 2 * T)))[0], whole)


def test_without_the_option_nothing_is_added():
    plain = RecurrentLM(V, E, H, layers=2)
    assert not [name for name, _ in plain.named_parameters() if "norm" in name]
    assert not [name for name, _ in Elmo(**SMALL).named_parameters() if "norm" in name]
    torch.manual_seed(0)
    first = RecurrentLM(V, E, H, layers=2, layer_norm=True).state_dict()
    torch.manual_seed(0)
    other = RecurrentLM(V, E, H, layers=2).state_dict()
    assert all(torch.equal(first[name], weight) for name, weight in other.items())


def test_training_with_dropout_uses_the_norms():
    model = shake(RecurrentLM(V, E, H, layers=2, dropout=0.5, weight_drop=0.3, layer_norm=True))
    ids = Padded(torch.randint(1, V, (3, T)), torch.full((3,), T))
    model.train()(ids).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.norms.parameters())
    assert isinstance(model.carry(ids).state, RecurrentLMState)


TINY = {
    "tokenizer.min_count": 1, "decoder.width": E, "decoder.hidden": H, "decoder.layers": 2,
    "decoder.layer_norm": True, "train.epochs": 1, "train.batch_size": 3, "task.window": 5,
}  # fmt: skip
ELMO = {"decoder.filters": [[1, 3], [2, 5]], "decoder.character_width": 3}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the loom stands still . the weaver sleeps .\n" * 23, "utf-8")
    return path


@pytest.mark.parametrize("recipe", ["rnn-lm", "lstm-lm", "elmo-pretrain"])
def test_a_trained_model_keeps_its_norms(recipe, text, tmp_path):
    changes = {**TINY, **(ELMO if recipe == "elmo-pretrain" else {"decoder.tied": False})}
    changes |= {"data.train": str(text), "data.dev": str(text)}
    config = weft.recipe(recipe).with_values(changes, "test")
    out = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    loaded = load(tmp_path / "run", device="cpu")
    assert loaded.config["decoder"]["layer_norm"]
    one, other = (p(["the loom sleeps ."])[0] for p in (out.predictor, loaded))
    assert math.isclose(one.score, other.score, rel_tol=1e-5)
    if recipe != "elmo-pretrain":
        (drawn,) = weft.generate(loaded, ["the loom"], method="greedy", max_length=3)
        assert drawn


@pytest.mark.parametrize("recipe", ["elmo", "tagger-elmo"])
def test_a_pretrained_network_brings_its_norms(recipe, text, tmp_path):
    changes = {**TINY, **ELMO, "data.train": str(text), "data.dev": str(text)}
    config = weft.recipe("elmo-pretrain").with_values(changes, "test")
    weft.train(config, tmp_path / "biLM", quiet=True, device="cpu")
    learned = {
        name: weight
        for name, weight in load(tmp_path / "biLM").engine.model.state_dict().items()
        if ".norms." in name
    }
    assert len(learned) == 4
    data = tmp_path / ("data.tsv" if recipe == "elmo" else "data.conllu")
    data.write_text(LABELLED[recipe], "utf-8")
    short = {"data.train": str(data), "data.dev": str(data), "train.epochs": 1}
    tuned = with_pretrained(weft.recipe(recipe), str(tmp_path / "biLM"))
    tuned = tuned.with_values(short, "test")
    weft.train(tuned, tmp_path / "run", quiet=True, device="cpu")
    weights = load(tmp_path / "run", device="cpu").engine.model.state_dict()
    found = {name: w for name, w in weights.items() if ".norms." in name}
    assert len(found) == 4
    for name, weight in learned.items():
        (own,) = (w for other, w in found.items() if other.endswith(name.split("network.")[1]))
        assert torch.equal(own, weight)


LABELLED = {
    "elmo": "text\tlabel\n" + "the loom stands\tgood\nthe weaver sleeps\tbad\n" * 5,
    "tagger-elmo": (
        "1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tloom\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n" * 5
    ),
}
