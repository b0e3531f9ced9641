"""Gradients by distance against hand-written ones, and what is said about them."""

import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.fixtures import small
from weft import config
from weft.batch import Padded, TokenStore, labelled_batch
from weft.encode.rnn import Cell
from weft.errors import UserError
from weft.model import build_model
from weft.run import train
from weft.runtime import select_runtime
from weft.tasks.classify import Classify
from weft.train.gradients.labelled import examine, sample_batch
from weft.train.gradients.measure import median_by_distance
from weft.train.gradients.non_finite import find_non_finite
from weft.train.gradients.verdict import Evidence, GradientHealth, interpret, memory_curve

TASK, CPU = Classify(), select_runtime("cpu")
ENCODERS = {
    "bag": {"kind": "bag", "hidden": 5, "activation": "relu"},
    "mlp": {"kind": "mlp", "hidden": 5, "layers": 2, "window": 3},
    "cnn": {"kind": "cnn", "hidden": 5, "widths": [2, 3], "layers": 2, "stride": 2},
    "highway": {"kind": "highway"},
    "rnn": {"kind": "rnn", "cell": "rnn", "hidden": 5, "bidirectional": False},
    "gru": {"kind": "rnn", "cell": "gru", "hidden": 5, "layers": 2, "dropout": 0.5},
    "lstm": {"kind": "rnn", "hidden": 5, "initial": "trained", "output_layer": True},
    "tied-lstm": {"kind": "rnn", "cell": "tied-lstm", "hidden": 5, "layers": 2},
    "transformer": {"kind": "transformer", "hidden": 6, "heads": 2, "cls": True, "layers": 2},
    "cnn under lstm": [
        {"kind": "cnn", "hidden": 5, "widths": [3], "layers": 2, "stride": 2},
        {"kind": "rnn", "hidden": 5},
    ],
    "lstm under mlp": [
        {"kind": "rnn", "hidden": 5},
        {"kind": "highway"},
        {"kind": "mlp", "hidden": 5, "window": 3},
    ],
}
POOLS = ["last", "first", "mean", "max", "attention"]


def store(lengths=(7, 2, 11, 5, 13, 1, 3)):
    out = TokenStore()
    for i, length in enumerate(lengths):
        out.append(1 + (np.arange(length) * 3 + i) % 10, i % 2, line=i + 1)
    return out.close()


def batch(lengths=(7, 2, 11, 5, 13, 1, 3)):
    return labelled_batch(store(lengths), np.arange(len(lengths)))


def model(encoder, pool="last", seed=0, **embedder):
    torch.manual_seed(seed)
    parts = {
        "embedder": {"kind": "lookup", "width": 7, "scale": 1.0, **embedder},
        "encoder": encoder,
        "pool": {"kind": pool},
        "head": {"kind": "linear", "dropout": 0.3},
    }
    return build_model(parts, vocabulary_size=11, outputs=2)


def elman(**options):
    return model({**ENCODERS["rnn"], **options})


# ---- the measurement


