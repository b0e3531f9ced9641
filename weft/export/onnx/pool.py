"""Nodes of the pools: states (B, T, H) -> vectors (B, H), and the weights (B, T) of steps."""

from weft.encode.pool import (
    AttentionPool,
    CLSPool,
    FirstPool,
    LastAttentionPool,
    LastPool,
    MaxPool,
    MeanMaxPool,
    MeanPool,
    NoPool,
    SumPool,
)
from weft.export.onnx.attend import attend
from weft.export.onnx.graph import FLOAT, MASKED, Graph, Steps, Value, emits

Pooled = tuple[Value, Value | None]
SMALLEST_NORM = 1e-12  # of a vector that is divided by its norm


@emits(NoPool)
def none(graph: Graph, part: NoPool, x: Steps) -> tuple[Steps, None]:
    return x, None


@emits(MeanPool)
def mean(graph: Graph, part: MeanPool, x: Steps) -> Pooled:
    return _maybe_normalise(graph, _mean(x), part.normalise), None


@emits(SumPool)
def total(graph: Graph, part: SumPool, x: Steps) -> Pooled:
    return x.with_data(x.data).data.sum(1), None


@emits(MaxPool)
def largest(graph: Graph, part: MaxPool, x: Steps) -> Pooled:
    return _maybe_normalise(graph, _max(graph, x), part.normalise), None


@emits(MeanMaxPool)
def mean_max(graph: Graph, part: MeanMaxPool, x: Steps) -> Pooled:
    return graph.concat([_mean(x), _max(graph, x)], 1), None


@emits(FirstPool)
def first(graph: Graph, part: FirstPool, x: Steps) -> Pooled:
    return _maybe_normalise(graph, _first(x), part.normalise), None


@emits(CLSPool)
def cls(graph: Graph, part: CLSPool, x: Steps) -> Pooled:
    return graph.run(part.activation, graph.run(part.dense, _first(x))), None


@emits(LastPool)
def last(graph: Graph, part: LastPool, x: Steps) -> Pooled:
    end = _last(graph, x)
    if part.directions == 1:
        return end, None
    half = part.output_size // 2
    return graph.concat([end.slice(1, 0, half), _first(x).slice(1, half, 2 * half)], 1), None


@emits(AttentionPool)
def attention(graph: Graph, part: AttentionPool, x: Steps) -> Pooled:
    query = graph.weight(part.query).expand(x.data.size(0), 1, part.output_size)
    summary, weights = attend(graph, query, x, part.score)
    return summary.squeeze(1), weights.squeeze(1)


@emits(LastAttentionPool)
def last_attention(graph: Graph, part: LastAttentionPool, x: Steps) -> Pooled:
    queries = graph.run(part.query, x.data).tanh()  # (B, T, Q)
    end = _last(graph, Steps(queries, x.lengths)).unsqueeze(1)  # (B, 1, Q)
    scores = graph.run(part.score, queries, end).squeeze(2)  # (B, T)
    weights = (scores + x.bias.squeeze(1)).softmax()
    return (weights.unsqueeze(1) @ x.data).squeeze(1), weights


def _maybe_normalise(graph: Graph, vector: Value, normalise: bool) -> Value:
    if not normalise:
        return vector
    norm = graph.op("Sqrt", (vector * vector).sum(1, keepdims=True))
    return vector / norm.clamp_min(SMALLEST_NORM)


def _mean(x: Steps) -> Value:
    return x.with_data(x.data).data.sum(1) / x.lengths.to(FLOAT).unsqueeze(1)


def _max(graph: Graph, x: Steps) -> Value:
    return graph.where(x.mask.unsqueeze(2), x.data, MASKED).max(1)


def _first(x: Steps) -> Value:
    return x.data.gather(x.graph.constant(0, x.lengths.dtype), axis=1)


def _last(graph: Graph, x: Steps) -> Value:
    """Return the last real step (B, H) of each row."""
    return graph.op("GatherND", x.data, (x.lengths - 1).unsqueeze(1), batch_dims=1)
