"""Nodes of the convolutional decoder: gated causal convolutions, each with attention.

B rows   S source steps   E embedding width   H hidden width   P cached steps of a layer
"""

import numpy as np

from weft.decode.decoders.convolutional import (
    SQRT_HALF,
    ConvolutionalBlock,
    ConvolutionalDecoder,
    WeightNormConv,
)
from weft.export.onnx.attend import compare_keys, prepare_keys
from weft.export.onnx.decoders.generation import (
    LENGTHS,
    STARTS,
    STEPS,
    DecoderGraphState,
    word_logits,
)
from weft.export.onnx.graph import FLOAT, INT, Graph, Steps, Value, emits


@emits(WeightNormConv)
def weight_norm(graph: Graph, part: WeightNormConv, x: Value) -> Value:
    """Convolve the only window (B, span, inputs) that there is; of span 1, every step."""
    direction = part.direction.detach()
    scale = part.length.detach() / direction.flatten(1).norm(dim=1)
    weight = direction * scale[:, None, None]
    if weight.shape[2] == 1:
        return graph.linear(x, weight[:, :, 0].contiguous(), part.bias)
    flat = weight.transpose(1, 2).flatten(1).contiguous()  # (outputs, span * inputs)
    window = x.reshape(0, 1, flat.shape[1])
    return graph.linear(window, flat, part.bias)  # (B, 1, outputs)


def _start(graph: Graph, part: ConvolutionalDecoder, memory: Steps) -> DecoderGraphState:
    rows = memory.data.size(0)
    values = memory.with_data(graph.run(part.memory, memory.data)).data  # (B, S, E)
    state = DecoderGraphState(static={"memory": values, LENGTHS: memory.lengths})
    state.dynamic["position"] = graph.constant([0], INT).expand(rows)
    empty = graph.constant(np.zeros((1, 1, 1), np.float32))
    for i, block in enumerate(part.blocks):
        assert isinstance(block, ConvolutionalBlock)
        state.dynamic[f"past{i}"] = empty.expand(rows, *part.past)
        state.static[f"compared{i}"] = prepare_keys(graph, block.score, values)
    return state


def _step(
    graph: Graph, part: ConvolutionalDecoder, ids: Value, state: DecoderGraphState
) -> tuple[Value, dict[str, Value]]:
    position, source = state["position"], Steps(state["memory"], state[LENGTHS])
    words = graph.run(part.words.table, ids) + graph.embed(part.positions.table, position)
    words = words.unsqueeze(1)  # (B, 1, E)
    x = graph.run(part.enter, words)
    following = {"position": position + 1}
    # A mean of m steps has 1/m of their variance; √m restores it.
    scale = graph.op("Sqrt", source.lengths.to(FLOAT)).reshape(-1, 1, 1)
    for i, block in enumerate(part.blocks):
        assert isinstance(block, ConvolutionalBlock)
        joined = graph.concat([state[f"past{i}"], x], 1)  # (B, P + 1, H)
        following[f"past{i}"] = joined.slice(1, 1, block.past + 1)
        both = graph.run(block.convolve, joined)
        signal, gate = graph.ops("Split", both, outputs=2, axis=2, num_outputs=2)
        gated = signal * gate.sigmoid()  # (B, 1, H)
        query = (graph.run(block.query, gated) + words) * SQRT_HALF
        scores = compare_keys(graph, block.score, query, state[f"compared{i}"])
        context = ((scores + source.bias).softmax() @ source.data) * scale
        mixed = (gated + graph.run(block.context, context)) * SQRT_HALF
        x = (mixed + x) * SQRT_HALF
    features = graph.run(part.leave, x).squeeze(1)
    return word_logits(graph, part.words, features), following


STARTS[ConvolutionalDecoder], STEPS[ConvolutionalDecoder] = _start, _step
