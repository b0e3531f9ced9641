"""One class per composition: one text, two texts, masked LM, encoder–decoder, language model.

B rows   T steps   E embedding width   H hidden width   C scores
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.padded import concat_pair
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM
from weft.decode.heads.lm import LanguageModelHead
from weft.decode.heads.mlm import MLMHead
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.encode.rnn import Recurrent, RecurrentState
from weft.errors import UserError
from weft.model.traits import Traits
from weft.protocols import (
    Embedder,
    Encoder,
    Pair,
    PairJoin,
    Pool,
    Scores,
    Section,
)
from weft.tokens.vocabulary import SPECIALS, UNK

UNKNOWN_ID = SPECIALS.index(UNK)


@dataclass(frozen=True)
class ModelOutput:
    """The output of a forward pass with its intermediate states."""

    states: Padded  # (B, T, H) one vector per step
    vector: Tensor | Padded  # (B, H) one per text, or the states themselves if nothing is pooled
    weights: Tensor | None  # (B, T) the weight of each step in the vector, if pooled by weights
    scores: Scores  # (B, C), or the output of a structured head; None for one text of a pair

    @property
    def text_vector(self) -> Tensor:
        """The vector (B, H) of each text, of a model that pools."""
        assert isinstance(self.vector, Tensor)
        return self.vector


class Model(nn.Module):
    """One path from ids to scores; `parts` is the filled-in configuration it was built from.

    `build_model` makes one. The order of `modules` is that of the parameters.
    """

    embedders: nn.ModuleList
    head: Any  # its class decides what the scores are; compositions with one kind of head say so

    def __init__(self, parts: Section, traits: Traits, modules: Mapping[str, nn.Module | None]):
        super().__init__()
        self.parts, self.traits = parts, traits
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, source: Padded) -> Scores:
        return self.run(source).scores

    def run(self, source: Padded) -> ModelOutput:
        """Return the scores with the states, the pooled vector and the weight of each step."""
        raise NotImplementedError

    @property
    def embedder_parts(self) -> list[Embedder]:
        """The embedders, typed by their interface."""
        return [part for part in self.embedders if isinstance(part, Embedder)]

    @property
    def subtoken_embedders(self) -> list[Embedder]:
        """The embedders that read the sub-tokens of tokens."""
        return [part for part in self.embedder_parts if part.reads_subtokens]

    @property
    def reads_ids(self) -> bool:
        """True if an embedder reads token ids, not only their spelling."""
        return any(not part.reads_subtokens for part in self.embedder_parts)

    @property
    def max_positions(self) -> int | None:
        """The longest row it can read; None for any length."""
        limits = [part.max_positions for part in self.embedder_parts]
        return min((limit for limit in limits if limit is not None), default=None)

    def embed(self, source: Padded) -> Padded:
        """(B, T) ids -> (B, T, E), the embedders' vectors side by side."""
        cached, frozen = iter(source.cached), self.frozen_embedders if source.cached else []
        vectors = [
            part.from_cached(inputs, next(cached)) if part in frozen else part(inputs)
            for part, inputs in zip(self.embedder_parts, self.embedder_inputs(source), strict=True)
        ]
        if len(vectors) == 1:
            return vectors[0]
        return vectors[0].with_data(torch.cat([x.data for x in vectors], dim=-1))

    def embedder_inputs(self, source: Padded) -> Iterator[Padded]:
        """Yield the input of each embedder: ids, its sub-tokens, or words with subwords."""
        if start := self.traits.extended_vocab_start:  # a copied word is read as an unknown one
            source = replace(source, data=torch.where(source.data < start, source.data, UNKNOWN_ID))
        subtokens = iter(source.subtokens)
        words = next(subtokens) if self.traits.subwords else None
        for part in self.embedder_parts:
            if part.reads_subtokens:
                yield replace(source, data=next(subtokens), subtokens=())
            elif words is not None and part.subwords:
                yield replace(source, subtokens=(words,))
            else:
                yield source

    @property
    def frozen_embedders(self) -> list[Embedder]:
        """The frozen embedders, whose features can be cached."""
        return [part for part in self.embedder_parts if part.has_frozen_features and part.frozen]

    def frozen_features(self, source: Padded) -> tuple[Tensor, ...]:
        """Return the cacheable features (B, T, W) of each frozen embedder."""
        frozen = self.frozen_embedders
        inputs = zip(self.embedder_parts, self.embedder_inputs(source), strict=True)
        return tuple(part.frozen_features(x).data for part, x in inputs if part in frozen)


class LanguageModel(Model):
    """Running text -> the probability of every token: the decoder embeds and reads it itself."""

    head: LanguageModelHead

    def run(self, source: Padded) -> ModelOutput:
        return ModelOutput(source, source, None, self.head(source))


class EncoderModel(Model):
    """embed -> encode -> pool -> head, with each step callable by itself."""

    encoder: Encoder
    pool: Pool
    pair: Pair | None

    def encode(self, embedded: Padded, initial_state: RecurrentState | None = None) -> Padded:
        """(B, T, E) -> (B, T, H), from the initial state of a recurrent encoder if there is one."""
        if initial_state is None:
            return self.encoder(embedded)
        if not isinstance(self.encoder, Recurrent) or self.traits.is_bi_encoder:
            raise UserError(
                "initial_state is for one text and an encoder of kind 'rnn'; this model has "
                f"{'two texts' if self.traits.is_bi_encoder else 'another encoder'}."
            )
        states: Padded = self.encoder(embedded, initial_state)
        return states

    def pool_states(self, states: Padded) -> tuple[Tensor | Padded, Tensor | None]:
        """Pool the states for the head; return the weight of each step where pooling has one."""
        return self.pool(states)

    def apply_head(self, vector: Tensor | Padded, source: Padded) -> Scores:
        """Return the scores of a pooled source."""
        return self.head(vector)

    @property
    def max_positions(self) -> int | None:
        embedders = [
            part.max_positions
            for part in self.embedder_parts
            if not (self.head.reads_documents and part.reads_windows)
        ]
        limits = [*embedders, self.encoder.max_positions, self.head.max_positions]
        return min((limit for limit in limits if limit is not None), default=None)


