"""Deck 003: SGD, Adam, warm-up then decay, clipping, early stopping, dropout and initialisation."""

import math

import pytest
import torch
from torch import nn

from weft import UserError, config
from weft.embed.highway import Highway
from weft.model import build_model
from weft.run.settings import read_settings
from weft.run.train import resolve_config
from weft.text.annotation.word_tuples import LABELS
from weft.train.initialise import INITS, initialise
from weft.train.optim import build_optimisers, clip_gradients, set_learning_rate
from weft.train.schedule import scheduled_rate
from weft.train.settings import Settings

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
# (learning rate, momentum, decay) of the updates that are written out below
RATE, STEPS = 0.1, 5


def build_layer():
    torch.manual_seed(1)
    return nn.Linear(3, 2)


def backward(layer, step):
    """Put a gradient on the layer that changes with the step; the loss is a square."""
    torch.manual_seed(step)
    x, y = torch.randn(7, 3), torch.randn(7, 2)
    layer.zero_grad()
    ((layer(x) - y) ** 2).sum().backward()
    return [p.grad.clone() for p in layer.parameters()]


def test_sgd_subtracts_the_gradient_times_the_rate():
    """θ := θ − α ∇l."""
    layer = build_layer()
    theta = [p.detach().clone() for p in layer.parameters()]
    settings = Settings(optimiser="sgd", learning_rate=RATE, momentum=0.0)
    (optimiser,) = build_optimisers(layer, settings)
    for step in range(STEPS):
        gradients = backward(layer, step)
        optimiser.step()
        theta = [t - RATE * g for t, g in zip(theta, gradients, strict=True)]
        for p, t in zip(layer.parameters(), theta, strict=True):
            torch.testing.assert_close(p.detach(), t, **CLOSE)
        theta = [p.detach().clone() for p in layer.parameters()]


def test_sgd_with_momentum_adds_up_gradients():
    """v := μ v + ∇l, θ := θ − α v."""
    layer = build_layer()
    settings = Settings(optimiser="sgd", learning_rate=0.01, momentum=0.9)
    (optimiser,) = build_optimisers(layer, settings)
    velocity = [torch.zeros_like(p) for p in layer.parameters()]
    for step in range(STEPS):
        before = [p.detach().clone() for p in layer.parameters()]
        gradients = backward(layer, step)
        optimiser.step()
        velocity = [0.9 * v + g for v, g in zip(velocity, gradients, strict=True)]
        for p, t, v in zip(layer.parameters(), before, velocity, strict=True):
            torch.testing.assert_close(p.detach(), t - 0.01 * v, **CLOSE)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_divides_the_mean_gradient_by_the_root_of_its_mean_square(name):
    """m̂/(√v̂ + ε) (Kingma and Ba 2015); AdamW first shrinks matrices by α λ, Adam adds λ θ to ∇."""
    layer, beta1, beta2, decay = build_layer(), 0.9, 0.99, 0.3
    settings = Settings(optimiser=name, learning_rate=RATE, beta2=beta2, weight_decay=decay)
    (optimiser,) = build_optimisers(layer, settings)
    m = [torch.zeros_like(p) for p in layer.parameters()]
    v = [torch.zeros_like(p) for p in layer.parameters()]
    for step in range(1, STEPS + 1):
        before = [p.detach().clone() for p in layer.parameters()]
        gradients = backward(layer, step)
        optimiser.step()
        for i, (p, theta) in enumerate(zip(layer.parameters(), before, strict=True)):
            g = gradients[i]
            if name == "adamw":
                theta = theta * (1 - RATE * decay) if theta.dim() > 1 else theta
            else:
                g = g + decay * theta
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g**2
            m_hat, v_hat = m[i] / (1 - beta1**step), v[i] / (1 - beta2**step)
            expected = theta - RATE * m_hat / (v_hat.sqrt() + 1e-8)
            torch.testing.assert_close(p.detach(), expected, **CLOSE)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "inverse-sqrt"])
def test_rate_rises_in_the_warm_up_then_decays(schedule):
    settings = Settings(learning_rate=0.5, warmup=0.2, schedule=schedule)
    decays = {
        "constant": lambda t: 1.0,
        "linear": lambda t: (1 - t) / 0.8,
        "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * (t - 0.2) / 0.8)),
        "inverse-sqrt": lambda t: math.sqrt(0.2 / t),
    }
    for i in range(101):
        t = i / 100
        expected = 0.5 * t / 0.2 if t < 0.2 else 0.5 * decays[schedule](t)
        assert scheduled_rate(settings, t) == pytest.approx(expected, abs=1e-9)