@pytest.mark.parametrize("cell", Cell.__args__)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("extra", [{}, {"layers": 2, "initial": "trained", "output_layer": True}])
def test_unrolled_is_the_fused_net_with_its_gradients(cell, bidirectional, extra):
    encoder = {"kind": "rnn", "cell": cell, "hidden": 5, "bidirectional": bidirectional, **extra}
    net, rows = model(encoder).eval(), batch()
    named = list(net.parameters())
    found = []
    for fused in (True, False):
        embedded = net.embed(rows.source)
        states = net.encoder(embedded) if fused else net.encoder.unroll(embedded)[0]
        loss = TASK.loss(net.head(net.pool(states)[0]), rows).total
        found.append([loss.detach(), *torch.autograd.grad(loss, named)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_layers_of_a_stack_are_numbered_from_the_lowest():
    low = {"kind": "cnn", "hidden": 5, "widths": [3], "layers": 2}
    net = model([low, {"kind": "rnn", "hidden": 5, "layers": 2}, {"kind": "highway"}])
    health = examine(net, TASK, batch(), CPU)
    sides = [f"layer {i} {side}" for i in (3, 4) for side in ("forward", "backward")]
    named = {"layer 1", "layer 2", *sides, "layer 5"}
    assert named <= health.layers.keys()
    assert health.layers.keys() - named == {"embedder", "head"}
    cells = {f"{name} cell" for name in sides}
    assert health.distances.keys() == {"input", *named, *cells}


def test_gradients_of_a_stack_are_those_of_its_states():
    """The curve of each layer, from the outputs of the encoders as they are called one by one."""
    stack = [
        {"kind": "cnn", "hidden": 5, "widths": [3], "stride": 2},
        {"kind": "rnn", "cell": "gru", "hidden": 5, "bidirectional": False},
        {"kind": "mlp", "hidden": 5, "window": 3, "layers": 1},
    ]
    net, rows = model(stack).eval(), batch((13,))
    health = examine(net, TASK, rows, CPU)
    states, outputs = net.embed(rows.source), []
    for member in net.encoder.members:
        states = member(states)
        outputs.append(states.data)
    loss = TASK.loss(net.head(net.pool(states)[0]), rows).total
    first, _, last = (g[0].norm(dim=1) for g in torch.autograd.grad(loss, outputs))
    for name, norms in (("layer 1", first), ("layer 3", last)):
        got = dict(health.distances[name])
        assert list(got) == [0, 2, 4, 6, 8, 10, 12]
        expected = (norms / norms[-1]).flip(0).tolist()
        assert list(got.values()) == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert list(dict(health.distances["layer 2"])) == [0, 2, 4, 6, 8, 10, 12]


def test_elman_is_the_product_of_its_jacobians():
    net, rows = elman().eval(), batch((13,))
    health = examine(net, TASK, rows, CPU)
    with torch.no_grad():
        states = net.encoder(net.embed(rows.source)).data[0].double()  # (T, H)
        chances = net.head(states[-1:].float()).double().softmax(1)[0]
        chances[int(rows.target[0])] -= 1
        gradient = net.head.score.weight.double().T @ chances
        recurrence, expected = net.encoder.net.weight_hh_l0.double(), [float(gradient.norm())]
        for state in states.flip(0)[:-1]:
            gradient = recurrence.T @ ((1 - state**2) * gradient)
            expected.append(float(gradient.norm()))
    got = [value for _, value in health.distances["layer 1"]]
    assert got == pytest.approx([value / expected[0] for value in expected], rel=1e-3)
    assert [distance for distance, _ in health.distances["layer 1"]] == list(range(13))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_states_agree_with_finite_differences(cell):
    net, rows = model({**ENCODERS["rnn"], "cell": cell}).eval(), batch((6,))
    health = examine(net, TASK, rows, CPU)
    net.double()
    one = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](7, 5).double()
    with torch.no_grad():
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(one, kind).copy_(getattr(net.encoder.net, f"{kind}_l0"))

    @torch.no_grad()
    def loss(at, which, nudge):
        """With a state pushed a little at one step; what a cell shows of itself follows it."""
        state = [torch.zeros(1, 5).double(), torch.zeros(1, 5).double()]
        for t, x in enumerate(net.embed(rows.source).data.unbind(1)):
            state = list(one(x, tuple(state))) if cell == "lstm" else [one(x, state[0])]
            if t == at and which:
                shown = state[0] / state[1].tanh()
                state = [shown * (state[1] + nudge).tanh(), state[1] + nudge]
            elif t == at:
                state[0] = state[0] + nudge
        scores = net.head(state[0])
        return float(nn.functional.cross_entropy(scores, rows.target))

    def norm(at, which):
        push = 1e-5 * torch.eye(5).double()
        parts = [(loss(at, which, unit) - loss(at, which, -unit)) / 2e-5 for unit in push]
        return math.hypot(*parts)

    for which, name in enumerate(["layer 1", "layer 1 cell"][: 2 if cell == "lstm" else 1]):
        expected = [norm(at, which) for at in reversed(range(6))]
        got = [value for _, value in health.distances[name]]
        assert got == pytest.approx([value / expected[0] for value in expected], rel=2e-3)


def test_the_backward_direction_counts_from_its_own_end():
    net = model({"kind": "rnn", "hidden": 5}).eval()
    ahead = examine(net, TASK, batch((11,)), CPU).distances
    turned = batch((11,))
    turned.source.data[:] = turned.source.data.flip(1)
    swapped = model({"kind": "rnn", "hidden": 5}).eval()
    with torch.no_grad():
        for name, weight in net.encoder.net.named_parameters():
            other = name.removesuffix("_reverse") if "reverse" in name else f"{name}_reverse"
            getattr(swapped.encoder.net, other).copy_(weight)
        swapped.head.score.weight.copy_(net.head.score.weight.roll(5, 1))
    back = examine(swapped, TASK, turned, CPU).distances
    assert ahead["layer 1 forward"] != ahead["layer 1 backward"]
    for name in ("", " cell"):
        for one, other in ((" forward", " backward"), (" backward", " forward")):
            expected = [value for _, value in ahead[f"layer 1{one}{name}"]]
            got = [value for _, value in back[f"layer 1{other}{name}"]]
            assert got == pytest.approx(expected, rel=1e-3)


def test_medians_count_only_rows_that_are_long_enough():
    norms = np.array([[8.0, 4, 2, 9], [3, 6, 9, 9], [5, 1, 9, 9], [1, 1, 1, 1]])
    found = median_by_distance(norms, torch.tensor([3, 2, 1, 0]))
    assert found == [(0, 1.0)]  # of the three rows that have any step, fewer than all go on
    many = np.repeat(norms[:1], 5, axis=0) * np.arange(1, 6)[:, None]
    lengths = torch.tensor([3] * 5)
    assert median_by_distance(many, lengths) == [(0, 1.0), (1, 2.0), (2, 4.0)]
    assert median_by_distance(many, lengths, stride=3) == [(0, 1.0), (3, 2.0), (6, 4.0)]


def test_rows_without_gradient_at_the_end_are_left_out():
    norms = np.array([[4.0, 2, 0], [3, 1, 2]])
    assert median_by_distance(norms, torch.tensor([3, 3])) == [(0, 1.0), (1, 0.5), (2, 1.5)]
    passed_over = np.array([[1.0, 0, 4], [0, 0, 4], [3, 0, 4]])
    expected = [(0, 1.0), (1, 0.0), (2, 0.5)]
    assert median_by_distance(passed_over, torch.tensor([3, 3, 3])) == expected
    assert median_by_distance(norms[:1], torch.tensor([3])) == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert median_by_distance(np.zeros((2, 3)), torch.tensor([3, 3])) == []
    assert median_by_distance(np.array([[1.0, math.nan]]), torch.tensor([2])) == []


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("pool", POOLS)
def test_every_encoder_is_read_and_left_as_it_was(kind, pool):
    net, rows = model(ENCODERS[kind], pool, dropout=0.3).train(), batch()
    net.head.eval()
    net.head.score.bias.grad = torch.ones(2)
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    health = examine(net, TASK, rows, CPU, step=7)
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert [n for n, p in net.named_parameters() if p.grad is not None] == ["head.score.bias"]
    assert not any(module._forward_hooks for module in net.modules())
    assert health.step == 7
    assert health.distances["input"]
    assert any(name.startswith("layer 1") for name in health.distances)
    assert all(layer["weight"] > 0 for layer in health.layers.values())
    groups = set(health.layers)
    assert {"embedder", "head"} <= groups
    named = {name for name in health.distances if name != "input" and "cell" not in name}
    assert named <= groups or kind == "highway"
    assert GradientHealth.from_json(json.loads(json.dumps(health.to_json()))) == health
    assert examine(net, TASK, rows, CPU, step=7) == health


def test_chance_is_given_back_even_if_a_part_uses_it():
    net = elman()
    net.pool.register_forward_hook(lambda module, given, out: (out, torch.rand(3))[0])
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    examine(net, TASK, batch(), CPU)
    assert torch.equal(torch.rand(3), expected)


def test_cls_is_not_a_step_of_the_text():
    found = examine(model(ENCODERS["transformer"], "first"), TASK, batch((13,)), CPU).distances
    assert found["layer 2"] == []  # only [CLS] is read
    assert [distance for distance, _ in found["layer 1"]] == list(range(13))


def test_vectors_that_know_their_context_have_read_the_text():
    parts = {
        "embedder": {"kind": "bert", "hidden": 6, "layers": 1, "heads": 3, "max_positions": 13},
        "encoder": {"kind": "none"},
        "pool": {"kind": "cls"},
        "head": {"kind": "linear"},
    }
    found = examine(build_model(parts, vocabulary_size=11, outputs=2), TASK, batch(), CPU)
    assert found.level == "good"
    assert found.verdict.startswith("Each vector of embedder 'bert' has read the text")


def test_directions_have_their_own_weights():
    net, rows = model({"kind": "rnn", "hidden": 5}).eval(), batch()
    layers = examine(net, TASK, rows, CPU).layers
    (TASK.loss(net(rows.source), rows).total / len(rows)).backward()
    for side, name in ((False, "layer 1 forward"), (True, "layer 1 backward")):
        own = [p for n, p in net.encoder.net.named_parameters() if n.endswith("reverse") == side]
        expected = math.hypot(*(float(p.grad.norm()) for p in own))
        assert layers[name]["gradient"] == pytest.approx(expected, rel=1e-3)


def test_strides_are_counted_in_steps_of_the_text():
    found = examine(model(ENCODERS["cnn"], "mean"), TASK, batch((13,)), CPU).distances
    assert [distance for distance, _ in found["layer 1"]] == [0, 2, 4, 6, 8, 10, 12]
    assert [distance for distance, _ in found["layer 2"]] == [0, 4, 8, 12]


@pytest.mark.parametrize("kind", ENCODERS)
def test_padding_changes_nothing(kind):
    net, rows = model(ENCODERS[kind], "mean"), batch((13,))
    alone = examine(net, TASK, rows, CPU)
    garbage = torch.cat([rows.source.data, torch.full((1, 4), 9)], dim=1)
    padded = examine(net, TASK, replace(rows, source=Padded(garbage, rows.source.lengths)), CPU)
    assert list(padded.distances) == list(alone.distances)
    for name, curve in alone.distances.items():
        assert [k for k, _ in padded.distances[name]] == [k for k, _ in curve]
        assert dict(padded.distances[name]) == pytest.approx(dict(curve), rel=2e-3)
    assert padded.verdict == alone.verdict


def test_frozen_and_sparse_tables_are_read_too():
    frozen = examine(model(ENCODERS["cnn"], frozen=True), TASK, batch(), CPU)
    assert frozen.layers["embedder"]["gradient"] == 0
    assert frozen.distances["input"]
    torch.manual_seed(0)
    parts = dict(model(ENCODERS["bag"], "mean").parts)
    gradients = []
    for sparse in (False, True):
        parts["embedder"] = {"kind": "word-ngrams", "width": 7, "buckets": 31, "sparse": sparse}
        torch.manual_seed(0)
        net = build_model(parts, vocabulary_size=11, outputs=2)
        gradients.append(examine(net, TASK, batch(), CPU).layers["embedder"]["gradient"])
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-3)
    assert gradients[0] > 0


