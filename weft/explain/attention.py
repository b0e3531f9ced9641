"""Attention weights: those of the pool, and of every head of every layer.

B rows   T steps   H hidden width   N heads   L layers
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.batch.indexer import Row
from weft.config import section_kinds
from weft.embed.contextual import Contextual, TransformerEmbedder
from weft.encode.stack import encoder_members, member_inputs
from weft.errors import UserError
from weft.explain.words import TokenWeight, token_offsets
from weft.model import EncoderModel, JointPairModel, Model
from weft.notebook import HtmlRepr
from weft.predict.fill_mask import display_word
from weft.predict.fill_mask import masked_rows as with_blanks
from weft.predict.neural import NeuralEngine
from weft.predict.output import EngineInput
from weft.predict.predictor import Input, Predictor
from weft.text.example import Example

TEXT_NAMES = ("first", "second")


@dataclass(frozen=True, repr=False)
class AttentionMaps(HtmlRepr):
    """The attention maps of every head and layer of one network, for one text or a pair."""

    name: str  # the kind of the network
    tokens: tuple[str, ...]  # (T,) as they stand in the text, and what stands around it
    weights: np.ndarray  # (L, N, T, T) rows look at columns, each row sums to 1
    second: int = 0  # the step where the second of two texts begins

    def __repr__(self) -> str:
        layers, heads, steps, _ = self.weights.shape
        return f"AttentionMaps({self.name}: {layers} layers, {heads} heads, {steps} tokens)"

    def first(self, steps: int) -> "AttentionMaps":
        """The same of the first steps alone."""
        second = self.second if self.second < steps else 0
        return AttentionMaps(
            self.name, self.tokens[:steps], self.weights[:, :, :steps, :steps], second
        )  # fmt: skip


def has_token_attention(model: EncoderModel) -> bool:
    """Return True if the model has attention weights on tokens."""
    return (
        model.encoder.has_attention or _has_attention_pool(model) or has_embedder_attention(model)
    )


def has_heads(model: Model | None) -> bool:
    """Return True if a network has attention heads to show, or two texts attend to each other."""
    if not isinstance(model, EncoderModel):
        return False
    members = encoder_members(model.encoder)
    return (
        any(member.has_attention for member in members)
        or any(embedder.has_attention for embedder in model.embedder_parts)
        or _has_alignment(model)
    )


def _has_alignment(model: EncoderModel) -> bool:
    """Return True if two texts attend to each other token by token."""
    return model.pair is not None and model.pair.has_attention and model.encoder.stride == 1


def has_embedder_attention(model: Model) -> bool:
    """Return True if the only embedder is a pre-trained network with attention weights."""
    embedders = model.embedder_parts
    alone = len(embedders) == 1 and embedders[0].has_attention
    above = section_kinds(model.parts["encoder"])
    return alone and all(kind in ("transformer", "none") for kind in above)


def _has_attention_pool(model: EncoderModel) -> bool:
    """Return True if the pool weighs each token; after a stride, a step is several tokens."""
    return model.encoder.stride == 1 and "attention" in model.traits.pooling


def token_weights(
    engine: NeuralEngine, texts: Sequence[EngineInput], seconds: Sequence[int] = ()
) -> list[list[TokenWeight]]:
    """(start, end, weight) of each token of each text; the weights of a text sum to 1.

    The weights of the pool as they are; in a Transformer, by attention rollout (Abnar and Zuidema
    2020) down to the tokens. The windows of a long text count equally. `seconds` says where in
    each text a second one begins, where there are two.
    """
    pieces: list[list[TokenWeight]] = [[] for _ in texts]
    for rows, source in engine.batches(texts):
        with torch.inference_mode():
            weights = _token_flow(engine.encoder_model, source)  # (B, T)
        for row, values in zip(rows, weights.tolist(), strict=True):
            assert row.spans is not None
            kept = values[: len(row.spans)]
            offsets = token_offsets(row, seconds[row.text] if seconds else 0)
            # What stands around a text has no place in it, and is no word that was looked at.
            pieces[row.text] += [
                (*offset, weight)
                for offset, span, weight in zip(offsets, row.spans.tolist(), kept, strict=True)
                if span != [0, 0] or not engine.indexer.never_empty
            ]
    return [_normalise(own) for own in pieces]


def attention_maps(predictor: Predictor, requested: Input) -> list[AttentionMaps]:
    """The attention maps of every network with heads, for one text or one window of it.

    That is the first, or the one in which the answer stands where that is a place in the text. Two
    texts are in one map where they are read together, and in one each where they are not.
    """
    engine = predictor.engine
    if not isinstance(engine, NeuralEngine) or not has_heads(engine.model):
        raise UserError(
            "Only a model with a 'transformer' encoder, a pre-trained 'bert' or 'gpt', or a pair "
            "'esim', 'decomposable' or 'bidaf' has attention maps to show."
        )
    (prepared,) = predictor.prepare_inputs([requested])
    chosen = _choose_row(engine, prepared, _answer_offset(predictor, prepared))
    if chosen is None:
        return []
    row, source, which = chosen
    with torch.inference_mode():
        return [
            AttentionMaps(name + which, tuple(tokens), _stack_layers(layers, len(tokens)), second)
            for name, tokens, layers, second in _iterate_maps(
                engine, source, _token_strings(engine, row, prepared)
            )
        ]


def _answer_offset(predictor: Predictor, one: str | Example) -> int:
    """Return the offset of the answer in the second text, or -1 if it is not a span there."""
    if predictor.config["task"].get("kind") != "span":
        return -1
    (answer,) = predictor([one])
    spans = answer.structure.spans if answer.structure is not None else ()
    return int(spans[0][0]) if spans else -1


def _choose_row(
    engine: NeuralEngine, one: str | Example, offset: int
) -> tuple[Row | None, Padded, str] | None:
    """The first row of a text, or that of a place in the second, alone in its batch.

    With it comes which of several windows it is, in words; None of a text in which nothing is read.
    """
    if engine.model.traits.is_mlm:
        text = one if isinstance(one, str) else one.text
        (blank, _), *_ = with_blanks(text, engine.indexer, "input")
        ids = torch.from_numpy(blank.ids.astype(np.int64))[None].to(engine.runtime.device)
        return None, Padded(ids, torch.tensor([len(blank.ids)])), ""
    windows = [(row, i, x) for rows, x in engine.batches([one]) for i, row in enumerate(rows)]
    if not windows:
        return None
    windows.sort(key=lambda one: _row_order(one[0]))
    holding = [n for n, (row, *_) in enumerate(windows) if offset >= 0 and _covers(row, offset)]
    chosen = holding[0] if holding else 0
    row, at, source = windows[chosen]
    size, second = int(source.lengths[at]), source.second
    which = f", window {chosen + 1} of {len(windows)}" if len(windows) > 1 else ""
    alone = Padded(
        source.data[at : at + 1, :size],
        source.lengths[at : at + 1],
        tuple(piece[at : at + 1, :size] for piece in source.subtokens),
        second=None if second is None else second[at : at + 1],
    )
    return row, alone, which


def _covers(row: Row, offset: int) -> bool:
    """Return True if a row covers the character at an offset of the second text."""
    own = np.zeros((0, 2), int) if row.spans is None else row.spans[row.second :]
    return bool(((own[:, 0] <= offset) & (offset < own[:, 1])).any())


def _row_order(row: Row) -> tuple[int, ...]:
    """Return the sort key of a row among those of its text or text pair."""
    spans = np.zeros((0, 2), int) if row.spans is None else row.spans
    sides = (spans[: row.second], spans[row.second :]) if row.second else (spans,)
    return (row.start, *(int(one[one[:, 1] > 0, 0].min(initial=2**31 - 1)) for one in sides))


def _token_strings(engine: NeuralEngine, row: Row | None, one: str | Example) -> list[str]:
    """The steps of a row as they stand in the text; empty where only ids are known."""
    if row is None or row.spans is None:
        return []
    text = one if isinstance(one, str) else one.text
    other = "" if isinstance(one, str) else one.other or ""
    out = []
    for step, (start, end) in enumerate(row.spans.tolist()):
        own = other if row.second and step >= row.second else text
        known = row.words[step] if row.words else own[start:end]
        out.append(known or display_word(engine.indexer.tokenizer, int(row.ids[step])))
    return out


def _iterate_maps(
    engine: NeuralEngine, source: Padded, tokens: list[str]
) -> Iterator[tuple[str, list[str], list[Tensor], int]]:
    """Each network with heads: its kind, its steps, where it looks and where a second text begins.

    The steps of a network that reads words by their pieces are those pieces.
    """
    model, tokenizer = engine.encoder_model, engine.indexer.tokenizer
    if model.traits.is_bi_encoder and source.second is not None:
        middle = int(source.second[0])
        sides = zip(
            source.split_pair(), (tokens[:middle], tokens[middle:]), TEXT_NAMES, strict=True
        )
        for side, own, which in sides:
            for kind, steps, layers, _ in _iterate_maps(engine, side, own):
                yield f"{kind}, {which} text", steps, layers, 0
        if _has_alignment(model):
            yield _alignment_map(model, source, tokens[:middle], tokens[middle:])
        return
    second = 0 if source.second is None else int(source.second[0])
    tables = model.parts["embedder"]
    kinds = [spec["kind"] for spec in (tables if isinstance(tables, list) else [tables])]
    inputs = zip(kinds, model.embedder_parts, model.embedder_inputs(source), strict=True)
    for kind, embedder, own_input in inputs:
        if isinstance(embedder, TransformerEmbedder):
            read = embedder.step_ids(own_input)
            own = tokens if tokens and not own_input.subtokens else [
                display_word(tokenizer, i) for i in read.data[0].tolist()
            ]  # fmt: skip
            yield kind, own, embedder.attention_weights(read), second
    if any(member.has_attention for member in encoder_members(model.encoder)):
        embedded = model.embed(source)
        if isinstance(model, JointPairModel) and source.second is not None:
            embedded = model.pair(embedded)
        for at in member_inputs(model.encoder, embedded):
            if at.member.has_attention:
                front = at.member.leading
                # After a stride, a step stands where the window of a convolution has its centre.
                own = ["[CLS]"] * front + tokens[:: at.stride]
                middle = second // at.stride + front if second else 0
                yield "transformer", own, at.member.attention_weights(at.inputs), middle


def _alignment_map(
    model: EncoderModel, source: Padded, first: list[str], second: list[str]
) -> tuple[str, list[str], list[Tensor], int]:
    """Return the weights of each text on the other as one map of both, (1, 1, T, T)."""
    assert model.pair is not None
    states = model.encode(model.embed(source))
    to_second, to_first = model.pair.attention_weights(*states.split_pair())
    front = ["[CLS]"] * model.encoder.leading
    front = ["[NULL]"] * model.pair.leading + front
    first, second = front + first, front + second
    both = to_second.new_zeros(1, 1, len(first) + len(second), len(first) + len(second))
    both[0, 0, : len(first), len(first) :] = to_second[0]
    both[0, 0, len(first) :, : len(first)] = to_first[0]
    return model.parts["pair"]["kind"], first + second, [both], len(first)


def _stack_layers(layers: Sequence[Tensor], size: int) -> np.ndarray:
    """(L, N, T, T) of the one row that there is."""
    return torch.stack([layer[0, :, :size, :size] for layer in layers]).float().cpu().numpy()


def rollout(layers: Sequence[Tensor], mask: Tensor) -> Tensor:
    """(B, T, T) how much of each output step came from each input step.

    Abnar and Zuidema (2020): heads averaged, half of a step passed on by the residual, layers
    multiplied.
    """
    flow = torch.eye(mask.shape[1], device=mask.device).expand(len(mask), -1, -1)
    for layer in layers:
        mean = layer.float().mean(1)  # (B, T, T)
        identity = torch.eye(mask.shape[1], device=mask.device)
        passed = 0.5 * mean + 0.5 * identity  # (B, T, T)
        # A step that attends to nothing is passed on whole.
        flow = torch.where(mean.any(2, keepdim=True), passed, identity) @ flow
    return flow


def _token_flow(model: EncoderModel, source: Padded) -> Tensor:
    """(B, T) the share of each token in the pooled vector."""
    embedded = model.embed(source)
    if isinstance(model, JointPairModel) and source.second is not None:
        embedded = model.pair(embedded)
    states = model.encoder(embedded)
    final = _pool_weights(model, states)  # (B, T)
    encoder = model.encoder
    if encoder.has_attention:
        flow = rollout(encoder.attention_weights(embedded), states.mask)  # (B, T, T)
        final = (final[:, None] @ flow).squeeze(1)[:, encoder.leading :]
    if has_embedder_attention(model):
        flow = embedder_rollout(only_network(model), source)  # (B, T, T)
        final = (final[:, None] @ flow).squeeze(1)
    return final


def state_flow(model: EncoderModel, source: Padded) -> Tensor:
    """(B, T, T) how much of the state of each step came from each token, by attention rollout."""
    size = source.data.shape[1]
    flow = torch.eye(size, device=source.data.device).expand(len(source), -1, -1)
    if model.encoder.has_attention:
        embedded = model.embed(source)
        if isinstance(model, JointPairModel) and source.second is not None:
            embedded = model.pair(embedded)
        front = model.encoder.leading
        whole = rollout(model.encoder.attention_weights(embedded), model.encoder(embedded).mask)
        flow = whole[:, front:, front:]
    if has_embedder_attention(model):
        flow = flow @ embedder_rollout(only_network(model), source)
    return flow


def has_state_attention(model: EncoderModel) -> bool:
    """Return True if `state_flow` says something: the states attend to tokens."""
    looks = model.encoder.has_attention or has_embedder_attention(model)
    return looks and not model.traits.is_bi_encoder


def only_network(model: EncoderModel) -> Contextual:
    """Return the pre-trained network of a model that has one."""
    network = model.embedders[0]
    assert isinstance(network, Contextual)
    return network


def embedder_rollout(network: Contextual, source: Padded) -> Tensor:
    """(B, S, S) how much of each state of a pre-trained network came from each step it reads.

    Where its layers are mixed, γ Σ s_l h_l, each has a way of its own, which counts as s_l.
    """
    layers, mask = network.attention_weights(source), source.mask
    if network.mix is None:
        return rollout(layers, mask)
    layer_weights = network.mix.weights.float().tolist()
    return sum(s * rollout(layers[:n], mask) for n, s in enumerate(layer_weights))  # type: ignore[return-value]


def word_rollout(network: Contextual, words_input: Padded) -> Tensor:
    """(B, T, T) how much of the vector of each word came from each word, by all its pieces.

    What stands around the sentence keeps its share for itself.
    """
    flow, owners = (
        embedder_rollout(network, network.step_ids(words_input)),
        network.word_indices(words_input),
    )  # (B, S, S)
    words = torch.arange(words_input.data.shape[1], device=owners.device)
    inside = (owners[:, None] == words[:, None]).float()  # (B, T, S)
    read = inside / inside.sum(2, keepdim=True).clamp(min=1)
    if network.subword_pooling != "mean":  # the vector of a word is that of one of its pieces
        count = inside.cumsum(2)
        chosen = count == (1 if network.subword_pooling == "first" else count.amax(2, keepdim=True))
        read = inside * chosen
    return read @ flow @ inside.transpose(1, 2)


def _pool_weights(model: EncoderModel, states: Padded) -> Tensor:
    """(B, T) how much of the vector the pool takes from each step; all alike if it cannot say."""
    _, weights = model.pool(states)
    if weights is not None:
        return weights.float()
    kind = model.traits.pooling
    even = torch.zeros(states.mask.shape, device=states.mask.device)
    if kind in ("first", "cls", "last"):
        at = states.lengths - 1 if kind == "last" else torch.zeros_like(states.lengths)
        even[torch.arange(len(states)), at.to(even.device)] = 1
        return even
    return even.masked_fill(states.mask, 1) / states.mask.sum(1, keepdim=True).clamp(min=1)


def _normalise(pieces: list[TokenWeight]) -> list[TokenWeight]:
    """The same weights with sum 1: [CLS] keeps some for itself, and windows each have a sum."""
    whole = sum(weight for _, _, weight in pieces) or 1.0
    return [(start, end, weight / whole) for start, end, weight in pieces]
