"""Nodes of decoders: the state before the first word, and one step from state to state.

A state is a set of named values with the rows first. Those that every step replaces are dynamic;
the others, such as the encoder's, are static.

B rows   S source steps   P steps so far   E embedding width   H hidden width   L layers   V words
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from weft.decode.decoders.output_layer import OutputLayer
from weft.decode.decoders.recurrent import DeepOutput, RecurrentDecoder
from weft.decode.decoders.transformer import (
    Seq2SeqTransformerDecoder,
    TransformerDecoder,
    TransformerDecoderBlock,
)
from weft.decode.search.settings import SearchSettings
from weft.embed.position import SinusoidalPositions
from weft.errors import UserError
from weft.export.onnx.attend import (
    attend_heads,
    compare_keys,
    prepare_keys,
    projections,
    split_heads,
)
from weft.export.onnx.graph import INT, Graph, Steps, Value, describe_part
from weft.export.onnx.layers import sinusoids
from weft.export.onnx.recurrent import advance_cells
from weft.protocols import Decoder

STATE, NEXT = "state.", "next."  # what the inputs and outputs of a state are called
LENGTHS = "lengths"  # of the source, in a state
# Settings of a search that the runtime has; the others must be as they are by default.
SEARCHED = (
    *("method", "max_length", "min_length", "num_beams", "num_return", "length_normalisation"),
    *("length_penalty", "early_stopping", "drop_finished", "check_every", "cuda_graphs"),
    *("weight_dtype", "seed", "temperature", "top_k", "top_p", "typical_p", "num_samples"),
    *("diversity_penalty", "num_beam_groups", "no_repeat_ngram_size", "repetition_penalty"),
)


@dataclass
class DecoderGraphState:
    """The named values of a state."""

    dynamic: dict[str, Value] = field(default_factory=dict)
    static: dict[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Value:
        return self.dynamic[name] if name in self.dynamic else self.static[name]

    def get(self, name: str) -> Value | None:
        """Return a value; None if the state has none of this name."""
        return self.dynamic.get(name, self.static.get(name))


@dataclass(frozen=True, eq=False)
class StepOutput:
    """The output of a step before the output layer."""

    features: Value  # (B, F)
    hidden: Value  # (B, H)
    weights: Value | None  # (B, S) attention


def start_decoder(graph: Graph, decoder: Decoder, memory: Steps) -> DecoderGraphState:
    """Write the state before the first word, from the encoder's states."""
    start = _find(STARTS, decoder)
    state: DecoderGraphState = start(graph, decoder, memory.with_data(memory.data))
    return state


def step_decoder(
    graph: Graph, decoder: Decoder, ids: Value, state: DecoderGraphState
) -> tuple[Value, dict[str, Value]]:
    """Write one step: the logits (B, V) of the word after ids (B,), and the next dynamic state."""
    logits, following = _find(STEPS, decoder)(graph, decoder, ids, state)
    return logits, following