def test_norms_of_layers_are_those_of_a_plain_backward():
    net, rows = elman().eval(), batch()
    health = examine(net, TASK, rows, CPU)
    (TASK.loss(net(rows.source), rows).total / len(rows)).backward()
    for part, module in (("embedder", net.embedders), ("layer 1", net.encoder), ("head", net.head)):
        expected = math.hypot(*(float(p.grad.norm()) for p in module.parameters()))
        assert health.layers[part]["gradient"] == pytest.approx(expected, rel=1e-3)


def test_the_ratio_is_the_change_over_what_was_before():
    net = elman()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    with torch.no_grad():
        for parameter in net.encoder.parameters():
            parameter.mul_(1.25)
    layers = examine(net, TASK, batch(), CPU, before=before).layers
    assert layers["layer 1"]["ratio"] == pytest.approx(0.25, rel=1e-3)
    assert layers["embedder"]["ratio"] == 0
    assert examine(net, TASK, batch(), CPU).layers["layer 1"]["ratio"] is None


def test_dead_units_and_saturated_values():
    net = model({"kind": "mlp", "hidden": 5, "layers": 2, "activation": "relu"}, "mean")
    with torch.no_grad():
        net.encoder.layers[0].weight[:2] = 0
        net.encoder.layers[0].bias[:2] = -1
        net.encoder.layers[1].weight.mul_(0.01)
        net.encoder.layers[1].bias.fill_(1)
    layers = examine(net, TASK, batch(), CPU).layers
    assert layers["layer 1"]["dead"] == pytest.approx(0.4)
    assert layers["layer 2"]["dead"] == 0
    assert layers["layer 1"]["saturated"] is None
    net = model({"kind": "mlp", "hidden": 5, "layers": 2, "activation": "tanh"}, "mean")
    with torch.no_grad():
        net.encoder.layers[1].weight[:3] = 0
        net.encoder.layers[1].bias[:3] = 9
    layers = examine(net, TASK, batch(), CPU).layers
    assert layers["layer 2"]["saturated"] >= 0.6
    assert layers["layer 2"]["dead"] is None


