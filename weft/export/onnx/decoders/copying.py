"""Nodes of the pointer-generator: words of the vocabulary, or words copied from the source.

B rows   S source steps   M width of encoder states   V words   X source OOV words
"""

from weft.decode.decoders.pointer_generator import UNKNOWN, PointerGenerator
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.export.onnx.decoders.generation import (
    LENGTHS,
    DecoderGraphState,
    log_probs,
    start_decoder,
    step_recurrent,
    word_logits,
)
from weft.export.onnx.graph import FLOAT, INT, Graph, Steps, Value, emitter_of

SOURCE = "source"  # extended ids of the source, in a state
COPIED = "copied"  # an input: how many words only the sources of a batch have
LOWEST = -3.4028235e38  # log-probability of what cannot be: the lowest number


def known_ids(graph: Graph, ids: Value, size: int) -> Value:
    """Return ids with those of words outside the vocabulary replaced by that of UNK."""
    return graph.where(ids < size, ids, UNKNOWN)


def start_copying(
    graph: Graph, part: PointerGenerator, memory: Steps, source: Value
) -> DecoderGraphState:
    """Write the state before the first word: the inner decoder's, and the ids of the source."""
    if not isinstance(part.decoder, RecurrentDecoder):
        emitter_of(part)  # names it: only recurrent decoders copy in an export
    state = start_decoder(graph, part.decoder, memory)
    state.static[SOURCE] = source
    return state


def step_copying(
    graph: Graph, part: PointerGenerator, ids: Value, state: DecoderGraphState
) -> tuple[Value, dict[str, Value]]:
    """Write a step; return the log-probabilities (B, V + X) and the next dynamic state."""
    assert isinstance(part.decoder, RecurrentDecoder)
    words = part.decoder.words
    inside = known_ids(graph, ids, words.size)
    output, following = step_recurrent(graph, part.decoder, inside, state)
    assert output.weights is not None
    memory = Steps(state["memory"], state[LENGTHS])
    context = (output.weights.unsqueeze(1) @ memory.data).squeeze(1)  # (B, M)
    vector = graph.run(words.table, inside)
    gate = graph.run(part.gate, graph.concat([context, output.hidden, vector], 1))  # (B, 1)
    written = log_probs(graph, word_logits(graph, words, output.features)) + _log_sigmoid(gate)
    extra = graph.add_input(COPIED, INT, 1)
    rows = ids.size(0)
    more = graph.constant([[LOWEST]], FLOAT).expand(rows, extra)
    written = graph.concat([written, more], 1)  # (B, V + X)
    copied = graph.op(
        "ScatterElements", written * 0, state[SOURCE], output.weights, axis=1, reduction="add"
    )
    positive = copied > 0
    log_copied = graph.op("Log", graph.where(positive, copied, 1.0)) + _log_sigmoid(-gate)
    log_copied = graph.where(positive, log_copied, LOWEST)
    top = graph.op("Max", written, log_copied)
    low = graph.op("Min", written, log_copied)
    both = top + graph.op("Log", graph.op("Exp", low - top) + 1)
    return both, following


def _log_sigmoid(x: Value) -> Value:
    """Return log σ(x) = min(x, 0) - log(1 + exp(-|x|))."""
    graph = x.graph
    low = graph.op("Min", x, graph.constant(0.0, FLOAT))
    return low - graph.op("Log", graph.op("Exp", -x.abs()) + 1)
