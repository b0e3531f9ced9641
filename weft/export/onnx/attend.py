"""Nodes of attention: scores of queries and steps, soft alignment, heads, Transformer blocks.

B rows   T query steps   S key steps   E width   N heads   K width per head
"""

import math

from torch import Tensor

from weft.attend.head_scores import HeadAdditive
from weft.attend.multihead import MultiHeadAttention
from weft.attend.scores import Additive, Bilinear, Dot, Scaled, Trilinear
from weft.attend.settings import DEFAULT_WINDOW, MaskPattern
from weft.attend.transformer_block import FinalNorm, TransformerBlock
from weft.export.onnx.graph import MASKED, Graph, Steps, Value, emits
from weft.export.onnx.layers import layer_norm

Score = Additive | Dot | Scaled | Bilinear | Trilinear

emits(FinalNorm)(layer_norm)


@emits(Additive, Dot, Scaled, Bilinear, Trilinear)
def score(graph: Graph, part: Score, query: Value, memory: Value) -> Value:
    """Score queries (B, T, E) against steps (B, S, M), as (B, T, S)."""
    return compare_keys(graph, part, query, prepare_keys(graph, part, memory))


def prepare_keys(graph: Graph, part: Score, memory: Value) -> Value:
    """Return what a score needs of the steps, whatever the queries are."""
    keys: Value
    if isinstance(part, Bilinear):
        return graph.linear(memory, part.weight.T.contiguous())
    keys = graph.run(part.memory if isinstance(part, Additive) else part.project, memory)
    return keys


def compare_keys(
    graph: Graph, part: Score, query: Value, keys: Value, covered: Value | None = None
) -> Value:
    """Score queries against prepared steps; `covered` (B, S) is the attention they have had."""
    if isinstance(part, Additive):
        if part.cover is not None and covered is not None:
            keys = keys + graph.run(part.cover, covered.unsqueeze(2))
        pairs = graph.run(part.query, query).unsqueeze(2) + keys.unsqueeze(1)  # (B, T, S, H)
        scores: Value = graph.run(part.weigh, pairs.tanh()).squeeze(3)
        return scores
    turned = keys.transpose(0, 2, 1)
    if isinstance(part, Trilinear):
        terms = graph.run(part.query, query) + graph.run(part.memory, keys).transpose(0, 2, 1)
        scores = (query * graph.weight(part.both)) @ turned + terms
        return scores
    return (query * part.scale if isinstance(part, Scaled) else query) @ turned


def attend(graph: Graph, query: Value, memory: Steps, score: object) -> tuple[Value, Value]:
    """Return the weighted average of the memory for each query, and the weights (B, T, S)."""
    weights = (graph.run(score, query, memory.data) + memory.bias).softmax()
    return weights @ memory.data, weights


def soft_align(first: Steps, second: Steps, scores: Value) -> tuple[Value, Value]:
    """Average each text at the steps of the other, weighted by scores (B, T, S)."""
    to_second = (scores + second.bias).softmax()  # (B, T, S)
    to_first = (scores.transpose(0, 2, 1) + first.bias).softmax()  # (B, S, T)
    return to_second @ second.data, to_first @ first.data


@emits(MultiHeadAttention)
def multihead(
    graph: Graph,
    part: MultiHeadAttention,
    x: Value,
    bias: Value | None = None,
    causal: bool = False,
) -> Value:
    q, k, v = (
        split_heads(part, graph.linear(x, weight, None) + graph.weight(offset))
        for weight, offset in projections(graph, part)
    )
    return attend_heads(graph, part, q, k, v, bias, causal)


def projections(graph: Graph, part: MultiHeadAttention) -> list[tuple[Tensor, Tensor]]:
    """Return weight and bias of queries, keys and values, with the maps of the score merged in."""
    found: list[tuple[Tensor, Tensor]] = graph.cache(("projections", id(part)), part.projections)
    return found


def split_heads(part: MultiHeadAttention, x: Value) -> Value:
    """(B, T, H) -> (B, N, T, K)."""
    return x.reshape(0, 0, part.heads, -1).transpose(0, 2, 1, 3)


def attend_heads(
    graph: Graph,
    part: MultiHeadAttention,
    q: Value,
    k: Value,
    v: Value,
    bias: Value | None = None,
    causal: bool = False,
) -> Value:
    """Attend with queries (B, N, T, K) to keys and values (B, N, S, K); `bias` is (B, 1, S)."""
    if isinstance(part.score, HeadAdditive):
        pairs = q.unsqueeze(3) + k.unsqueeze(2)  # (B, N, T, S, K)
        weigh = graph.weight(part.score.weigh.detach()[:, None].contiguous())  # (N, 1, K, 1)
        scores = (pairs.tanh() @ weigh).squeeze(4)
    else:
        scores = (
            q * (1 / math.sqrt(part.query.out_features // part.heads)) @ k.transpose(0, 1, 3, 2)
        )
    if bias is not None:
        scores = scores + bias.unsqueeze(1)
    allowed = _allowed(graph, part.pattern, q, k, causal)
    if allowed is not None:
        scores = graph.where(allowed, scores, MASKED)
    weights = scores.softmax()
    if allowed is not None and part.pattern.mask in ("no-diagonal", "local"):
        if bias is not None:
            allowed = allowed & (bias.unsqueeze(1) >= 0)
        weights = graph.where(allowed, weights, 0)  # of a query that may attend to nothing
    context = (weights @ v).transpose(0, 2, 1, 3).reshape(0, 0, -1)  # (B, T, N*K)
    attended: Value = graph.run(part.output, context)
    return attended


def _allowed(graph: Graph, pattern: MaskPattern, q: Value, k: Value, causal: bool) -> Value | None:
    """Return (T, S) True where a query may attend to a key; None if it may to all."""
    causal = causal or pattern.mask == "causal"
    if pattern.mask == "full" and not causal:
        return None

    def write() -> Value:
        keys, queries = k.size(2), q.size(2)
        # The last query stands at the last key.
        steps = graph.range(queries) + (keys - queries)
        offsets = steps.unsqueeze(1) - graph.range(keys)  # (T, S) from the key to the query
        allowed = offsets >= 0 if causal else offsets >= -(2**31)
        if pattern.mask == "no-diagonal":
            allowed = allowed & ~offsets.equals(0)
        if pattern.mask == "local":
            window = DEFAULT_WINDOW if pattern.window is None else pattern.window
            allowed = allowed & (offsets.abs() <= window)
        return allowed

    return write()


@emits(TransformerBlock)
def transformer_block(
    graph: Graph,
    part: TransformerBlock,
    x: Value,
    bias: Value | None = None,
    causal: bool = False,
) -> Value:
    def feed_forward(states: Value) -> Value:
        inner = graph.run(part.activation, graph.run(part.feed_in, states))
        out: Value = graph.run(part.feed_out, inner)
        return out

    if part.norm_first:
        x = x + graph.run(part.attention, graph.run(part.attention_norm, x), bias, causal)
        return x + feed_forward(graph.run(part.feed_norm, x))
    x = graph.run(part.attention_norm, x + graph.run(part.attention, x, bias, causal))
    normed: Value = graph.run(part.feed_norm, x + feed_forward(x))
    return normed