def test_a_unit_that_is_only_alive_in_the_padding_is_dead():
    net = model({"kind": "bag", "hidden": 5, "activation": "relu"}, "mean")
    with torch.no_grad():
        net.embedders[0].table.weight[1:] = 1.0
        net.encoder.project.weight.fill_(-1)
        net.encoder.project.bias.fill_(3)  # positive where the input is zero
    health = examine(net, TASK, batch((3, 11)), CPU)
    assert health.layers["layer 1"]["dead"] == 1
    assert "100% of the units of layer 1 are zero" in health.verdict


def test_long_rows_are_cut():
    health = examine(elman(), TASK, batch((300, 280)), CPU)
    assert health.distances["layer 1"][-1][0] == 255


def test_the_sample_is_from_the_longest_third():
    made = store([1 + i % 97 for i in range(600)])
    rows = sample_batch(made).rows
    assert len(set(rows.tolist())) == 64
    assert made.lengths[rows].min() >= np.sort(made.lengths)[400]
    assert np.array_equal(rows, sample_batch(made).rows)
    assert len(sample_batch(store([5] * 7))) == 7
    assert len(sample_batch(store([1000] * 50))) == 32


# ---- the words


def evidence(curve, **changes):
    layer = {"gradient": 1.0, "weight": 1.0, "ratio": None, "dead": None, "saturated": None}
    values = {
        "layers": {"layer 1": layer, "head": layer},
        "distances": {"layer 1": curve, "input": curve},
        "flow": {"layer 1": 1.0},
        "loss": 0.7,
        "norm": 1.0,
        "clip": 1.0,
        "encoder": "rnn",
        "cell": "rnn",
        "pool": "last",
        "direct": False,
    }
    return Evidence(**(values | changes))


