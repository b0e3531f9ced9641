"""Nodes of language models: ids -> the log-probability of tokens, given those before or around.

Those that read from left to right go from state to state, so that one graph scores texts, reads
prompts and continues them.

B rows   T steps   E embedding width   H hidden width   V words   K scored steps
D distinct words   W bytes of a word   F width of the features of a word
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from weft.decode.decoders.elmo import BiLM
from weft.decode.decoders.language_models import BidirectionalLM, FeedForwardLM, RecurrentLM
from weft.decode.decoders.transformer import GPT
from weft.decode.heads.mlm import MLMHead
from weft.errors import UserError
from weft.export.onnx.attend import attend_heads, projections, split_heads
from weft.export.onnx.decoders.generation import (
    NEXT,
    STATE,
    add_residual,
    log_probs,
    word_logits,
)
from weft.export.onnx.elmo import run_network
from weft.export.onnx.embed import spelled_vectors
from weft.export.onnx.graph import (
    FLOAT,
    INT,
    Graph,
    Steps,
    Value,
    describe_part,
    emits,
    reverse_steps,
)
from weft.export.onnx.model import embed
from weft.export.onnx.recurrent import cell_of, run_operator
from weft.model import LanguageModel, MaskedLanguageModel
from weft.protocols import LanguageModelDecoder


@emits(LanguageModel)
def language_model(graph: Graph, model: LanguageModel) -> None:
    decoder = model.head.decoder
    if isinstance(decoder, BidirectionalLM):
        steps = Steps(graph.add_input("ids", INT, "B", "T"), graph.add_input("lengths", INT, "B"))
        read = graph.run(decoder.words.narrow, _both_sides(graph, decoder, steps))
        _write_words(graph, read, decoder.words.weight, decoder.words.bias)
        return
    if isinstance(decoder, BiLM):
        _write_log_probs(graph, decoder, _one_side(graph, decoder))
        return
    if type(decoder) not in _FEATURES:
        raise UserError(
            f"{describe_part(decoder)} has no ONNX nodes, so a model with it cannot be exported. "
            "Use another decoder: rnn-lm, nnlm, gpt, bidirectional-lm or elmo."
        )
    ids = graph.add_input("ids", INT, "B", "T")
    features, following = _FEATURES[type(decoder)](graph, decoder, ids)
    _write_log_probs(graph, decoder, features)
    for name, value in following.items():
        graph.add_output(NEXT + name, value, *graph.inputs[STATE + name][1])


def _write_log_probs(graph: Graph, decoder: LanguageModelDecoder, features: Value) -> None:
    """Write the log-probabilities (B, K) of target words at the last K steps of features (B, T, F).

    Also the logits (B, V) of what follows the last step.
    """
    targets = graph.add_input("targets", INT, "B", "K")
    steps = features.size(1)
    logits = word_logits(graph, decoder.words, features.slice(1, steps - targets.size(1), steps))
    every = log_probs(graph, logits)  # (B, K, V)
    chosen = graph.op("GatherElements", every, targets.unsqueeze(2), axis=2).squeeze(2)
    graph.add_output("log_probs", chosen, "B", "K")
    graph.add_output("logits", logits.gather(graph.constant(-1, INT), axis=1), "B", "V")


def _state(graph: Graph, name: str, dtype: np.dtype[Any], *sizes: str | int) -> Value:
    """Declare a value of the state before the first step; named sizes are 0 before any."""
    return graph.add_input(STATE + name, dtype, "B", *sizes)


def _one_side(graph: Graph, part: BiLM) -> Value:
    """Return the states (B, T, E) of one direction, which reads words in the order they come."""
    spelled = graph.add_input("spelled", INT, "D", "W")
    index = graph.add_input("spelling", INT, "B", "T")
    vectors = spelled_vectors(graph, part.network.characters, spelled).gather(index)  # (B, T, E)
    side = graph.add_input("side", INT, 1)
    return run_network(graph, part.network, vectors.unsqueeze(0), side)[-1].squeeze(0)


def _recurrent(graph: Graph, part: RecurrentLM, ids: Value) -> tuple[Value, dict[str, Value]]:
    names = ("hidden", "cell")[: part.num_states]
    sizes = (part.net.num_layers, part.net.hidden_size)
    before = [_state(graph, name, FLOAT, *sizes) for name in names]
    after: list[list[Value]] = []
    states = graph.run(part.words.table, ids).transpose(1, 0, 2)  # (T, B, E)
    for layer in range(part.net.num_layers):
        number = graph.constant(layer, INT)
        first = [one.gather(number, axis=1).unsqueeze(0) for one in before]  # (1, B, H)
        states, *last = run_operator(
            graph, part.net, cell_of(part.net), [f"l{layer}"], states, first
        )
        after.append([one.transpose(1, 0, 2) for one in last[: part.num_states]])
        states = states.squeeze(1)
        if part.norms:
            states = graph.run(part.norms[layer], states)
    following = [graph.concat(list(parts), 1) for parts in zip(*after, strict=True)]
    return states.transpose(1, 0, 2), dict(zip(names, following, strict=True))


def _feed_forward(graph: Graph, part: FeedForwardLM, ids: Value) -> tuple[Value, dict[str, Value]]:
    before = _state(graph, "words", INT, part.context - 1)
    joined, steps = graph.concat([before, ids], 1), ids.size(1)  # (B, C-1+T)
    vectors = graph.run(part.words.table, joined)  # (B, C-1+T, E)
    x = graph.concat([vectors.slice(1, i, steps + i) for i in range(part.context)], 2)
    hidden: Value = graph.run(part.activation, graph.run(part.hidden, x))
    features = graph.concat([hidden, x], 2) if part.direct else hidden
    return features, {"words": joined.slice(1, steps, steps + (part.context - 1))}


def _gpt(graph: Graph, part: GPT, ids: Value) -> tuple[Value, dict[str, Value]]:
    width = part.hidden_size // part.heads
    past = {
        f"{name}{i}": _state(graph, f"{name}{i}", FLOAT, part.heads, "P", width)
        for i in range(len(part.layers))
        for name in ("keys", "values")
    }
    used = past["keys0"].size(2)
    positions = graph.steps(ids) + used
    x: Value = graph.run(part.words.table, ids) + graph.embed(part.positions.table, positions)
    following: dict[str, Value] = {}
    for i, block in enumerate(part.layers):
        y = graph.run(block.attention_norm, x) if block.norm_first else x
        q, k, v = (
            split_heads(block.attention, graph.linear(y, weight, bias))
            for weight, bias in projections(graph, block.attention)
        )
        k = graph.concat([past[f"keys{i}"], k], 2)  # (B, N, P+T, K)
        v = graph.concat([past[f"values{i}"], v], 2)
        following |= {f"keys{i}": k, f"values{i}": v}
        context = attend_heads(graph, block.attention, q, k, v, causal=True)
        x = add_residual(graph, block, x, context, "attention_norm")
        y = graph.run(block.feed_norm, x) if block.norm_first else x
        inner = graph.run(block.activation, graph.run(block.feed_in, y))
        x = add_residual(graph, block, x, graph.run(block.feed_out, inner), "feed_norm")
    normed: Value = graph.run(part.norm, x)
    return normed, following


@emits(MaskedLanguageModel)
def masked_language_model(graph: Graph, model: MaskedLanguageModel) -> None:
    steps = Steps(graph.add_input("ids", INT, "B", "T"), graph.add_input("lengths", INT, "B"))
    states = graph.run(model.encoder, embed(graph, model, steps))
    head = model.head
    _write_words(graph, graph.run(head, states.data), head.table.weight, head.bias)


@emits(MLMHead)
def masked_features(graph: Graph, part: MLMHead, states: Value) -> Value:
    inner = graph.run(part.activation, graph.run(part.dense, states))
    normed: Value = graph.run(part.norm, inner)
    return normed


def _both_sides(graph: Graph, part: BidirectionalLM, ids: Steps) -> Value:
    """Return the states (B, T, 2*H) of each step, which in "skip" have not seen its word."""
    words = ids.with_data(graph.run(part.words.table, ids.data))
    ahead: Steps = graph.run(part.nets[0], words)
    if len(part.nets) == 1:
        return ahead.data
    read: Steps = graph.run(part.nets[1], reverse_steps(words))
    back, steps = reverse_steps(read).data, ids.data.size(1)
    before = graph.op("Pad", ahead.data, graph.shape(0, 1, 0, 0, 0, 0)).slice(1, 0, steps)
    after = graph.op("Pad", back, graph.shape(0, 0, 0, 0, 1, 0)).slice(1, 1, steps + 1)
    return graph.concat([before, after], 2)


def _write_words(graph: Graph, features: Value, weight: Tensor, bias: Tensor | None) -> None:
    """Write the log-probabilities of all words (K, V) at K steps, and of their targets (K,)."""
    rows, steps, targets = (graph.add_input(n, INT, "K") for n in ("rows", "steps", "targets"))
    index = graph.concat([rows.unsqueeze(1), steps.unsqueeze(1)], 1)
    words = log_probs(graph, graph.linear(graph.op("GatherND", features, index), weight, bias))
    chosen = graph.op("GatherElements", words, targets.unsqueeze(1), axis=1).squeeze(1)
    graph.add_output("words", words, "K", "V")
    graph.add_output("log_probs", chosen, "K")


_FEATURES: dict[type, Callable[..., Any]] = {
    RecurrentLM: _recurrent,
    FeedForwardLM: _feed_forward,
    GPT: _gpt,
}