class TextModel(EncoderModel):
    """One text -> scores of the text, or of each of its words."""

    def run(self, source: Padded) -> ModelOutput:
        embedded = self.embed(source)  # (B, T, E)
        states = self.encode(embedded)  # (B, T, H)
        vector, weights = self.pool(states)  # (B, H)
        scores = self.head(vector)  # (B, C)
        if self.traits.has_auxiliary_lm and self.training:
            scores = self.with_auxiliary_lm(scores, embedded, source)
        return ModelOutput(states, vector, weights, scores)

    def with_auxiliary_lm(
        self, scores: Tensor, embedded: Padded, source: Padded
    ) -> WithAuxiliaryLM:
        """Return the scores with what the auxiliary LM loss needs (Radford et al. 2018)."""
        table = self.embedder_parts[0].token_table
        assert table is not None
        return WithAuxiliaryLM(scores, embedded, source.data, table.weight)


class JointPairModel(TextModel):
    """Two texts in one row -> scores: the encoder reads both at once."""

    pair: Pair

    def encode(self, embedded: Padded, initial_state: RecurrentState | None = None) -> Padded:
        """(B, T, E) -> (B, T, H); the pair marks the steps of the second text."""
        marked = embedded if embedded.second is None else self.pair(embedded)
        return super().encode(marked, initial_state)

    def run(self, source: Padded) -> ModelOutput:
        if source.second is not None:
            return super().run(source)
        states = self.encode(self.embed(source))  # one text of a pair has states, but no scores
        return ModelOutput(states, *self.pool(states), None)


class BiEncoderModel(EncoderModel):
    """Two texts -> scores: each is embedded and encoded separately, then they are compared."""

    pair: Pair
    join: PairJoin | None  # None: the pair returns states of the second text alone

    def run(self, source: Padded) -> ModelOutput:
        states = self.encode(self.embed(source))  # (B, T, H)
        vector, weights = self.pool_states(states)  # (B, H)
        scores = None if source.second is None else self.head(vector)  # (B, C)
        return ModelOutput(states, vector, weights, scores)

    def embed(self, source: Padded) -> Padded:
        """(B, T) ids -> (B, T, E), each text by itself."""
        if source.second is None:
            return super().embed(source)
        return concat_pair(*map(super().embed, source.split_pair()))

    def encode(self, embedded: Padded, initial_state: RecurrentState | None = None) -> Padded:
        """(B, T, E) -> (B, T, H), each text by itself."""
        if embedded.second is None or initial_state is not None:
            return super().encode(embedded, initial_state)
        return concat_pair(*map(self.encoder, embedded.split_pair()))

    def pool_states(self, states: Padded) -> tuple[Tensor | Padded, Tensor | None]:
        """Compare the texts, pool each, and join the two vectors."""
        if states.second is None:
            return self.pool(states)
        if self.join is None:
            return self.pool(self.pair(*states.split_pair()))
        sides = self.pair(*states.split_pair())
        first, second = (self.pool_vector(side) for side in sides)  # (B, H)
        return self.join(first, second), None

    def pool_vector(self, states: Padded) -> Tensor:
        """Return the pooled vector (B, H) of one text."""
        vector, _ = self.pool(states)
        assert isinstance(vector, Tensor)
        return vector

    def frozen_features(self, source: Padded) -> tuple[Tensor, ...]:
        """Return the cacheable features (B, T, W) of each frozen embedder."""
        if source.second is None:
            return super().frozen_features(source)
        first, second = (
            [
                side.with_data(features)
                for features in super(BiEncoderModel, self).frozen_features(side)
            ]
            for side in source.split_pair()
        )
        return tuple(concat_pair(x, y).data for x, y in zip(first, second, strict=True))


class MaskedLanguageModel(EncoderModel):
    """Text with masked tokens -> the probability of every word at each mask."""

    head: MLMHead

    def run(self, source: Padded) -> ModelOutput:
        states = self.encode(self.embed(source))  # (B, T, H)
        vector, weights = self.pool(states)  # (B, H), for next-sentence prediction
        return ModelOutput(states, vector, weights, self.head(states, vector))


class EncoderDecoderModel(EncoderModel):
    """A source text -> a target text, written by a decoder that attends to the encoder's states."""

    head: Seq2SeqHead

    def forward(self, source: Padded) -> Scores:
        if self.head.accepts_lazy_source:
            return self.head(LazySource(source, self.encode_source, self.max_positions))
        return self.run(source).scores

    def run(self, source: Padded) -> ModelOutput:
        states = self.encode_source(source)  # (B, T, H)
        return ModelOutput(states, states, None, self.apply_head(states, source))

    def encode_source(self, source: Padded) -> Padded:
        """Encode the source for the decoder (B, T, H)."""
        return self.encode(self.embed(source))

    def apply_head(self, vector: Tensor | Padded, source: Padded) -> Scores:
        """Return the decoder over the encoder's states; to copy words it also sees the source."""
        return self.head(vector, source) if self.traits.extended_vocab_start else self.head(vector)
