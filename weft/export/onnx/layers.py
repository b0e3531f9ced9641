"""Nodes of PyTorch's layers and of the small modules that parts are made of."""

from torch import nn

from weft.embed.activations import TanhGELU
from weft.embed.contextual import ScalarMix
from weft.embed.highway import Highway
from weft.embed.position import LearnedPositions, SinusoidalPositions, sinusoid_rates
from weft.export.onnx.graph import FLOAT, Graph, Value, emits


@emits(nn.Identity, nn.Dropout)
def identity(graph: Graph, part: nn.Module, x: Value) -> Value:
    return x


@emits(nn.Sequential)
def sequential(graph: Graph, part: nn.Sequential, x: Value) -> Value:
    for module in part:
        x = graph.run(module, x)
    return x


@emits(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
def linear(graph: Graph, part: nn.Linear, x: Value) -> Value:
    return graph.linear(x, part.weight, part.bias)


@emits(nn.Embedding)
def embedding(graph: Graph, part: nn.Embedding, ids: Value) -> Value:
    return graph.embed(part.weight, ids)


@emits(nn.LayerNorm)
def layer_norm(graph: Graph, part: nn.LayerNorm, x: Value) -> Value:
    gain, bias = graph.weight(part.weight), graph.weight(part.bias)
    return graph.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=part.eps)


@emits(nn.ReLU)
def relu(graph: Graph, part: nn.Module, x: Value) -> Value:
    return x.relu()


@emits(nn.Tanh)
def tanh(graph: Graph, part: nn.Module, x: Value) -> Value:
    return x.tanh()


@emits(nn.Sigmoid)
def sigmoid(graph: Graph, part: nn.Module, x: Value) -> Value:
    return x.sigmoid()


@emits(nn.LeakyReLU)
def leaky_relu(graph: Graph, part: nn.LeakyReLU, x: Value) -> Value:
    return graph.op("LeakyRelu", x, alpha=part.negative_slope)


@emits(nn.GELU)
def gelu(graph: Graph, part: nn.GELU, x: Value) -> Value:
    return graph.op("Gelu", x, approximate=part.approximate)


@emits(TanhGELU)
def gelu_tanh(graph: Graph, part: TanhGELU, x: Value) -> Value:
    return graph.op("Gelu", x, approximate="tanh")


@emits(Highway)
def highway(graph: Graph, part: Highway, x: Value) -> Value:
    for change, gate in zip(part.changes, part.gates, strict=True):
        opened = graph.run(gate, x).sigmoid()
        changed = graph.run(part.activation, graph.run(change, x))
        x = opened * changed + (1 - opened) * x
    return x


@emits(SinusoidalPositions)
def sinusoidal_positions(graph: Graph, part: SinusoidalPositions, x: Value) -> Value:
    return x + sinusoids(graph, graph.steps(x), part.table.shape[1])


def sinusoids(graph: Graph, steps: Value, width: int) -> Value:
    """Return the vectors (T, H) of positions (T,).

    They are computed, not looked up: a row may be longer than any table.
    """
    rates = sinusoid_rates(width).numpy()
    angles = steps.to(FLOAT).unsqueeze(1) * graph.constant(rates)  # (T, H/2)
    pairs = [graph.op(kind, angles).unsqueeze(2) for kind in ("Sin", "Cos")]
    table = graph.concat(pairs, 2).reshape(0, -1)  # (T, H), one more if H is odd
    return table.slice(1, 0, width) if width % 2 else table


@emits(LearnedPositions)
def learned_positions(graph: Graph, part: LearnedPositions, x: Value) -> Value:
    return x + graph.embed(part.table, graph.steps(x))


@emits(ScalarMix)
def scalar_mix(graph: Graph, part: ScalarMix, layers: list[Value]) -> Value:
    weights = (part.weights * part.gamma).tolist()
    mixed: Value = layers[0] * weights[0]
    for weight, states in zip(weights[1:], layers[1:], strict=True):
        mixed = mixed + states * weight
    return mixed
