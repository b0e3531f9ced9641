"""Nodes of parts against PyTorch: every cell, activation, mask and score, at ragged lengths."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from weft import registry
from weft.attend.settings import Attention
from weft.batch import Padded
from weft.batch.indexer import Row
from weft.embed.position import LearnedPositions, SinusoidalPositions
from weft.encode.rnn import FORMULA_CELLS, FUSED_CELLS
from weft.encode.tree import BINARY
from weft.errors import UserError
from weft.export.onnx import Graph, Steps
from weft.export.onnx.graph import FLOAT, INT, quantise_rows
from weft.export.runtime.trees import tree_feeds

LENGTHS = (5, 1, 3)
WIDTH = 7


def batch(width=WIDTH, lengths=LENGTHS, seed=3):
    torch.manual_seed(seed)
    data = torch.randn(len(lengths), max(lengths), width)
    return Padded(data, torch.tensor(lengths)).with_data(data)


def run_graph(part, x, feeds=None, **options):
    """The output of a part's nodes for a batch."""
    graph = Graph()
    inputs = Steps(
        graph.add_input("x", FLOAT, "B", "T", x.data.shape[2]), graph.add_input("n", INT, "B")
    )
    with torch.no_grad():
        out = graph.run(part, inputs, **options)
    if isinstance(out, Steps):
        graph.add_output("y", out.data, "B", "T'", "H")
    else:  # of a pool
        graph.add_output("y", out[0], "B", "H")
    session = onnxruntime.InferenceSession(graph.to_model({}).SerializeToString())
    return session.run(["y"], {"x": x.data.numpy(), "n": x.lengths.numpy(), **(feeds or {})})[0]


def check_encoder(encoder, **sizes):
    encoder = encoder.eval()
    x = batch(**sizes)
    with torch.no_grad():
        expected = encoder(x)
    np.testing.assert_allclose(run_graph(encoder, x), expected.data.numpy(), atol=1e-5)


@pytest.mark.parametrize("cell", [*FUSED_CELLS, *FORMULA_CELLS])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_cells(cell, bidirectional):
    torch.manual_seed(1)
    options = {"hidden": 5, "layers": 2, "cell": cell, "bidirectional": bidirectional}
    more = {"initial": "trained", "output_layer": True}
    encoder = registry.build("encoder", {"kind": "rnn", **options, **more}, input_size=WIDTH)
    with torch.no_grad():  # biases and first states begin at zero, which would hide mistakes
        for p in encoder.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    check_encoder(encoder)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "cnn", "hidden": 3, "widths": (1, 2, 5), "residual": True, "norm": "before"},
        {"kind": "cnn", "hidden": 3, "widths": (3,), "layers": 2, "dilation": (1, 2)},
        {"kind": "cnn", "hidden": 3, "widths": (2, 3), "layers": 2, "stride": 2, "norm": "after"},
        {"kind": "mlp", "hidden": 3, "window": 4, "activation": "gelu"},
        {"kind": "windowed-rnn", "hidden": 3, "window": 4},
        {"kind": "windowed-rnn", "hidden": 3, "window": 8},
        {"kind": "highway", "activation": "sigmoid"},
        {"kind": "bag", "hidden": 3, "activation": "relu"},
        {"kind": "transformer", "hidden": 6, "heads": 2, "cls": True, "positions": "learned"},
        {"kind": "transformer", "hidden": 6, "heads": 3, "norm": "post", "activation": "relu"},
    ],
    ids=lambda options: options["kind"],
)
def test_encoders(options):
    check_encoder(registry.build("encoder", options, input_size=WIDTH))


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "tree-rnn", "hidden": 5},
        {"kind": "rntn"},
        {"kind": "tree-lstm", "hidden": 5},
        {"kind": "tree-lstm", "hidden": 5, "children": "sum", "words": "all"},
        {"kind": "tree-lstm", "hidden": 5, "arity": 3, "words": "all"},
        {"kind": "tree-lstm", "hidden": 5, "children": "sum"},
    ],
    ids=str,
)
def test_tree_encoders(options):
    torch.manual_seed(1)
    encoder = registry.build("encoder", options, input_size=WIDTH).eval()
    parents = [[2, 2, 4, 4, -1], [-1], [2, 2, -1]]
    arity = BINARY if "children" not in options else 0
    if options.get("arity") == 3:
        parents[0], arity = [3, 3, 3, 4, -1], 3
    x = batch()
    rows = [
        Row(i, np.zeros(len(own), np.int32), (), 1.0, None, parents=np.array(own))
        for i, own in enumerate(parents)
    ]
    above = torch.full(x.data.shape[:2], -1)
    for row, own in zip(above, parents, strict=True):
        row[: len(own)] = torch.tensor(own)
    with torch.no_grad():
        expected = encoder(replace(x, parents=above))
    feeds = tree_feeds(rows, x.data.shape[1], arity)
    np.testing.assert_allclose(run_graph(encoder, x, feeds), expected.data.numpy(), atol=1e-5)


