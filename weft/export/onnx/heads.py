"""Nodes of the heads, up to the scores that decoding begins with."""

from weft.decode.heads.answer_span import AnswerSpanHead
from weft.decode.heads.biaffine import Biaffine
from weft.decode.heads.classify import LinearHead, LogisticHead, MLPHead, PassThroughHead
from weft.decode.heads.ctc.head import CTCHead
from weft.decode.heads.intent_slots import IntentSlotHead
from weft.decode.heads.parse import ConstituencyHead, DependencyHead, RecursiveHead
from weft.decode.heads.tag import CRFHead, TagHead
from weft.decode.heads.tree_nodes import TreeNodeHead
from weft.decode.heads.word_numbers import NumberHead
from weft.export.onnx.graph import Graph, Steps, Value, emits

Outputs = dict[str, tuple[Value, tuple[str | int, ...]]]  # by name: a value and its shape


@emits(LinearHead, LogisticHead)
def linear(graph: Graph, part: LinearHead, vector: Value) -> Outputs:
    return {"logits": (graph.run(part.score, vector), ("B", part.score.out_features))}


@emits(MLPHead)
def mlp(graph: Graph, part: MLPHead, vector: Value) -> Outputs:
    for layer in part.layers:
        vector = graph.run(part.activation, graph.run(layer, vector))
    return {"logits": (graph.run(part.score, vector), ("B", part.score.out_features))}


@emits(PassThroughHead)
def none(graph: Graph, part: PassThroughHead, vector: Value) -> Outputs:
    return {"logits": (vector, ("B", part.output_size))}


@emits(TagHead, CRFHead)
def tags(graph: Graph, part: TagHead, states: Steps) -> Outputs:
    return {
        f"logits_{k}": (graph.run(score, states.data), ("B", "T", "C"))
        for k, score in enumerate(part.score)
    }


@emits(CTCHead, TreeNodeHead)
def each_step(graph: Graph, part: CTCHead | TreeNodeHead, states: Steps) -> Outputs:
    return {"logits": (graph.run(part.score, states.data), ("B", "T", "C"))}


@emits(NumberHead)
def numbers(graph: Graph, part: NumberHead, states: Steps) -> Outputs:
    return {"numbers": (graph.run(part.score, states.data).squeeze(2), ("B", "T"))}


@emits(IntentSlotHead)
def intent_slots(graph: Graph, part: IntentSlotHead, states: Steps) -> Outputs:
    vector, _ = graph.run(part.pool, states)
    intents = graph.run(part.intent, vector)
    slots: Outputs = graph.run(part.slots, states)
    return {**slots, "intents": (intents, ("B", part.intent.out_features))}


@emits(AnswerSpanHead)
def answer_span(graph: Graph, part: AnswerSpanHead, states: Steps) -> Outputs:
    logits = [graph.run(part.start, states.data), graph.run(part.end, _last(graph, part, states))]
    inside = _inside_passage(graph, part, states)
    outputs: Outputs = {}
    for i, (name, each) in enumerate(zip(("starts", "ends"), logits, strict=True)):
        each = each.squeeze(2)  # (B, T)
        none = each.slice(1, 0, 1)
        if not part.no_answer:
            none = none * 0 + float("-inf")
        elif part.nothing is not None:
            none = none * 0 + float(part.nothing[i])
        masked = graph.where(inside, each, float("-inf"))
        outputs[name] = (graph.concat([none, masked], 1), ("B", "T+1"))
    return outputs


def _last(graph: Graph, part: AnswerSpanHead, states: Steps) -> Value:
    """Return the features of the end logits: the states, or with those of its BiLSTM."""
    if part.reader is None:
        return states.data
    width = part.start.in_features
    before = states.data.slice(2, 0, width - part.modelled)
    modelled = states.data.slice(2, width - part.modelled, width)
    read = graph.run(part.reader, states.with_data(modelled))
    return graph.concat([before, read.data], 2)


def _inside_passage(graph: Graph, part: AnswerSpanHead, states: Steps) -> Value:
    """Return the mask (B, T) of passage steps, without question and special tokens."""
    steps = graph.steps(states.data)
    inside = steps < (states.lengths - part.trailing).unsqueeze(1)
    if states.second is not None:
        return inside & (steps >= (states.second + part.leading).unsqueeze(1))
    return inside & (steps >= part.leading)


@emits(DependencyHead)
def dependencies(graph: Graph, part: DependencyHead, states: Steps) -> Outputs:
    scorer, words = part.arcs, states.data  # (B, T, H)
    root = graph.weight(scorer.root).expand(words.size(0), 1, len(scorer.root))
    heads = graph.concat([root, words], 1)  # (B, S, H)
    arcs = _all_pairs(
        graph, scorer.arc, graph.run(scorer.arc_word, words), graph.run(scorer.arc_head, heads)
    )
    # A head is the root, or a real word other than the dependent.
    number = graph.range(heads.size(1))  # (S,)
    itself = (graph.steps(words) + 1).unsqueeze(1).equals(number)  # (T, S)
    allowed = (number <= states.lengths.reshape(-1, 1, 1)) & ~itself
    outputs: Outputs = {
        "arcs": (graph.where(allowed, arcs, float("-inf")), ("B", "T", "S")),
        "label_heads": (graph.run(scorer.label_head, heads), ("B", "S", "R")),
        "label_words": (graph.run(scorer.label_word, words), ("B", "T", "R")),
    }
    return outputs | ({} if part.tags is None else graph.run(part.tags, states))


def _all_pairs(graph: Graph, part: Biaffine, x: Value, y: Value) -> Value:
    """Return the scores (B, T, S) of every x with every y, for a single output."""
    matrix = part.weight[0, :-1] if part.bias_x else part.weight[0]  # (X, Y)
    projected = graph.linear(x, matrix.T.contiguous())
    if part.bias_x:
        projected = projected + graph.weight(part.weight[0, -1].clone())
    return projected @ y.transpose(0, 2, 1)


@emits(ConstituencyHead)
def constituents(graph: Graph, part: ConstituencyHead, states: Steps) -> Outputs:
    scorer, data = part.brackets, states.data  # (B, T, H)
    width, rows = scorer.ahead, data.size(0)
    before = graph.weight(scorer.before).expand(rows, 1, width)
    after = graph.weight(scorer.after)
    back = graph.where(
        states.mask.unsqueeze(2), data.slice(2, width, width + len(scorer.after)), after
    )
    left = graph.concat([before, data.slice(2, 0, width)], 1)
    right = graph.concat([back, after.expand(rows, 1, len(scorer.after))], 1)
    gaps = graph.concat([left, right], 2)  # (B, T+1, H)
    tags: Outputs = graph.run(part.tags, states)
    return {"gaps": (graph.run(scorer.first, gaps), ("B", "T+1", "M")), **tags}


@emits(RecursiveHead)
def merged_leaves(graph: Graph, part: RecursiveHead, states: Steps) -> Outputs:
    merger, words = part.merger, states.with_data(states.data).data
    leaves = (words if merger.project is None else graph.run(merger.project, words)).tanh()
    tags: Outputs = graph.run(part.tags, states)
    return {"leaves": (leaves, ("B", "T", "H")), **tags}