def test_the_scheduled_rate_is_that_of_the_next_update():
    layer = build_layer()
    optimisers = build_optimisers(layer, Settings(optimiser="sgd", momentum=0.0))
    before = layer.weight.detach().clone()
    set_learning_rate(optimisers, 0.25)
    gradient = backward(layer, 0)[0]
    optimisers[0].step()
    torch.testing.assert_close(layer.weight.detach(), before - 0.25 * gradient, **CLOSE)


@pytest.mark.parametrize("max_norm", [0.5, 1e6, 0.0])
def test_gradients_are_clipped_by_their_global_norm(max_norm):
    """g := g · min(1, c / ‖g‖), with the norm over all parameters."""
    layer = build_layer()
    gradients = backward(layer, 3)
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    got = clip_gradients(layer.parameters(), max_norm)
    assert float(got) == pytest.approx(norm, rel=1e-5)
    factor = min(1.0, max_norm / norm) if max_norm else 1.0
    for p, g in zip(layer.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, g * factor, **CLOSE)


# Initialisation


def build_lstm_model(**encoder):
    parts = {
        "embedder": {"kind": "lookup", "width": 50},
        "encoder": {"kind": "rnn", "hidden": 60, "forget_bias": 0.7, **encoder},
        "pool": {"kind": "last"},
        "head": {"kind": "linear"},
    }
    torch.manual_seed(1)
    return build_model(parts, vocabulary_size=31, outputs=7)


def matrices(model):
    """The weight matrices of that model in order, one per gate, and (fan-out, fan-in) of each."""
    net = model.encoder.net
    for suffix in ("", "_reverse"):
        for kind in ("ih", "hh"):
            yield from getattr(net, f"weight_{kind}_l0{suffix}").split(60)
    (linear,) = (m for m in model.head.modules() if isinstance(m, nn.Linear))
    yield linear.weight


TORCH = {
    "xavier-uniform": nn.init.xavier_uniform_,
    "xavier-normal": nn.init.xavier_normal_,
    "kaiming-uniform": lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"),
    "kaiming-normal": lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"),
    "orthogonal": nn.init.orthogonal_,
    "normal": nn.init.normal_,
    "uniform": lambda w: nn.init.uniform_(w, -1, 1),
}


@pytest.mark.parametrize("name", INITS)
def test_matrices_are_those_of_torch_with_the_same_seed(name):
    model = build_lstm_model()
    torch.manual_seed(3)
    initialise(model, name, 1.0)
    torch.manual_seed(3)
    for weight in matrices(model):
        assert torch.equal(weight, TORCH[name](torch.empty_like(weight)))


# Variances of the papers: Glorot and Bengio 2010, He et al. 2015, Saxe et al. 2014.
VARIANCES = {
    "xavier-uniform": lambda out, into: 2 / (into + out),
    "xavier-normal": lambda out, into: 2 / (into + out),
    "kaiming-uniform": lambda out, into: 2 / into,
    "kaiming-normal": lambda out, into: 2 / into,
    "orthogonal": lambda out, into: 1 / max(into, out),
    "normal": lambda out, into: 1.0,
    "uniform": lambda out, into: 1 / 3,
}


@pytest.mark.parametrize("name", VARIANCES)
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_variance_is_that_of_the_paper(name, scale):
    model = build_lstm_model()
    initialise(model, name, scale)
    for weight in matrices(model):
        if weight.numel() > 2000:
            expected = scale**2 * VARIANCES[name](*weight.shape)
            assert float(weight.detach().var()) == pytest.approx(expected, rel=0.1)
            assert abs(float(weight.detach().mean())) < 0.1 * expected**0.5
        if name.endswith("uniform"):
            bound = math.sqrt(3 * scale**2 * VARIANCES[name](*weight.shape))
            assert float(weight.detach().abs().max()) <= bound * 1.0001


def test_biases_are_zero_but_for_forget_gates():
    model = build_lstm_model()
    initialise(model, "xavier-normal", 1.0)
    biases = {name: p for name, p in model.named_parameters() if "bias" in name}
    assert len(biases) == 5
    for name, bias in biases.items():
        expected = torch.zeros_like(bias)
        if "bias_ih" in name:
            expected[60:120] = 0.7
        assert torch.equal(bias, expected), name


@pytest.mark.parametrize("cell", ["gru", "tied-lstm", "prototype-lstm", "gru-reset-before"])
def test_every_gate_is_a_matrix_of_its_own(cell):
    model = build_lstm_model(cell=cell)
    initialise(model, "orthogonal", 1.0)
    for name, weight in model.encoder.net.named_parameters():
        if name.startswith("weight_hh"):
            for gate in weight.split(60):
                torch.testing.assert_close(gate @ gate.T, torch.eye(60), rtol=0, atol=1e-5)