def test_a_tree_with_too_many_children_is_refused():
    row = Row(0, np.zeros(4, np.int32), (), 1.0, None, parents=np.array([3, 3, 3, -1]))
    with pytest.raises(UserError, match="3 children, but this model reads at most 2"):
        tree_feeds([row], 4, 2)
    assert tree_feeds([row], 4, 0)["tree_children"].tolist() == [[[0, 1, 2]]]


@pytest.mark.parametrize("score", ["scaled", "dot", "bilinear", "additive"])
@pytest.mark.parametrize("mask", ["full", "causal", "no-diagonal", "local"])
def test_attention_of_heads(score, mask):
    attention = Attention(score, mask, 1 if mask == "local" else None)
    options = {"kind": "transformer", "hidden": 6, "heads": 2, "layers": 1}
    check_encoder(registry.build("encoder", options, input_size=WIDTH, attention_config=attention))


@pytest.mark.parametrize("kind", list(registry.parts("pool")))
@pytest.mark.parametrize("score", ["dot", "scaled", "additive", "bilinear", "trilinear"])
def test_pools(kind, score):
    takes = "attention" in kind
    if kind == "none" or (not takes and score != "dot"):
        pytest.skip("no score to vary")
    torch.manual_seed(1)
    derived = {"attention_config": Attention(score)} if takes else {}
    derived |= {"directions": 2} if kind == "last" else {}
    pool = registry.build("pool", {"kind": kind}, input_size=6, **derived).eval()
    x = batch(6)
    with torch.no_grad():
        expected, _ = pool(x)
    np.testing.assert_allclose(run_graph(pool, x), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("width", [6, 7])
def test_positions_beyond_any_table(width):
    x = batch(width, (40, 2))
    table = SinusoidalPositions(width, max_positions=3)
    graph = Graph()
    data = graph.add_input("x", FLOAT, "B", "T", width)
    graph.add_output("y", graph.run(table, data), "B", "T", width)
    session = onnxruntime.InferenceSession(graph.to_model({}).SerializeToString())
    (found,) = session.run(None, {"x": x.data.numpy()})
    np.testing.assert_allclose(found, table(x.data).numpy(), atol=1e-5)


def test_a_part_without_nodes_is_named():
    class Mine(nn.Module):
        pass

    with pytest.raises(UserError, match=r"Mine has no ONNX nodes.*weft.export.onnx.emits"):
        Graph().run(Mine())
    with pytest.raises(UserError, match="The task 'classify' has no ONNX nodes"):
        Graph().run(registry.build("task", {"kind": "classify"}))


def test_equal_weights_are_stored_once():
    graph, table = Graph(), LearnedPositions(300, 4)
    for _ in range(2):
        graph.run(table, graph.add_input("x", FLOAT, "B", "T", 300))
    assert sum(one.dims == [4, 300] for one in graph.initialisers) == 1


def test_rows_are_quantised_by_their_largest_number():
    rows, scale = quantise_rows(np.array([[1.0, -2.0], [0.0, 0.0]]))
    assert rows.tolist() == [[64, -127], [0, 0]]
    np.testing.assert_allclose(rows * scale, [[1.0, -2.0], [0, 0]], atol=2 / 254)
