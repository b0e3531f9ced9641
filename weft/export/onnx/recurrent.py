"""Nodes of recurrent layers: every cell as one of ONNX's LSTM, GRU and RNN operators.

E input width   H hidden width   D directions   G gates
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft.encode.cells import FORMULA_CELLS, FormulaRNN
from weft.encode.rnn import WEIGHT_NAMES, Recurrent
from weft.export.onnx.graph import INT, INT32, Graph, Steps, Value, emits

OPEN = 100.0  # bias of a gate that is always open: its sigmoid is 1 in single precision
# W, U, b and d of one direction; those that a cell lacks are None.
Weights = Sequence[Tensor | None]
Net = nn.RNNBase | FormulaRNN


@dataclass(frozen=True)
class Operator:
    """An ONNX operator that computes a cell, and how it gets the cell's weights."""

    kind: str
    gates: Callable[[list[Tensor], bool], list[Tensor]]  # in the operator's order
    activations: tuple[str, ...] = ()  # of one direction; () for the operator's own
    attributes: tuple[tuple[str, int], ...] = ()


def _lstm(parts: list[Tensor], bias: bool) -> list[Tensor]:
    enter, keep, fresh, leave = parts
    return [enter, leave, keep, fresh]


def _tied_lstm(parts: list[Tensor], bias: bool) -> list[Tensor]:
    keep, fresh, leave = parts
    return [-keep, leave, keep, fresh]  # σ(−x) = 1 − σ(x)


def _prototype_lstm(parts: list[Tensor], bias: bool) -> list[Tensor]:
    keep, enter, fresh = parts
    leave = torch.full_like(keep, OPEN) if bias else torch.zeros_like(keep)
    return [enter, leave, keep, fresh]


def _gru(parts: list[Tensor], bias: bool) -> list[Tensor]:
    reset, update, fresh = parts
    return [update, reset, fresh]


def _reset_before_gru(parts: list[Tensor], bias: bool) -> list[Tensor]:
    update, reset, fresh = parts
    return [-update, reset, fresh]  # its gate lets the new state in, the operator's the old one


def _same(parts: list[Tensor], bias: bool) -> list[Tensor]:
    return parts


OPERATOR_OF = {
    "rnn": Operator("RNN", _same),
    "sum": Operator("RNN", _same, ("Affine",)),
    "tanh-sum": Operator("RNN", _same),
    "lstm": Operator("LSTM", _lstm),
    "tied-lstm": Operator("LSTM", _tied_lstm),
    "prototype-lstm": Operator("LSTM", _prototype_lstm, ("Sigmoid", "Tanh", "Affine")),
    "gru": Operator("GRU", _gru, attributes=(("linear_before_reset", 1),)),
    "gru-reset-before": Operator("GRU", _reset_before_gru),
}
NUM_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@emits(Recurrent)
def recurrent(graph: Graph, part: Recurrent, x: Steps) -> Steps:
    states = x.data  # (B, T, E)
    for layer in range(part.net.num_layers):
        states = _layer(graph, part, layer, states, x.lengths)
    if part.outputs:
        halves = graph.ops("Split", states, outputs=part.directions, axis=2,
                           num_outputs=part.directions)  # fmt: skip
        outputs = [graph.run(out, half) for out, half in zip(part.outputs, halves, strict=True)]
        states = graph.concat(outputs, 2).tanh()
    return x.with_data(states)


def _layer(graph: Graph, part: Recurrent, layer: int, x: Value, lengths: Value) -> Value:
    """Return the states (B, T, D*H) of one layer, both directions side by side."""
    hidden, directions = part.net.hidden_size, part.directions
    suffixes = [f"l{layer}{side}" for side in ("", "_reverse")[:directions]]
    first = [_initial(graph, state, layer, directions, x) for state in part.starts]
    states, *_ = run_operator(
        graph, part.net, part.cell, suffixes, x.transpose(1, 0, 2), first, lengths
    )
    return states.transpose(2, 0, 1, 3).reshape(0, 0, directions * hidden)