def falling(rate, steps=60):
    return [(k, rate**k) for k in range(steps + 1)]


@pytest.mark.parametrize(
    ("seen", "level", "words"),
    [
        (
            evidence(falling(0.6)),
            "bad",
            "The gradient of layer 1 falls by 10⁵ over 23 steps, by 10¹³ over 60: the model cannot "
            "learn longer dependencies; try lstm or attention.",
        ),
        (
            evidence(falling(0.6), cell="lstm"),
            "bad",
            "try encoder.forget_bias=4, pool 'att",
        ),
        (
            evidence([(k, 1.0 if k < 9 else 0.0) for k in range(20)]),
            "bad",
            "The gradient of layer 1 is gone over 9 steps: the model cannot",
        ),
        (evidence(falling(0.9)), "warning", "falls by a factor of 556 over 60 steps: depend"),
        (
            evidence(falling(0.95)),
            "good",
            "with 5% of its strength: dependencies that long can be ",
        ),
        (evidence(falling(0.95)), "good", "learned, if slowly."),
        (evidence(falling(0.98)), "good", "60 steps back with 30% of its strength: "),
        (
            evidence(falling(1.0)),
            "good",
            "with all of its strength: dependencies that long can be ",
        ),
        (evidence(falling(1.1)), "warning", "grows by a factor of 304 over 60 steps: it explodes"),
        (
            evidence(falling(1.2)),
            "bad",
            "grows by 10⁴ over 60 steps: it explodes; set train.clip_norm",
        ),
        (
            evidence(falling(1.0), start={"layer 1": falling(0.9)}),
            "warning",
            "Before training the gradient of layer 1 falls by a factor of 556 over 60 steps",
        ),
        (
            evidence(falling(0.95), start={"layer 1": falling(0.92)}),
            "good",
            "The gradient of layer 1 reaches 60 steps back with 5% of its strength",
        ),
        (
            evidence(falling(0.85), start={"layer 1": falling(0.9)}),
            "warning",
            "The gradient of layer 1 falls by 10⁴ over 60 steps",
        ),
        (evidence(falling(0.1, 3)), "good", "Texts of 3 steps are too short to tell"),
        (
            evidence(falling(0.1), direct=True, pool="mean"),
            "good",
            "Every step has a direct path to the answer (pool 'mean'): distance does not matter.",
        ),
        (
            evidence([(0, 1.0), (1, 0.5), (2, 0.0)], cell="", encoder="cnn"),
            "bad",
            "Nothing arrives from steps 2 and more before the end: pool 'last' of encoder 'cnn'",
        ),
        (
            evidence([(0, 0.0), (1, 1.0)], cell="", encoder="none", pool="cls", context="bert"),
            "good",
            "Each vector of embedder 'bert' has read the text: distance does not matter.",
        ),
        (evidence(falling(0.5), cell=""), "good", "The answer sees all of 61 steps"),
        (
            evidence([], norm=0.0, loss=1e-9),
            "good",
            "The model is certain of every sampled row",
        ),
        (evidence([], norm=0.0), "bad", "No gradient arrives anywhere, though the loss is 0.7."),
        (
            evidence(falling(1.0), flow={"layer 1": 1e-5, "layer 3": 1.0}),
            "warning",
            "Layer 1 gets 10⁵ less gradient than layer 3",
        ),
        (evidence(falling(1.0), norm=345.0), "warning", "345 times longer than train.clip_norm"),
        (evidence(falling(1.0), norm=345.0, clip=0.0), "good", "60 steps back"),
    ],
)
def test_verdicts(seen, level, words):
    said, found = interpret(seen)
    assert found == level
    assert words in said


