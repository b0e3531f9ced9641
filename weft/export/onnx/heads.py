"""Nodes of the heads, up to the scores that decoding begins with."""

from weft.decode.heads.answer_span import AnswerSpanHead
from weft.decode.heads.classify import LinearHead, LogisticHead, MLPHead, PassThroughHead
from weft.decode.heads.intent_slots import IntentSlotHead
from weft.decode.heads.tag import CRFHead, TagHead
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
