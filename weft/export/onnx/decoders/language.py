"""Nodes of language models: ids -> the log-probability of every token, given those before it.

B rows   T steps   E embedding width   H hidden width   V words
"""

from collections.abc import Callable
from typing import Any

from weft.decode.decoders.language_models import FeedForwardLM, RecurrentLM
from weft.decode.decoders.transformer import GPT, TransformerDecoderBlock
from weft.errors import UserError
from weft.export.onnx.decoders.generation import add_residual, log_probs, word_logits
from weft.export.onnx.graph import INT, Graph, Value, describe_part, emits
from weft.export.onnx.recurrent import cell_of, run_operator
from weft.model import LanguageModel


@emits(LanguageModel)
def language_model(graph: Graph, model: LanguageModel) -> None:
    decoder = model.head.decoder
    if type(decoder) not in _FEATURES:
        raise UserError(
            f"{describe_part(decoder)} has no ONNX nodes, so a model with it cannot be exported. "
            "Use another decoder: rnn-lm, nnlm or gpt."
        )
    ids, targets = (graph.add_input(name, INT, "B", "T") for name in ("ids", "targets"))
    features = _FEATURES[type(decoder)](graph, decoder, ids)  # (B, T, F)
    every = log_probs(graph, word_logits(graph, decoder.words, features))  # (B, T, V)
    chosen = graph.op("GatherElements", every, targets.unsqueeze(2), axis=2).squeeze(2)
    graph.add_output("log_probs", chosen, "B", "T")


def _recurrent(graph: Graph, part: RecurrentLM, ids: Value) -> Value:
    states = graph.run(part.words.table, ids).transpose(1, 0, 2)  # (T, B, E)
    for layer in range(part.net.num_layers):
        states, *_ = run_operator(graph, part.net, cell_of(part.net), [f"l{layer}"], states, [])
        states = states.squeeze(1)
        if part.norms:
            states = graph.run(part.norms[layer], states)
    features: Value = states.transpose(1, 0, 2)
    return features


def _feed_forward(graph: Graph, part: FeedForwardLM, ids: Value) -> Value:
    before = graph.constant([0, part.context - 1, 0, 0], INT)
    padded = graph.run(part.words.table, graph.op("Pad", ids, before))  # (B, C-1+T, E)
    steps = ids.size(1)
    x = graph.concat([padded.slice(1, i, steps + i) for i in range(part.context)], 2)
    hidden: Value = graph.run(part.activation, graph.run(part.hidden, x))
    return graph.concat([hidden, x], 2) if part.direct else hidden


def _gpt(graph: Graph, part: GPT, ids: Value) -> Value:
    positions = graph.embed(part.positions.table, graph.steps(ids))
    x: Value = graph.run(part.words.table, ids) + positions
    for block in part.layers:
        x = _block(graph, block, x)
    normed: Value = graph.run(part.norm, x)
    return normed


def _block(graph: Graph, block: TransformerDecoderBlock, x: Value) -> Value:
    y = graph.run(block.attention_norm, x) if block.norm_first else x
    context = graph.run(block.attention, y, causal=True)
    x = add_residual(graph, block, x, context, "attention_norm")
    y = graph.run(block.feed_norm, x) if block.norm_first else x
    inner = graph.run(block.activation, graph.run(block.feed_in, y))
    return add_residual(graph, block, x, graph.run(block.feed_out, inner), "feed_norm")


_FEATURES: dict[type, Callable[..., Any]] = {
    RecurrentLM: _recurrent,
    FeedForwardLM: _feed_forward,
    GPT: _gpt,
}