def with_layer(**values):
    layer = {"gradient": 1.0, "weight": 1.0, "ratio": None, "dead": None, "saturated": None}
    return evidence(falling(1.0), layers={"layer 2": layer | values, "head": layer})


def test_verdicts_on_layers():
    said, level = interpret(with_layer(gradient=None))
    assert (level, said[:45]) == ("bad", "The gradient of layer 2 is not finite: lower ")
    said, level = interpret(with_layer(dead=0.61))
    assert level == "warning"
    assert said.startswith("61% of the units of layer 2 are zero at every sampled step")
    assert "60 steps back" in said  # what else was found follows
    assert "70% of the values of layer 2 are saturated" in interpret(with_layer(saturated=0.7))[0]
    assert "One update changes layer 2 by up to 20% of" in interpret(with_layer(ratio=0.2))[0]
    assert interpret(with_layer(dead=0.2, saturated=0.2, ratio=0.01))[1] == "good"


def test_each_of_two_directions_need_only_reach_the_middle():
    sides = {"layer 1 forward": falling(0.93), "layer 1 backward": falling(0.9)}
    said, level = interpret(evidence([], distances=sides))
    assert level == "good"
    assert "The gradient of layer 1 backward reaches 30 steps back with 4%" in said


def test_the_memory_of_an_lstm_is_in_its_cells():
    both = {"layer 1": falling(0.5), "layer 1 cell": falling(0.99), "layer 2": falling(0.1)}
    assert memory_curve(both) == ("layer 1", falling(0.99))
    both = {"layer 1": falling(0.99), "layer 1 cell": falling(0.5)}
    assert memory_curve(both) == ("layer 1", falling(0.99))
    assert memory_curve({"input": falling(0.5)}) == ("input", falling(0.5))


def test_steps_that_do_not_matter_are_no_obstacle():
    curve = [(k, 1e-6 if 20 < k < 40 else 0.5) for k in range(61)]
    assert interpret(evidence(curve))[1] == "good"
    dips = [(k, 0.5 if k < 5 or 10 < k < 31 else 1e-6) for k in range(61)]
    assert "falls by 10⁶ over 31 steps: the model cannot" in interpret(evidence(dips))[0]


def test_a_model_of_weak_memory_is_seen_by_its_gradient():
    for scale, level in ((0.2, "bad"), (1.0, "good")):
        net = elman()
        with torch.no_grad():
            net.embedders[0].table.weight.mul_(0.02)  # far from saturation
            net.encoder.net.weight_hh_l0.mul_(scale)
        assert examine(net, TASK, batch((23, 23, 21)), CPU).level == level


