"""Nodes of the encoders: vectors (B, T, E) -> states (B, T, H)."""

from torch import nn

from weft.encode.cnn import CNN, Convolution
from weft.encode.mlp import MLP
from weft.encode.per_step import Bag, HighwayEncoder, PassThrough
from weft.encode.stack import EncoderStack
from weft.encode.transformer import TransformerEncoder
from weft.encode.windowed import WindowedRecurrent
from weft.export.onnx import recurrent  # noqa: F401  (imported for what it registers)
from weft.export.onnx.graph import INT, Graph, Steps, Value, emits


@emits(PassThrough)
def pass_through(graph: Graph, part: PassThrough, x: Steps) -> Steps:
    return x


@emits(Bag)
def bag(graph: Graph, part: Bag, x: Steps) -> Steps:
    return x.with_data(graph.run(part.activation, graph.run(part.project, x.data)))


@emits(HighwayEncoder)
def highway(graph: Graph, part: HighwayEncoder, x: Steps) -> Steps:
    return x.with_data(graph.run(part.layers, x.data))


@emits(MLP)
def mlp(graph: Graph, part: MLP, x: Steps) -> Steps:
    before = (part.window - 1) // 2
    margin = graph.constant([0, before, 0, 0, part.window - 1 - before, 0], INT)
    around = graph.op("Pad", x.with_data(x.data).data, margin)
    steps = x.data.size(1)
    shifted = [around.slice(1, i, steps + i) for i in range(part.window)]
    states = graph.concat(shifted, 2)  # (B, T, W*E)
    for layer in part.layers:
        states = graph.run(part.activation, graph.run(layer, states))
    return x.with_data(states)


@emits(nn.Conv1d)
def conv1d(graph: Graph, part: nn.Conv1d, x: Value, margin: tuple[int, int] = (0, 0)) -> Value:
    weights = graph.weight(part.weight), graph.weight(part.bias)  # type: ignore[arg-type]
    return graph.op(
        "Conv", x, *weights,
        pads=list(margin), strides=list(part.stride), dilations=list(part.dilation),
    )  # fmt: skip


@emits(Convolution)
def convolution(graph: Graph, part: Convolution, x: Value) -> Value:
    channels_first = x.transpose(0, 2, 1)  # (B, E, T)
    features = [
        graph.run(conv, channels_first, margin)
        for conv, margin in zip(part.filters, part.margins, strict=True)
    ]
    sums = graph.concat(features, 1).transpose(0, 2, 1)  # (B, R, H)
    states: Value = graph.run(part.activation, graph.run(part.pre_norm, sums))
    if part.shortcut is not None:
        kept = x if part.stride == 1 else x.slice(1, 0, x.size(1), part.stride)
        states = states + graph.run(part.shortcut, kept)
    normed: Value = graph.run(part.norm, states)
    return normed


@emits(CNN)
def cnn(graph: Graph, part: CNN, x: Steps) -> Steps:
    x = x.with_data(x.data)  # a window that reaches past the end must see zeros
    for layer in part.layers:
        assert isinstance(layer, Convolution)
        states = graph.run(layer, x.data)
        if layer.stride > 1:
            x = Steps(states, (x.lengths + (layer.stride - 1)) / layer.stride)
        x = x.with_data(states)
    return x


@emits(TransformerEncoder)
def transformer(graph: Graph, part: TransformerEncoder, x: Steps) -> Steps:
    states: Value = graph.run(part.enter, x.data)
    if part.cls is not None:
        front = graph.weight(part.cls).expand(x.data.size(0), 1, part.output_size)
        x = Steps(graph.concat([front, states], 1), x.lengths + 1)
        states = x.data
    states = graph.run(part.positions, states)
    for block in part.blocks:
        states = graph.run(block, states, x.bias)
    return x.with_data(graph.run(part.norm, states))


@emits(EncoderStack)
def stack(graph: Graph, part: EncoderStack, x: Steps) -> Steps:
    for member in part.members:
        x = graph.run(member, x)
    return x


@emits(WindowedRecurrent)
def windowed(graph: Graph, part: WindowedRecurrent, x: Steps) -> Steps:
    window, hop = part.window, part.window // 2
    steps, rows = x.data.size(1), x.data.size(0)
    count = (steps - window + (hop - 1)).clamp_min(0) / hop + 1  # (1,) windows of a row
    width = count * hop + (window - hop)
    padded = graph.op("Pad", x.data, graph.concat([graph.shape(0, 0, 0, 0), width - steps,
                                                   graph.shape(0)], 0))  # fmt: skip
    starts = graph.range(count) * hop  # (N,)
    places = starts.unsqueeze(1) + graph.range(graph.shape(window))  # (N, W)
    data = padded.gather(places, axis=1).reshape(rows * count, window, -1)
    lengths = x.lengths.unsqueeze(1)  # (B, 1)
    # A window that another one contains is not read; ONNX's rows have a step at least.
    needed = starts.equals(0) | (lengths > starts + hop)
    own = (lengths - starts).clamp_min(1)
    own = graph.op("Min", own, graph.constant(window, INT))
    read = graph.run(part.reader, Steps(data, graph.where(needed, own, 1).reshape(-1)))
    at = graph.steps(x.data)  # (T,)
    last = (lengths - window + (hop - 1)).clamp_min(0) / hop  # (B, 1)
    before = (at - window // 4).clamp_min(0) / hop
    number = graph.op("Min", before.unsqueeze(0).expand(rows, 1), last)
    place = graph.op("Min", at - number * hop, graph.constant(window - 1, INT))
    first = graph.range(rows).unsqueeze(1) * count
    flat = read.data.reshape(-1, part.output_size)
    return x.with_data(flat.gather((first + number) * window + place))
