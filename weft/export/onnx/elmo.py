"""Nodes of ELMo: words from their characters, through projected LSTMs that a Scan steps through.

S directions   B rows   T steps   E width of a word and of a projected state   H cells
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from weft.embed.elmo import BiLMNetwork, DirectionalLayerNorm, Elmo, ProjectedLSTM
from weft.export.onnx.embed import spelled_words
from weft.export.onnx.graph import INT, Graph, Steps, Value, emits, reverse_steps
from weft.export.onnx.inputs import SpelledWords

EPSILON = 1e-5  # of layer norms without weights


@emits(Elmo)
def elmo(graph: Graph, part: Elmo, words: SpelledWords) -> Steps:
    layers = _layers(graph, part.network, spelled_words(graph, part.network.characters, words))
    if part.mix is None:
        layers = layers[-1:]
    if part.norm:
        layers = [_normalise(graph, states, part.output_size) for states in layers]
    mixed = layers[0] if part.mix is None else graph.run(part.mix, layers)
    return words.steps.with_data(mixed)


def _layers(graph: Graph, network: BiLMNetwork, words: Steps) -> list[Value]:
    """Return the words and the states of each layer (B, T, 2*E), forward beside backward."""
    width, rows = network.width, words.data.size(0)
    mark = graph.weight(network.boundary_vector()).expand(rows, 1, width)
    sides = (words.data, reverse_steps(words).data)
    x = graph.concat(
        [graph.concat([mark, side], 1).unsqueeze(0) for side in sides], 0
    )  # (S, B, T+1, E)
    layers = [graph.concat([words.data, words.data], 2)]
    for states in run_network(graph, network, x):
        both = states.slice(2, 1, 2**31 - 1)  # without the boundary
        forward, backward = (
            both.gather(graph.constant(side, INT), axis=0) for side in range(2)
        )  # (B, T, E)
        backward = reverse_steps(Steps(backward, words.lengths)).data
        layers.append(graph.concat([forward, backward], 2))
    return layers


def run_network(
    graph: Graph, network: BiLMNetwork, x: Value, side: Value | None = None
) -> list[Value]:
    """Return the states (S, B, T, E) of each layer: of both directions, or of one `side` (1,)."""
    layers = []
    for i, layer in enumerate(network.layers):
        assert isinstance(layer, ProjectedLSTM)
        states = graph.run(layer, x, side)
        x = states + x if i else states
        if network.norms:
            x = graph.run(network.norms[i], x, side)
        layers.append(x)
    return layers


@emits(ProjectedLSTM)
def projected_lstm(graph: Graph, part: ProjectedLSTM, x: Value, side: Value | None = None) -> Value:
    """Return the states (S, B, T, E) of inputs (S, B, T, E)."""

    def transpose(weight: Tensor) -> Value:
        return _of_side(graph.weight(weight, transpose=True), side)  # (S, I, O)

    bias = _of_side(graph.weight(part.bias), side).reshape(0, 1, 1, -1)
    inputs_by_step = x @ transpose(part.enter).unsqueeze(1) + bias
    again, project = transpose(part.again), transpose(part.project)
    sides, rows = x.size(0), x.size(1)
    zero = graph.constant(np.zeros((1, 1, 1), np.float32))
    hidden = zero.expand(sides, rows, part.project.shape[1])
    cell = zero.expand(sides, rows, part.project.shape[2])

    def clip(states: Value) -> Value:
        if not part.clip:
            return states
        limits = (graph.constant(sign * part.clip, states.dtype) for sign in (-1, 1))
        return graph.op("Clip", states, *limits)

    def step(
        before: Sequence[Value], inputs: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        gates = inputs[0] + before[0] @ again  # (S, B, 4*H)
        opened, keep, fresh, leave = graph.ops("Split", gates, outputs=4, axis=2, num_outputs=4)
        cells = clip(keep.sigmoid() * before[1] + opened.sigmoid() * fresh.tanh())
        states = clip((leave.sigmoid() * cells.tanh()) @ project)  # (S, B, E)
        return [states, cells], [states]

    _, (states,) = graph.scan(step, [hidden, cell], [inputs_by_step.transpose(2, 0, 1, 3)])
    return states.transpose(1, 2, 0, 3)


@emits(DirectionalLayerNorm)
def directional_norm(
    graph: Graph, part: DirectionalLayerNorm, x: Value, side: Value | None = None
) -> Value:
    weight, bias = (
        _of_side(graph.weight(one), side).reshape(0, 1, 1, -1) for one in (part.weight, part.bias)
    )
    return _normalise(graph, x, part.weight.shape[1]) * weight + bias


def _of_side(weight: Value, side: Value | None) -> Value:
    """Return the weights (S, ...) of one direction, or of both."""
    return weight if side is None else weight.gather(side)


def _normalise(graph: Graph, x: Value, width: int) -> Value:
    """Bring the last axis to mean 0 and deviation 1."""
    ones = graph.constant(np.ones(width, np.float32))
    return graph.op("LayerNormalization", x, ones, axis=-1, epsilon=EPSILON)