# ---- in a run


def digest(folder):
    return hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()


def given(name="rnn", **changes):
    values = {**small.SMALL, "embedder.width": 7, "encoder.hidden": 6, "train.ema_decay": 0.9}
    return config.recipe(name).with_values(values | changes, "test")


def test_diagnosing_does_not_change_what_is_trained(tmp_path):
    for name, diagnose in (("off", False), ("on", True)):
        train(
            given(**{"train.diagnose": diagnose}),
            tmp_path / name,
            splits=small.splits(),
            quiet=True,
        )
    assert digest(tmp_path / "on") == digest(tmp_path / "off")
    rows = [json.loads(line) for line in (tmp_path / "on" / "metrics.jsonl").open()]
    seen = [GradientHealth.from_json(row) for row in rows if row["event"] == "health"]
    evaluated = [r["step"] for r in rows if r["event"] == "evaluation"]
    assert [h.step for h in seen] == [0, *evaluated]
    assert seen[0].layers["layer 1"]["ratio"] is None
    assert all(0 < h.layers["layer 1"]["ratio"] < 0.5 for h in seen[1:])
    assert all(h.start == seen[0].distances for h in seen[1:])
    assert "health" not in (tmp_path / "off" / "metrics.jsonl").read_text()
    last = GradientHealth.from_json(json.loads((tmp_path / "off" / "health.json").read_text()))
    assert last.layers["layer 1"]["ratio"] is None
    assert last == GradientHealth.from_json(
        json.loads((tmp_path / "on" / "health.json").read_text())
    )
    assert f"gradients {last.level}: {last.verdict}" in (tmp_path / "off" / "log.txt").read_text()


def test_resumed_readings_are_the_same(tmp_path):
    changes = {"train.diagnose": True, "train.save_every": 1, "train.epochs": 3}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(given(**changes), whole, splits=small.splits(), quiet=True)

    class Killed(Exception):
        pass

    def heard(step, figures):
        if step > 10:
            raise Killed

    with pytest.raises(Killed):
        train(given(**changes), cut, splits=small.splits(), quiet=True, on_evaluate=heard)
    train(given(**changes), cut, splits=small.splits(), quiet=True, resume=True)

    def readings(folder):
        return [line for line in (folder / "metrics.jsonl").open() if '"health"' in line]

    assert readings(cut) == readings(whole)
    assert len(readings(whole)) == 4  # before the first update, and after each epoch
    assert (cut / "health.json").read_text() == (whole / "health.json").read_text()


def test_the_first_part_that_is_not_finite_is_named():
    net = model(ENCODERS["transformer"], "mean")
    assert find_non_finite(net, TASK, batch(), CPU) is None
    with torch.no_grad():
        net.encoder.blocks[1].feed_out.weight[0, 0] = math.nan
    found = find_non_finite(net, TASK, batch(), CPU)
    assert found == "the output of layer 2 (encoder.blocks.1.feed_out)"
    net = elman()
    with torch.no_grad():
        net.embedders[0].table.weight[3] = math.inf
    assert find_non_finite(net, TASK, batch(), CPU) == "the output of embedder (embedders.0.table)"


def test_a_gradient_that_is_not_finite_is_named():
    class Steep(Classify):
        def loss(self, scores, batch):
            found = super().loss(scores, batch)
            scores.register_hook(lambda gradient: gradient * math.inf)
            return found

    found = find_non_finite(elman(), Steep(), batch(), CPU)
    assert found.startswith("the gradient of head (head.score.")


@pytest.mark.parametrize("saved", [False, True])
def test_a_training_that_breaks_says_where(saved, tmp_path, monkeypatch):
    changes = {"train.learning_rate": 1e38, "train.clip_norm": 0.0, "train.optimiser": "sgd"}
    if saved:
        changes["train.save_every"] = 1
    with pytest.raises(UserError, match="The first non-finite value is the ") as caught:
        train(given("cnn", **changes), tmp_path, splits=small.splits(), quiet=True)
    assert "The batch has lines" in str(caught.value)
    kept = "last good state is in" if saved else "Nothing was saved yet"
    assert kept in str(caught.value)
