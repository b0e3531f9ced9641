"""Nodes of the embedders: ids, or the spelling of words -> vectors (B, T, E).

D distinct words   W sub-tokens of a word   F filters   O orders of word n-grams   P steps of a word
"""

from torch import nn

from weft.embed.bert import Bert
from weft.embed.birnn import BiRNN
from weft.embed.characters import CharacterCNN, CharacterLSTM
from weft.embed.features import FeatureEmbedder
from weft.embed.gpt import Gpt
from weft.embed.log_mel import LogMelEmbedder
from weft.embed.lookup import Lookup
from weft.embed.ngrams import MODULUS, ROLLING_FACTOR, SCRAMBLE_FACTOR, Ngrams, WordNgrams
from weft.export.onnx.graph import FLOAT, INT, INT32, Graph, Steps, Value, emits, reverse_steps
from weft.export.onnx.inputs import SpelledWords, SubwordSteps
from weft.export.onnx.recurrent import lstm_weights

SpellingEmbedder = CharacterCNN | CharacterLSTM | Ngrams


@emits(Lookup)
def lookup(graph: Graph, part: Lookup, ids: Steps) -> Steps:
    vectors = graph.embed(part.table.weight, ids.data)  # (B, T, E)
    return ids.with_data(vectors * part.factor if part.factor != 1 else vectors)


@emits(CharacterCNN, CharacterLSTM, Ngrams)
def spelled_words(graph: Graph, part: SpellingEmbedder, words: SpelledWords) -> Steps:
    """Embed distinct words, and put their vectors where the words are."""
    return words.steps.with_data(spelled_vectors(graph, part, words.spelled).gather(words.index))


def spelled_vectors(graph: Graph, part: SpellingEmbedder, spelled: Value) -> Value:
    """Return the vectors (D, E) of distinct words (D, W)."""
    if isinstance(part, CharacterCNN):
        return _character_cnn(graph, part, spelled)
    if isinstance(part, CharacterLSTM):
        return _character_lstm(graph, part, spelled)
    return _bag(graph, part.table, spelled)


def _character_cnn(graph: Graph, part: CharacterCNN, spelled: Value) -> Value:
    lengths = _count(graph, spelled)  # (D,)
    ends = graph.constant([0, 0, 0, part.widest - 1], INT)
    letters = graph.embed(part.table.weight, graph.op("Pad", spelled, ends)).transpose(0, 2, 1)
    strongest = []
    for conv in part.convolutions:
        assert isinstance(conv, nn.Conv1d)
        responses = graph.run(conv, letters)  # (D, F, W')
        # A window must lie inside the word; a shorter word has one.
        inside = (lengths - (conv.kernel_size[0] - 1)).clamp_min(1).unsqueeze(1)
        valid = (graph.range(responses.size(2)) < inside).unsqueeze(1)
        strongest.append(graph.where(valid, responses, float("-inf")).max(2))  # (D, F)
    features = graph.run(part.activation, graph.concat(strongest, 1))
    vectors: Value = graph.run(part.project, graph.run(part.highway, features))
    return vectors


def _character_lstm(graph: Graph, part: CharacterLSTM, spelled: Value) -> Value:
    lengths = _count(graph, spelled).clamp_min(1).to(INT32)
    letters = graph.embed(part.table.weight, spelled).transpose(1, 0, 2)  # (W, D, C)
    sides = [
        [getattr(net, name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
                                         "bias_hh_l0")]
        for net in (part.forwards, part.backwards)
    ]  # fmt: skip
    _, last = graph.ops(
        "LSTM", letters, *lstm_weights(graph, sides), lengths,
        outputs=2, hidden_size=part.forwards.hidden_size, direction="bidirectional",
    )  # fmt: skip
    ends = last.transpose(1, 0, 2).reshape(0, -1)  # (D, 2*H)
    vectors: Value = graph.run(part.project, ends)
    return vectors


def _count(graph: Graph, spelled: Value) -> Value:
    """Return how many sub-tokens (D,) each word has."""
    return (spelled > 0).to(INT).sum(1)


def _bag(graph: Graph, table: nn.EmbeddingBag, ids: Value) -> Value:
    """Return the sum or mean of the rows (…, W) of a table; id 0 is none."""
    real = (ids > 0).to(FLOAT).unsqueeze(-1)  # (…, W, 1)
    total = (graph.embed(table.weight, ids) * real).sum(-2)
    return total / real.sum(-2).clamp_min(1) if table.mode == "mean" else total