def test_gates_of_a_highway_keep_their_bias():
    highway = Highway(5, carry=1.5)
    initialise(highway, "normal", 1.0)
    assert all(bool((gate.bias == -1.5).all()) for gate in highway.gates)
    assert not any(change.bias.any() for change in highway.changes)


def test_an_lstm_of_pytorch_gets_zero_biases_and_open_forget_gates():
    lstm = nn.LSTM(3, 5)
    initialise(lstm, "uniform", 0.1)
    assert lstm.bias_ih_l0.tolist() == [0] * 5 + [1] * 5 + [0] * 10
    assert not lstm.bias_hh_l0.any()


def test_default_changes_nothing():
    model = build_lstm_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    initialise(model, "default", 1.0)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(state, torch.get_rng_state())


# What is not a weight matrix: tables, initial states, transitions.
KEPT = (
    "table.weight",
    "table",
    "ngrams.weight",
    "transitions",
    "positions.weight",
    "bias",
    "indicator.weight",
    "senses.vectors.weight",
)
KEPT += ("segments.weight", "implied.weight")
SMALL = {"hidden": 8, "heads": 2, "width": 8, "layers": 2, "feed_forward": 8, "buckets": 11}


def small_recipes():
    for name in config.recipes(None):
        recipe = config.recipe(name)
        start = recipe["recipe"].get("pretrained")
        if "classic" not in recipe and not start:
            yield name


ROLES = [(("ARG0", "V"), ""), (("see.01", "see.02"), ""), (("saw\tsee",), "")]
RECIPES = list(small_recipes())


@pytest.mark.parametrize("name", RECIPES)
def test_every_weight_matrix_of_a_recipe_is_drawn(name):
    recipe = config.recipe(name)
    values = {
        key: SMALL[last]
        for key in config.setting_names(recipe.sections)
        if (last := key.split(".")[-1]) in SMALL and key.split(".")[0] not in ("task", "tokenizer")
    }
    if name == "seq2seq-vectors":
        values["embedder.features"] = 5
    if name == "caption":
        values["embedder.shape"] = [5, 7, 3]
    full = resolve_config(recipe.with_values(values, "test"))
    model = build_model(full, vocabulary_size=31, outputs=sizes(full))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    initialise(model, "normal", 1.0)
    kept = {n for n, p in model.named_parameters() if p.dim() > 1 and torch.equal(p, before[n])}
    assert all(n.endswith(KEPT) for n in kept), kept
    drawn = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert drawn


@pytest.mark.parametrize("score", ["additive", "bilinear"])
@pytest.mark.parametrize("name", ["transformer", "bilstm-attention", "towers"])
def test_scores_of_attention_and_of_pairs_are_drawn(name, score):
    changes = {"pair.kind": "bilinear"} if name == "towers" else {"attention.score": score}
    full = resolve_config(config.recipe(name).with_values(changes, "test"))
    model = build_model(full, vocabulary_size=31, outputs=3)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    initialise(model, "normal", 1.0)
    kept = {n for n, p in model.named_parameters() if p.dim() > 1 and torch.equal(p, before[n])}
    assert all(n.endswith(KEPT) for n in kept), kept


def sizes(full):
    """A label space of the form that the task of a recipe has."""
    kind = full["task"]["kind"]
    if "decoder" in full:
        return (31, 2, 3)
    if kind == "masked":
        return (31, 1)
    if kind == "regress-words":
        return 1
    if kind == "span":
        return (5, True)
    if full.get("head", {}).get("kind") == "ctc":
        return 31, 29, 30
    if kind == "srl":
        return ROLES
    if kind == "openie":
        return ((LABELS, ""),) * 5
    if kind == "coref":
        return ((("chain",), ""), (("news",), ""))
    if kind in ("tag", "sentences", "parse", "constituency", "nodes", "intent-slots"):
        return ((("A", "B", "root"), ""), (("X", "Y"), ""))
    return 3


def test_settings_reach_the_run_and_nonsense_is_refused():
    assert read_settings({"init": "orthogonal", "init_scale": 0.5}, {}).init == "orthogonal"
    with pytest.raises(UserError, match=r"train\.init_scale needs train\.init"):
        read_settings({"init_scale": 0.5}, {})
    with pytest.raises(UserError, match=r"train\.init_scale should be above 0"):
        read_settings({"init": "normal", "init_scale": 0.0}, {})
    with pytest.raises(UserError, match="'init' should be one of 'default', 'xavier-uniform'"):
        read_settings({"init": "xavier"}, {})
