"""Nodes of recurrent layers: every cell as one of ONNX's LSTM, GRU and RNN operators.

E input width   H hidden width   D directions   G gates
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.encode.cells import FormulaRNN
from weft.encode.rnn import WEIGHT_NAMES, Recurrent
from weft.export.onnx.graph import INT32, Graph, Steps, Value, emits

OPEN = 100.0  # bias of a gate that is always open: its sigmoid is 1 in single precision
# W, U, b and d of one direction; those that a cell lacks are None.
Weights = Sequence[Tensor | None]


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
    operator = OPERATOR_OF[part.cell]
    suffixes = [f"l{layer}{side}" for side in ("", "_reverse")[:directions]]
    sides: list[Weights] = [
        [getattr(part.net, f"{kind}_{suffix}", None) for kind in WEIGHT_NAMES]
        for suffix in suffixes
    ]
    if isinstance(part.net, FormulaRNN):
        sides = [_whole(weights, hidden, part.cell) for weights in sides]
    first = [_initial(graph, state, layer, directions, x) for state in part.starts]
    if part.cell == "prototype-lstm":  # its one state is both of the operator's
        first *= 2
    attributes: dict[str, Any] = dict(operator.attributes)
    if operator.activations:
        attributes["activations"] = list(operator.activations) * directions
        scales = [1.0] * directions if "Affine" in operator.activations else None
        attributes["activation_alpha"] = scales
    states, _ = graph.ops(
        operator.kind, x.transpose(1, 0, 2), *_stacked(graph, sides, operator),
        lengths.to(INT32), *first,
        outputs=2, hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward", **attributes,
    )  # fmt: skip
    return states.transpose(2, 0, 1, 3).reshape(0, 0, directions * hidden)


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