def run_operator(
    graph: Graph,
    net: Net,
    cell: str,
    suffixes: Sequence[str],
    x: Value,
    first: Sequence[Value],
    lengths: Value | None = None,
) -> tuple[Value, ...]:
    """Run one layer over inputs (T, B, E), in the directions whose weights have these suffixes.

    Return the states (T, D, B, H), and the last of each (D, B, H).
    """
    operator, directions = OPERATOR_OF[cell], len(suffixes)
    sides: list[Weights] = [
        [getattr(net, f"{kind}_{suffix}", None) for kind in WEIGHT_NAMES] for suffix in suffixes
    ]
    if isinstance(net, FormulaRNN):
        sides = [_whole(weights, net.hidden_size, cell) for weights in sides]
    states = list(first)
    if cell == "prototype-lstm":  # its one state is both of the operator's
        states *= 2
    attributes: dict[str, Any] = dict(operator.attributes)
    if operator.activations:
        attributes["activations"] = list(operator.activations) * directions
        scales = [1.0] * directions if "Affine" in operator.activations else None
        attributes["activation_alpha"] = scales
    return graph.ops(
        operator.kind, x, *_stacked(graph, sides, operator),
        None if lengths is None else lengths.to(INT32), *states,
        outputs=3 if operator.kind == "LSTM" else 2, hidden_size=net.hidden_size,
        direction="bidirectional" if directions == 2 else "forward", **attributes,
    )  # fmt: skip


def advance_cells(
    graph: Graph, net: Net, x: Value, states: Sequence[Value]
) -> tuple[Value, list[Value]]:
    """Run all layers over one input (B, E), from states (B, L, H).

    Return the last layer's state (B, H), and the states after the step.
    """
    cell, after = cell_of(net), []
    for layer in range(net.num_layers):
        number = graph.constant(layer, INT)
        before = [state.gather(number, axis=1).unsqueeze(0) for state in states]
        _, *last = run_operator(graph, net, cell, [f"l{layer}"], x.unsqueeze(0), before)
        last = last[: len(states)]
        after.append([state.transpose(1, 0, 2) for state in last])  # (B, 1, H) each
        x = last[0].squeeze(0)
    return x, [graph.concat(list(parts), 1) for parts in zip(*after, strict=True)]


def cell_of(net: Net) -> str:
    """Return the name of a network's cell."""
    if not isinstance(net, FormulaRNN):
        return type(net).__name__.lower()
    return next(name for name, cell in FORMULA_CELLS.items() if cell is net.cell)


def _initial(graph: Graph, start: Tensor, layer: int, directions: int, x: Value) -> Value:
    """Return a trained first state (D, B, H) for every row."""
    own = graph.weight(start[layer * directions : (layer + 1) * directions].clone())
    return own.unsqueeze(1).expand(1, x.size(0), 1)


def _whole(weights: Weights, hidden: int, cell: str) -> Weights:
    """Return the weights of a cell by formulas with those that it leaves out."""
    W, U, b, _ = weights
    sums = cell in ("sum", "tanh-sum")
    W = torch.eye(hidden) if W is None else W
    U = torch.eye(hidden) if sums else U
    b = torch.zeros(len(W)) if b is None else b
    return W, U, b, torch.zeros_like(b)


def lstm_weights(graph: Graph, sides: Sequence[Weights]) -> tuple[Value, Value, Value]:
    """Return W, R and B of the LSTM operator from PyTorch's weights of each direction."""
    return _stacked(graph, sides, OPERATOR_OF["lstm"])


def _stacked(
    graph: Graph, sides: Sequence[Weights], operator: Operator
) -> tuple[Value, Value, Value]:
    """Return the weights (D, G*H, E), (D, G*H, H) and (D, 2*G*H) of an operator."""
    gates = NUM_GATES[operator.kind]

    def order_gates(tensor: Tensor | None, bias: bool) -> Tensor:
        assert tensor is not None
        given = len(tensor) // (gates - (operator.gates in (_tied_lstm, _prototype_lstm)))
        return torch.cat(operator.gates(list(tensor.detach().split(given)), bias))

    W = torch.stack([order_gates(weights[0], False) for weights in sides])
    U = torch.stack([order_gates(weights[1], False) for weights in sides])
    b = torch.stack([torch.cat([order_gates(w[2], True), order_gates(w[3], False)]) for w in sides])
    return graph.weight(W), graph.weight(U), graph.constant(b.float().numpy())