def log_probs(graph: Graph, logits: Value) -> Value:
    """Return log-softmax over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    total = graph.op("Exp", shifted).sum(-1, keepdims=True)
    return shifted - graph.op("Log", total)


def word_logits(graph: Graph, words: OutputLayer, features: Value) -> Value:
    """Return the logits of all words."""
    return graph.linear(graph.run(words.narrow, features), words.weight, words.bias)


def check_search(settings: SearchSettings) -> None:
    """Raise UserError for a search that the runtime does not have."""
    usual = SearchSettings()
    for name in usual.__dataclass_fields__:
        value = getattr(settings, name)
        if name not in SEARCHED and value != getattr(usual, name):
            raise UserError(
                f"generate.{name} = {value!r}: a model with this search cannot be exported. Use "
                "a search without a coverage penalty."
            )
    if settings.method == "sample":
        raise UserError(
            "generate.method = 'sample': a model that samples cannot be exported, its answers "
            "would differ. Use 'greedy' or 'beam'."
        )


def _start_recurrent(graph: Graph, part: RecurrentDecoder, memory: Steps) -> DecoderGraphState:
    vector, _ = graph.run(part.summary, memory)  # (B, M)
    if part.backward_only:
        vector = graph.ops("Split", vector, outputs=2, axis=1, num_outputs=2)[1]
    first = graph.run(part.first, vector).tanh().reshape(
        0, part.kept, part.layers, part.hidden_size
    )  # fmt: skip
    state = DecoderGraphState()
    for i, name in enumerate(("hidden", "cell")[: part.kept]):
        state.dynamic[name] = first.gather(graph.constant(i, INT), axis=1)  # (B, L, H)
    if part.every:
        state.static["vector"] = vector
    if part.attends:
        rows = memory.data.size(0)
        keys = prepare_keys(graph, part.score, memory.data)
        state.static |= {"keys": keys, "memory": memory.data, LENGTHS: memory.lengths}
        zero = graph.constant(np.zeros((1, 1), np.float32))
        if part.feeds:
            state.dynamic["fed"] = zero.expand(rows, part.hidden_size)
        if part.covers:
            state.dynamic["covered"] = zero.expand(rows, memory.data.size(1))
    return state


def _step_recurrent(
    graph: Graph, part: RecurrentDecoder, ids: Value, state: DecoderGraphState
) -> tuple[Value, dict[str, Value]]:
    output, following = step_recurrent(graph, part, ids, state)
    return word_logits(graph, part.words, output.features), following


def step_recurrent(
    graph: Graph, part: RecurrentDecoder, ids: Value, state: DecoderGraphState
) -> tuple[StepOutput, dict[str, Value]]:
    """Write a step up to the output layer; return its outputs and the next dynamic state."""
    word = graph.run(part.words.table, ids)  # (B, E)
    parts = (state.get(name) for name in ("hidden", "cell"))
    before = [part for part in parts if part is not None]
    following: dict[str, Value] = {}
    attended: list[Value] = []

    def attend(query: Value) -> Value:
        """Return the context (B, M) of a query (B, H)."""
        covered = state.get("covered")
        scores = compare_keys(graph, part.score, query.unsqueeze(1), state["keys"], covered)
        memory = Steps(state["memory"], state[LENGTHS])
        weights = (scores + memory.bias).softmax()  # (B, 1, S)
        attended.append(weights.squeeze(1))
        if covered is not None:
            following["covered"] = covered + weights.squeeze(1)
        return (weights @ memory.data).squeeze(1)

    entering = [word]
    old = before[0].gather(graph.constant(part.layers - 1, INT), axis=1)  # (B, H)
    if part.attends and part.context_first:
        context = attend(old)
        entering.append(context)
    more = (state.get(name) for name in ("vector", "fed"))
    entering += [one for one in more if one is not None]
    new, after = advance_cells(graph, part.net, graph.concat(entering, 1), before)
    following |= dict(zip(("hidden", "cell"), after, strict=False))
    if not part.attends:
        return StepOutput(new, new, None), following
    if part.context_first:
        features = _mix(graph, part.mix, old, new, word, context)
    else:
        features = graph.run(part.mix, graph.concat([attend(new), new], 1)).tanh()
    if part.feeds:
        following["fed"] = features
    return StepOutput(features, new, attended[0]), following


def _mix(
    graph: Graph, part: nn.Module, before: Value, after: Value, word: Value, context: Value
) -> Value:
    """Return the features (B, H) of a deep output."""
    assert isinstance(part, DeepOutput)
    if part.readout == "state":
        features: Value = graph.run(part.project, after).tanh()
        return features
    rows: Value = graph.run(part.project, graph.concat([before, word, context], 1))  # (B, G)
    return rows.reshape(0, -1, 2).max(2) if part.readout == "maxout" else rows.tanh()


def _start_transformer(
    graph: Graph, part: Seq2SeqTransformerDecoder, memory: Steps
) -> DecoderGraphState:
    state = DecoderGraphState(static={LENGTHS: memory.lengths})
    rows, width = memory.data.size(0), part.hidden_size // part.heads
    empty = graph.constant(np.zeros((1, 1, 0, 1), np.float32))
    for i, block in enumerate(part.layers):
        for name in ("keys", "values"):
            state.dynamic[f"{name}{i}"] = empty.expand(rows, part.heads, 0, width)
        assert block.cross is not None
        _, *maps = projections(graph, block.cross)
        for name, (weight, bias) in zip(("cross_keys", "cross_values"), maps, strict=True):
            projected = graph.linear(memory.data, weight, bias)
            state.static[f"{name}{i}"] = split_heads(block.cross, projected)
    return state


def _step_transformer(
    graph: Graph, part: TransformerDecoder, ids: Value, state: DecoderGraphState
) -> tuple[Value, dict[str, Value]]:
    position = state["keys0"].size(2)  # (1,)
    x = graph.run(part.words.table, ids).unsqueeze(1)  # (B, 1, H)
    if not part.learned:
        x = x * part.scale
    if isinstance(part.positions, SinusoidalPositions):
        x = x + sinusoids(graph, position, part.hidden_size)
    else:
        x = x + graph.embed(part.positions.table, position)
    following: dict[str, Value] = {}
    for i, block in enumerate(part.layers):
        y = graph.run(block.attention_norm, x) if block.norm_first else x
        q, k, v = (
            split_heads(block.attention, graph.linear(y, weight, bias))
            for weight, bias in projections(graph, block.attention)
        )
        k = graph.concat([state[f"keys{i}"], k], 2)  # (B, N, P+1, K)
        v = graph.concat([state[f"values{i}"], v], 2)
        following |= {f"keys{i}": k, f"values{i}": v}
        x = add_residual(
            graph, block, x, attend_heads(graph, block.attention, q, k, v), "attention_norm"
        )
        if block.cross is not None:
            y = graph.run(block.cross_norm, x) if block.norm_first else x
            (weight, bias), *_ = projections(graph, block.cross)
            q = split_heads(block.cross, graph.linear(y, weight, bias))
            keys, values = state[f"cross_keys{i}"], state[f"cross_values{i}"]
            source = Steps(keys.transpose(0, 2, 1, 3), state[LENGTHS])
            context = attend_heads(graph, block.cross, q, keys, values, source.bias)
            x = add_residual(graph, block, x, context, "cross_norm")
        y = graph.run(block.feed_norm, x) if block.norm_first else x
        inner = graph.run(block.activation, graph.run(block.feed_in, y))
        x = add_residual(graph, block, x, graph.run(block.feed_out, inner), "feed_norm")
    features = graph.run(part.norm, x).squeeze(1)  # (B, H)
    return word_logits(graph, part.words, features), following


def add_residual(
    graph: Graph, block: TransformerDecoderBlock, x: Value, update: Value, norm: str
) -> Value:
    """Add to the residual stream, which a post-norm block normalises."""
    added = x + update
    if block.norm_first:
        return added
    normed: Value = graph.run(getattr(block, norm), added)
    return normed


def _find(table: dict[type, Callable[..., Any]], decoder: Decoder) -> Callable[..., Any]:
    if type(decoder) not in table:
        raise UserError(
            f"{describe_part(decoder)} has no ONNX nodes, so a model with it cannot be exported. "
            "Use another decoder: rnn, cnn or transformer."
        )
    return table[type(decoder)]


# By the class of a decoder.
STARTS: dict[type, Callable[..., Any]] = {
    RecurrentDecoder: _start_recurrent,
    Seq2SeqTransformerDecoder: _start_transformer,
}
STEPS: dict[type, Callable[..., Any]] = {
    RecurrentDecoder: _step_recurrent,
    Seq2SeqTransformerDecoder: _step_transformer,
}
