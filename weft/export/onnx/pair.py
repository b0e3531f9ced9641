"""Nodes of the pairs: how two texts meet.

B rows   T steps of a text   S steps of the other   E width of a step   H hidden width
"""

from weft.encode.pair.bi_encoder import (
    BiEncoder,
    BilinearForm,
    BilinearTowers,
    Concat,
    ConcatTowers,
    CosineSimilarity,
    CosineTowers,
    DotProduct,
    DotTowers,
    JointEncoder,
    PairFeatures,
)
from weft.encode.pair.bidaf import BiDAF
from weft.encode.pair.decomposable import Decomposable
from weft.encode.pair.esim import ESIM
from weft.export.onnx.attend import soft_align
from weft.export.onnx.graph import FLOAT, MASKED, Graph, Steps, Value, emits

SMALLEST_PRODUCT = 1e-8  # of two norms, in a cosine


@emits(JointEncoder)
def joint(graph: Graph, part: JointEncoder, x: Steps) -> Steps:
    if part.mark is None:
        return x
    assert x.second is not None
    second = (graph.steps(x.data) >= x.second.unsqueeze(1)).to(FLOAT).unsqueeze(2)  # (B, T, 1)
    return x.with_data(x.data + second * graph.weight(part.mark))


@emits(BiEncoder, ConcatTowers, DotTowers, BilinearTowers, CosineTowers)
def towers(graph: Graph, part: BiEncoder, first: Steps, second: Steps) -> tuple[Steps, Steps]:
    return first, second


@emits(PairFeatures)
def pair_features(graph: Graph, part: PairFeatures, x: Value, y: Value) -> Value:
    return graph.concat([x, y, (x - y).abs(), x * y], 1)


@emits(Concat)
def concat(graph: Graph, part: Concat, x: Value, y: Value) -> Value:
    return graph.concat([x, y], 1)


@emits(DotProduct)
def dot(graph: Graph, part: DotProduct, x: Value, y: Value) -> Value:
    return (x * y).sum(1, keepdims=True)


@emits(BilinearForm)
def bilinear(graph: Graph, part: BilinearForm, x: Value, y: Value) -> Value:
    return (x @ graph.weight(part.weight) * y).sum(1, keepdims=True)


@emits(CosineSimilarity)
def cosine(graph: Graph, part: CosineSimilarity, x: Value, y: Value) -> Value:
    squares = (x * x).sum(1, keepdims=True) * (y * y).sum(1, keepdims=True)
    norms = graph.op("Sqrt", squares).clamp_min(SMALLEST_PRODUCT)
    return (x * y).sum(1, keepdims=True) / norms


@emits(ESIM)
def esim(graph: Graph, part: ESIM, first: Steps, second: Steps) -> tuple[Steps, Steps]:
    scores = graph.run(part.score, first.data, second.data)  # (B, T, S)
    of_second, of_first = soft_align(first, second, scores)

    def compose(x: Steps, other: Value) -> Steps:
        states = x.data
        enhanced = graph.concat([states, other, states - other, states * other], 2)
        local = graph.run(part.project, enhanced).relu()  # (B, T, H)
        composed: Steps = graph.run(part.compose, x.with_data(local))
        return composed

    return compose(first, of_second), compose(second, of_first)


@emits(Decomposable)
def decomposable(
    graph: Graph, part: Decomposable, first: Steps, second: Steps
) -> tuple[Steps, Steps]:
    first, second = (_self_align(graph, part, _with_null(graph, part, x)) for x in (first, second))
    seen = (graph.run(part.attend, x.data) for x in (first, second))
    beta, alpha = soft_align(first, second, graph.run(part.score, *seen))

    def compare(x: Steps, other: Value) -> Steps:
        return x.with_data(graph.run(part.compare, graph.concat([x.data, other], 2)))

    return compare(first, beta), compare(second, alpha)


def _with_null(graph: Graph, part: Decomposable, x: Steps) -> Steps:
    """Put the null word in front of each text."""
    if part.null is None:
        return x
    null = graph.weight(part.null).expand(x.data.size(0), 1, len(part.null))
    return Steps(graph.concat([null, x.data], 1), x.lengths + 1)


def _self_align(graph: Graph, part: Decomposable, x: Steps) -> Steps:
    """Each step beside the average of its own text, as it looks from there."""
    if part.within is None:
        return x
    seen = graph.run(part.within, x.data)  # (B, T, H)
    steps = graph.steps(x.data)
    distance = steps.unsqueeze(1) - steps  # (T, T)
    far = distance.abs() > part.distances
    index = graph.where(far, 2 * part.distances + 1, distance + part.distances)
    scores = graph.run(part.within_score, seen, seen) + graph.weight(part.bias).gather(index)
    context = (scores + x.bias).softmax() @ x.data  # (B, T, E)
    return x.with_data(graph.concat([x.data, context], 2))


@emits(BiDAF)
def bidaf(graph: Graph, part: BiDAF, question: Steps, passage: Steps) -> Steps:
    u, h = graph.run(part.context, question), graph.run(part.context, passage)
    scores = graph.run(part.score, h.data, u.data)  # (B, T, S)
    attended = (scores + u.bias).softmax() @ u.data  # (B, T, 2*H)
    nearest = graph.where(u.mask.unsqueeze(1), scores, MASKED).max(2)  # (B, T)
    to_passage = (nearest + h.bias.squeeze(1)).softmax()
    query_aware = to_passage.unsqueeze(1) @ h.data  # (B, 1, 2*H)
    g = graph.concat([h.data, attended, h.data * attended, h.data * query_aware], 2)
    modelled = graph.run(part.model, h.with_data(g))
    states: Steps = h.with_data(graph.concat([g, modelled.data], 2))
    return states
