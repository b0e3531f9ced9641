"""The graph of a model: its compositions, from the inputs of the runtime to the scores of the head.

B rows   T steps   H hidden width   D distinct words   W sub-tokens   N windows   S their steps
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weft.decode.decoders.pointer_generator import PointerGenerator
from weft.embed.characters import CharacterEmbedder
from weft.embed.elmo import Elmo
from weft.embed.ngrams import Ngrams
from weft.errors import UserError
from weft.export.onnx.decoders.copying import known_ids, start_copying, step_copying
from weft.export.onnx.decoders.generation import (
    NEXT,
    STATE,
    DecoderGraphState,
    start_decoder,
    step_decoder,
)
from weft.export.onnx.graph import FLOAT, INT, Graph, Steps, Value, emits
from weft.export.onnx.heads import Outputs
from weft.export.onnx.inputs import SpelledWords, SubwordSteps
from weft.model import (
    BiEncoderModel,
    EncoderDecoderModel,
    JointPairModel,
    Model,
    TextModel,
)
from weft.protocols import Decoder, Embedder

SECOND = "_2"  # ending of the inputs of the second text


@emits(TextModel)
def text_model(graph: Graph, model: TextModel) -> None:
    steps = _declare_steps(graph, model)
    states = graph.run(model.encoder, embed(graph, model, steps))
    _finish(graph, model, states)


@emits(JointPairModel)
def joint_pair_model(graph: Graph, model: JointPairModel) -> None:
    steps = replace(_declare_steps(graph, model), second=graph.add_input("second", INT, "B"))
    embedded = graph.run(model.pair, embed(graph, model, steps))
    states = graph.run(model.encoder, embedded)
    _finish(graph, model, replace(states, second=steps.second))


@emits(BiEncoderModel)
def bi_encoder_model(graph: Graph, model: BiEncoderModel) -> None:
    sides = []
    for side in ("", SECOND):
        embedded = embed(graph, model, _declare_steps(graph, model, side), side)
        sides.append(graph.run(model.encoder, embedded))
    if model.join is None:
        _finish(graph, model, graph.run(model.pair, *sides))
        return
    vectors = [graph.run(model.pool, x)[0] for x in graph.run(model.pair, *sides)]  # (B, H)
    if model.pair.has_text_vectors:
        graph.add_output("text_vector", vectors[0], "B", model.pool.output_size)
    vector = graph.run(model.join, *vectors)
    graph.add_output("vector", vector, "B", model.join.output_size)
    _write_outputs(graph, graph.run(model.head, vector))


@emits(EncoderDecoderModel)
def encoder_decoder_model(graph: Graph, model: EncoderDecoderModel) -> None:
    steps = _declare_steps(graph, model)
    decoder, source = model.head.decoder, steps.data
    if isinstance(decoder, PointerGenerator):
        known = known_ids(graph, source, decoder.words.size)
        states = graph.run(model.encoder, embed(graph, model, replace(steps, data=known)))
        started = start_copying(graph, decoder, states, source)
    else:
        states = graph.run(model.encoder, embed(graph, model, steps))
        started = start_decoder(graph, decoder, states)
    for name, value in (*started.dynamic.items(), *started.static.items()):
        graph.add_output(STATE + name, value, "B", *_other_sizes(name))


def write_step(graph: Graph, decoder: Decoder, first: Graph) -> tuple[list[str], list[str]]:
    """Write a step of a decoder whose first state another graph gives.

    Return the names of the dynamic and of the static values of its state.
    """
    names = [name.removeprefix(STATE) for name in first.outputs]
    values = {
        name: graph.add_input(STATE + name, first.outputs[STATE + name][0].dtype, "B",
                              *_other_sizes(name))
        for name in names
    }  # fmt: skip
    ids = graph.add_input("ids", INT, "B")
    state = DecoderGraphState(values)
    if isinstance(decoder, PointerGenerator):
        logits, following = step_copying(graph, decoder, ids, state)
    else:
        logits, following = step_decoder(graph, decoder, ids, state)
    graph.add_output("logits", logits, "B", "V")
    for name, value in following.items():
        graph.add_output(NEXT + name, value, "B", *_other_sizes(name))
    return list(following), [name for name in names if name not in following]


def _other_sizes(name: str) -> tuple[str, ...]:
    """Return names for the sizes of a value of a state, after its rows."""
    axes = {"lengths": 1, "position": 1, "vector": 2, "fed": 2, "covered": 2, "source": 2}
    axes |= {"hidden": 3, "cell": 3, "memory": 3, "keys": 3}
    of_layer = 3 if name.startswith(("past", "compared")) else 4
    count = axes.get(name, of_layer)
    return tuple(f"{name}_{i}" for i in range(1, count))


def embed(graph: Graph, model: Model, steps: Steps, side: str = "") -> Steps:
    """Return the vectors (B, T, E) of all embedders side by side."""
    inputs = embedder_inputs(graph, model, steps, side)
    vectors = [graph.run(part, x) for part, x in zip(model.embedder_parts, inputs, strict=True)]
    embedded: Steps = vectors[0].with_data(graph.concat([x.data for x in vectors], 2))
    return embedded


def embedder_inputs(graph: Graph, model: Model, steps: Steps, side: str) -> Iterator[Any]:
    """Yield what each embedder reads."""
    kind = 0
    for part in model.embedder_parts:
        if part.reads_subtokens:
            spelled = graph.add_input(
                f"spelled_{kind}{side}", INT, f"D{kind}{side}", f"W{kind}{side}"
            )
            index = graph.add_input(f"spelling_{kind}{side}", INT, "B", f"T{side}")
            yield SpelledWords(spelled, index, steps)
            kind += 1
        elif model.traits.subwords and part.subwords:
            ids = graph.add_input("steps", INT, "N", "S")
            lengths = graph.add_input("step_lengths", INT, "N")
            index = graph.add_input("word_steps", INT, "B", "T", "P")
            yield SubwordSteps(Steps(ids, lengths), index, steps)
        else:
            yield steps


def _declare_steps(graph: Graph, model: Model, side: str = "") -> Steps:
    """Declare the ids or vectors of rows, and their lengths."""
    lengths = graph.add_input(f"lengths{side}", INT, "B")
    if width := model.traits.features:
        return Steps(graph.add_input("vectors", FLOAT, "B", "T", width), lengths)
    # Also where nothing reads the ids: the steps of the mask are counted on them.
    return Steps(graph.add_input(f"ids{side}", INT, "B", f"T{side}"), lengths)


def _finish(graph: Graph, model: Any, states: Steps) -> None:
    """Pool the states, and write the outputs of the head."""
    graph.add_output("states", states.data, "B", "T'", "H")
    vector, weights = graph.run(model.pool, states)
    if isinstance(vector, Value):
        graph.add_output("vector", vector, "B", model.pool.output_size)
    if weights is not None:
        graph.add_output("weights", weights, "B", "T'")
    _write_outputs(graph, graph.run(model.head, vector))


def _write_outputs(graph: Graph, outputs: Outputs) -> None:
    for name, (value, shape) in outputs.items():
        graph.add_output(name, value, *shape)


def spelling_of(part: Embedder) -> dict[str, object]:
    """Return how an embedder spells words, as the metadata of an export has it."""
    if isinstance(part, Ngrams):
        return {
            "kind": "ngrams", "min_n": part.shortest, "max_n": part.longest,
            "buckets": part.buckets,
        }  # fmt: skip
    if isinstance(part, (CharacterEmbedder, Elmo)):
        return {"kind": "bytes", "max_bytes": part.max_bytes}
    raise UserError(
        f"The embedder {type(part).__name__} spells words in a way that no export knows. Use "
        "another embedder."
    )