@emits(WordNgrams)
def word_ngrams(graph: Graph, part: WordNgrams, ids: Steps) -> Steps:
    vectors = graph.embed(part.table.weight, ids.data)  # (B, T, E)
    if part.ngrams is not None:
        hashed = hash_ngrams(graph, ids.data, part.order, part.buckets)  # (B, T, O)
        vectors = vectors + _bag(graph, part.ngrams, hashed)
    return ids.with_data(vectors)


def hash_ngrams(graph: Graph, ids: Value, order: int, buckets: int) -> Value:
    """Return the buckets of the 2- to `order`-grams that end at each step, 0 where none ends."""
    spread = _scramble(ids + 1)  # (B, T)
    value, hashed = spread, []
    for back in range(1, order):
        start = graph.constant([0, back, 0, -back], INT)
        earlier = graph.op("Pad", spread, start)  # (B, T)
        value = (value * ROLLING_FACTOR + earlier) % MODULUS
        complete = (graph.steps(ids) >= back) & (ids > 0)
        hashed.append(graph.where(complete, _scramble(value) % buckets + 1, 0).unsqueeze(2))
    return graph.concat(hashed, 2)


def _scramble(value: Value) -> Value:
    """Scramble positive numbers; a shift to the right is a division."""
    value = (value ^ (value / 2**16)) * SCRAMBLE_FACTOR % MODULUS
    return value ^ (value / 2**15)


@emits(FeatureEmbedder, LogMelEmbedder)
def features(graph: Graph, part: FeatureEmbedder, x: Steps) -> Steps:
    vectors = graph.run(part.enter, graph.run(part.norm, x.data))  # (B, T, E)
    return x.with_data(graph.run(part.positions, vectors))


@emits(BiRNN)
def birnn(graph: Graph, part: BiRNN, ids: Steps) -> Steps:
    words = ids.with_data(graph.embed(part.table.weight, ids.data))  # (B, T, E)
    first, *rest = part.nets
    ahead: Steps = graph.run(first, words)
    if not rest:
        return ahead
    back: Steps = graph.run(rest[0], reverse_steps(words))
    return words.with_data(graph.concat([ahead.data, reverse_steps(back).data], 2))


@emits(Bert)
def bert(graph: Graph, part: Bert, x: Steps | SubwordSteps) -> Steps:
    return _pool_words(graph, part, x, _bert_layers(graph, part, step_ids(x)))


@emits(Gpt)
def gpt(graph: Graph, part: Gpt, x: Steps | SubwordSteps) -> Steps:
    return _pool_words(graph, part, x, _gpt_layers(graph, part, step_ids(x)))


def step_ids(x: Steps | SubwordSteps) -> Steps:
    """Return the ids that a Transformer reads: of words, their sub-tokens in the frame."""
    return x if isinstance(x, Steps) else x.steps


def _pool_words(
    graph: Graph, part: Bert | Gpt, x: Steps | SubwordSteps, layers: list[Value]
) -> Steps:
    """Return the mixed or last states of tokens, or of words that several sub-tokens make up."""
    states: Value = layers[-1] if part.mix is None else graph.run(part.mix, layers)  # (B, S, H)
    if isinstance(x, Steps):
        return x.with_data(states)
    flat = states.reshape(-1, part.output_size)  # (N*S, H)
    real = (x.index >= 0).to(FLOAT).unsqueeze(3)  # (B, T, P, 1)
    pooled = (flat.gather(x.index.clamp_min(0)) * real).sum(2)  # (B, T, H)
    return x.words.with_data(pooled / real.sum(2).clamp_min(1))


def _bert_layers(graph: Graph, part: Bert, x: Steps) -> list[Value]:
    """Return the states after the embedding and after each block."""
    positions = graph.steps(x.data) + part.position_offset
    total = graph.embed(part.table.weight, x.data) + graph.embed(part.positions.weight, positions)
    if part.segments is not None:
        table = graph.weight(part.segments.weight)
        second = graph.constant(0, INT)
        if x.second is not None and len(part.segments.weight) > 1:
            second = (graph.steps(x.data) >= x.second.unsqueeze(1)).to(INT)  # (B, T)
        total = total + table.gather(second)
    states = [graph.run(part.enter, graph.run(part.norm, total))]
    for block in part.blocks:
        states.append(graph.run(block, states[-1], x.bias))
    return states


def _gpt_layers(graph: Graph, part: Gpt, x: Steps) -> list[Value]:
    """Return the states after the embedding and after each block, the last one normed."""
    positions = graph.embed(part.positions.weight, graph.steps(x.data))
    states = [graph.embed(part.table.weight, x.data) + positions]
    for block in part.blocks:
        states.append(graph.run(block, states[-1], causal=True))
    return [*states[:-1], graph.run(part.norm, states[-1])]
