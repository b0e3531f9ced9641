"""Nodes of recursive networks: a Scan over groups of nodes that lie at one height of their trees.

The runtime says which nodes each step computes and which are their children
(`weft.export.runtime.trees`); a child that is none has the state zero.

B trees   T nodes of the largest   N = B*T nodes   V steps   G nodes of a step
A children of a node   H width of a state
"""

from collections.abc import Callable, Sequence

from weft.encode.tree import BINARY, RNTN, TreeLSTM, TreeRNN
from weft.export.onnx.graph import INT, Graph, Steps, Value, emits
from weft.model import EncoderModel, Model

# States (G, A, H) of children and what the nodes have of their own (G, ...) -> states (G, H).
Cell = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]


def _run_levels(
    graph: Graph, leaves: Sequence[Value], own: Sequence[Value], cell: Cell, arity: int
) -> Value:
    """Return the states (N, H) of all nodes, given those of leaves; of several, the first."""
    nodes = graph.add_input("tree_nodes", INT, "V", "G")
    children = graph.add_input("tree_children", INT, "V", "G", arity or "A")
    own = [_with_dummies(graph, one) for one in own]

    def advance(
        before: Sequence[Value], inputs: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        at, below = inputs
        after = cell([states.gather(below) for states in before], [one.gather(at) for one in own])
        index = at.unsqueeze(1)
        return [
            graph.op("ScatterND", old, index, new) for old, new in zip(before, after, strict=True)
        ], []

    first = [_with_dummies(graph, states) for states in leaves]
    (states, *_), _ = graph.scan(advance, first, [nodes, children])
    return states.slice(0, 0, -2)


def _with_dummies(graph: Graph, rows: Value) -> Value:
    """Return rows (N, ...) and two of zeros: a child that is none, and where no node is written."""
    return graph.op("Pad", rows, graph.shape(0, 0, 2, 0))


@emits(TreeRNN, RNTN)
def tree_rnn(graph: Graph, part: TreeRNN, x: Steps) -> Steps:
    words = x.data if part.project is None else graph.run(part.project, x.data)
    leaves = words.tanh().reshape(-1, part.output_size)
    width, wide = part.output_size, BINARY * part.output_size
    # Written before the Scan: what is written inside a step is known there alone.
    W, bias, tensor = graph.weight(part.weight, transpose=True), graph.weight(part.bias), None
    if part.slices is not None:
        flat = part.slices.detach().transpose(0, 1).reshape(wide, width * wide)
        tensor = graph.weight(flat.contiguous())

    def cell(below: Sequence[Value], own: Sequence[Value]) -> Sequence[Value]:
        both = below[0].reshape(-1, wide)  # (G, 2*H)
        total = both @ W + bias
        if tensor is not None:
            products = (both @ tensor).reshape(-1, width, wide)  # (G, H, 2*H)
            total = total + (products * both.unsqueeze(1)).sum(2)
        return [total.tanh()]

    return _to_rows(x, _run_levels(graph, [leaves], [], cell, BINARY), width)


@emits(TreeLSTM)
def tree_lstm(graph: Graph, part: TreeLSTM, x: Steps) -> Steps:
    width, arity, gates = part.output_size, part.arity, 4 if part.all_words else 3
    bias = part.bias.detach()[: gates * width].clone()
    read = graph.linear(x.data, part.word, bias).reshape(-1, gates * width)
    words = [read.slice(1, i * width, (i + 1) * width) for i in range(gates)]
    memory = words[0].sigmoid() * words[2].tanh()  # (N, H)
    leaves = words[1].sigmoid() * memory.tanh()
    biases = [graph.weight(one.clone()) for one in part.bias.detach().split(width)]
    maps = [graph.weight(one, transpose=True) for one in part.weight.detach().split(width)]

    def cell(below: Sequence[Value], own: Sequence[Value]) -> Sequence[Value]:
        states, cells = below  # (G, A, H)
        enter, leave, candidate, forget = own or biases
        if arity:  # the maps are those of input, output, a forget gate for each child, candidate
            joined = states.reshape(-1, arity * width)
            products = [joined @ one for one in maps]
            kept = [(one + forget).sigmoid().unsqueeze(1) for one in products[2:-1]]
            keep, fresh = graph.concat(kept, 1), products[-1]
        else:
            products = [states.sum(1) @ one for one in maps[:3]]
            keep = (states @ maps[3] + (forget.unsqueeze(1) if own else forget)).sigmoid()
            fresh = products[2]
        opened = (products[0] + enter).sigmoid()
        memory = opened * (fresh + candidate).tanh() + (keep * cells).sum(1)
        return [(products[1] + leave).sigmoid() * memory.tanh(), memory]

    own = words if part.all_words else []
    return _to_rows(x, _run_levels(graph, [leaves, memory], own, cell, arity), width)


def _to_rows(x: Steps, flat: Value, width: int) -> Steps:
    """Return states (N, H) as rows of the batch."""
    return x.with_data(flat.reshape(x.data.size(0), x.data.size(1), width))


def tree_arity(model: Model) -> int:
    """Return the most children that a node of a tree may have; 0 for any number."""
    assert isinstance(model, EncoderModel)
    return model.encoder.arity if isinstance(model.encoder, TreeLSTM) else BINARY
