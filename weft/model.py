"""Model = embed ∘ encode ∘ pool ∘ decode, built from a configuration.

B rows   T steps   E embedding width   H hidden width   C scores
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from weft import registry
from weft.batch import Padded
from weft.batch.indexer import SubtokenEncoder
from weft.batch.padded import concat_pair
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.heads import auxiliary_lm
from weft.decode.search.settings import SearchSettings
from weft.encode.pair.bi_encoder import check_pool, check_segment_marks
from weft.errors import UserError
from weft.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from weft.tokens.vocabulary import PAD, SPECIALS, UNK

UNKNOWN_ID = SPECIALS.index(UNK)
NO_POOL = {"kind": "none"}  # no pool: all states go to the head
HEAD_DERIVED = ("input_size", "outputs", "frame", "modelled")  # passed to heads
DECODER_DERIVED = ("vocabulary_size", "memory_size", "directions")  # passed to decoders


@dataclass(frozen=True)
class ModelOutput:
    """The output of a forward pass with its intermediate states."""

    states: Padded  # (B, T, H) a vector for every step
    vector: Any  # (B, H) one for the text, or the states themselves where nothing is pooled
    weights: Tensor | None  # (B, T) how much of the vector came from each step, where pooled so
    scores: Any  # (B, C), or what a head for every word gives; None of one text of two


class Model(nn.Module):
    """One path from ids to scores; `parts` is the filled-in configuration it was built from."""

    head: Any  # a Head, and with a decoder a DecoderHead

    def __init__(self, parts: Mapping[str, Any], *, vocabulary_size: int, outputs: Any):
        super().__init__()
        self.parts = fill(parts)
        self.embedders = nn.ModuleList()
        self.encoder: Any = None
        self.pool: Any = None
        self.is_bi_encoder = _is_bi_encoder(
            self.parts
        )  # a row holds two texts, each of which is read by itself
        self.pair: Any = None  # how two texts meet, where there are two
        self.join: Any = None  # and what makes one vector of theirs
        self.has_auxiliary_lm = bool(parts.get("task", {}).get("auxiliary"))  # auxiliary LM loss
        if "embedder" not in self.parts:
            self.head = _build_lm_head(self.parts, outputs)
            return
        tables = self.parts["embedder"]
        specs = tables if isinstance(tables, list) else [tables]
        self.embedders = nn.ModuleList(
            registry.build("embedder", spec, vocabulary_size=vocabulary_size) for spec in specs
        )
        if self.features and len(specs) > 1:
            raise UserError(
                "The embedder 'vectors' reads no tokens, so no other can stand beside it."
            )
        if self.has_auxiliary_lm:
            auxiliary_lm.check_auxiliary(self.embedders, self.parts, self.is_bi_encoder)
        width = sum(map(_width, self.embedders))
        if "pair" in self.parts and not self.is_bi_encoder:
            self.pair = registry.build("pair", self.parts["pair"], input_size=width)
            check_segment_marks(self.pair, self.frame != NO_SPECIAL_TOKENS)
        self.encoder = registry.build("encoder", self.parts["encoder"], input_size=width)
        size, directions = self.encoder.output_size, getattr(self.encoder, "directions", 1)
        derived = {"input_size": size, "directions": directions}
        if "decoder" in self.parts:
            self.pool = registry.build("pool", NO_POOL, **derived)
            task = parts.get("task", {})
            self.head = _build_seq2seq_head(
                self.parts, size, directions, outputs, bool(task.get("pointer"))
            )
            self._share_tables(bool(task.get("shared")))
            return
        if self.is_bi_encoder:
            self.pair = registry.build("pair", self.parts["pair"], input_size=size)
            turned = getattr(self.pair, "directions", directions)
            derived = {"input_size": self.pair.output_size, "directions": turned}
        self.pool = registry.build("pool", self.parts["pool"], **derived)
        if self.is_bi_encoder and hasattr(self.pair, "join"):
            check_pool(self.parts["pair"]["kind"], self.pooling)
            self.join = self.pair.join(self.pool.output_size)
        width = (self.join or self.pool).output_size
        head_derived = {"frame": self.frame, "modelled": getattr(self.pair, "modelled", 0)}
        head = registry.build(
            "head", self.parts["head"], input_size=width, outputs=outputs, **head_derived
        )  # fmt: skip
        self.head = head
        if self.is_mlm:
            head.borrow(self.embedders[0])
        self._share_tables(False)

    def _share_tables(self, one_vocabulary: bool) -> None:
        """Let embedders that share the decoder's table read it."""
        head: Any = self.head
        sharing: list[Any] = [one for one in self.embedders if getattr(one, "shared", False)]
        for embedder in sharing:
            if not one_vocabulary:
                raise UserError(
                    "embedder.shared reads the table of the decoder, so both sides need one "
                    "vocabulary: set task.shared = true (of task 'seq2seq'), or remove "
                    "embedder.shared."
                )
            decoder = getattr(head.decoder, "decoder", head.decoder)  # the one inside who copies
            embedder.borrow(decoder.words.table, getattr(decoder, "scale", 1.0))

    def forward(self, source: Padded) -> Any:
        if getattr(self.head, "accepts_lazy_source", False):
            return self.head(LazySource(source, self.encode_source, self.max_positions))
        return self.run(source).scores

    def encode_source(self, source: Padded) -> Padded:
        """Encode the source for a decoder (B, T, H)."""
        return self.pool_states(self.encode(self.embed(source)))[0]

    @property
    def is_structured(self) -> bool:
        """True if the output is decoded: labels for every word, or a text."""
        return self.pooling in ("none", "decoder")

    @property
    def is_lm(self) -> bool:
        """True for a language model."""
        return self.encoder is None

    @property
    def is_mlm(self) -> bool:
        """True for a masked language model."""
        return getattr(self.head, "is_mlm", False)

    @property
    def pooling(self) -> str:
        """The kind of its pool; a decoder stands in the place of one."""
        return "decoder" if "decoder" in self.parts else self.parts["pool"]["kind"]

    @property
    def input_kind(self) -> str:
        """The kind of steps in a row: tokens of a "text", or of "pairs" of them, "words", nodes of
        "trees", "vectors"."""
        if self.pair is not None:
            return "pairs"
        usual = self.head.reads or ("words" if self.is_structured else "text")
        return "vectors" if self.features else getattr(self.encoder, "input_kind", usual)

    @property
    def features(self) -> int:
        """The width of input feature vectors; 0 if the input is tokens."""
        return max((getattr(embedder, "features", 0) for embedder in self.embedders), default=0)

    @property
    def needs_full_sentence(self) -> bool:
        """True if sentences may not be split: the output is a tree over each."""
        return getattr(self.head, "whole", False)

    def run(self, source: Padded) -> ModelOutput:
        """The scores together with the states, the sentence vector and the attention weights."""
        if self.is_lm:
            return ModelOutput(source, source, None, self.head(source))
        embedded = self.embed(source)  # (B, T, E)
        states = self.encode(embedded)  # (B, T, H)
        vector, weights = self.pool_states(states)
        if self.is_mlm:
            return ModelOutput(states, vector, weights, self.head(states, vector))
        alone = self.pair is not None and source.second is None  # one text of two has no answer
        scores: Any = None if alone else self.apply_head(vector, source)
        if self.has_auxiliary_lm and self.training:
            table: Any = self.embedders[0].table
            scores = auxiliary_lm.WithAuxiliaryLM(scores, embedded, source.data, table.weight)
        return ModelOutput(states, vector, weights, scores)

    def encode(self, embedded: Padded) -> Padded:
        """(B, T, E) -> (B, T, H), the texts of a row each by itself where they are read so."""
        if embedded.second is None or self.pair is None:
            return self.encoder(embedded)
        if not self.is_bi_encoder:
            return self.encoder(self.pair(embedded))
        return concat_pair(*map(self.encoder, embedded.split_pair()))

    def pool_states(self, states: Padded) -> tuple[Any, Tensor | None]:
        """Pool the states for the head; return the weight of each step where pooling has one."""
        if states.second is None or not self.is_bi_encoder:
            return self.pool(states)
        if self.join is None:  # what it makes is of the second text alone
            return self.pool(self.pair(*states.split_pair()))
        first, second = (self.pool(side)[0] for side in self.pair(*states.split_pair()))  # (B, H)
        return self.join(first, second), None

    def apply_head(self, vector: Any, source: Padded) -> Any:
        """The scores of what the source was pooled into; who copies words also sees the source."""
        return self.head(vector, source) if self.extended_vocab_start else self.head(vector)

    @property
    def extended_vocab_start(self) -> int:
        """The first id of words of the source that can be copied; 0: it copies none."""
        return getattr(self.head, "extended_vocab_start", 0)

    def embed(self, source: Padded) -> Padded:
        """(B, T) ids -> (B, T, E), the embedders' vectors side by side."""
        if source.second is not None and self.is_bi_encoder:
            return concat_pair(*map(self.embed, source.split_pair()))
        cached, frozen = iter(source.cached), self.frozen_embedders if source.cached else ()
        parts: list[Any] = list(self.embedders)
        embedded = [
            embedder.from_cached(inputs, next(cached)) if embedder in frozen else embedder(inputs)
            for embedder, inputs in zip(parts, self.embedder_inputs(source), strict=True)
        ]
        if len(embedded) == 1:
            return embedded[0]
        return embedded[0].with_data(torch.cat([e.data for e in embedded], dim=-1))

    @property
    def frozen_embedders(self) -> list[Any]:
        """The frozen embedders, whose features can be cached."""
        embedders: list[Any] = list(self.embedders)
        return [one for one in embedders if hasattr(one, "frozen_features") and one.frozen]

    def frozen_features(self, source: Padded) -> tuple[Tensor, ...]:
        """Return the cacheable features (B, T, W) of each frozen embedder."""
        if source.second is not None and self.is_bi_encoder:
            first, second = (
                [side.with_data(features) for features in self.frozen_features(side)]
                for side in source.split_pair()
            )
            return tuple(concat_pair(x, y).data for x, y in zip(first, second, strict=True))
        parts: list[Any] = list(self.embedders)
        pairs = zip(parts, self.embedder_inputs(source), strict=True)
        return tuple(
            one.frozen_features(inputs).data
            for one, inputs in pairs
            if one in self.frozen_embedders
        )

    def embedder_inputs(self, source: Padded) -> Iterator[Padded]:
        """Yield the input of each embedder: ids, its subtokens, or words with subwords."""
        if self.extended_vocab_start:  # a word that can only be copied is read as an unknown one
            inside = torch.where(source.data < self.extended_vocab_start, source.data, UNKNOWN_ID)
            source = replace(source, data=inside)
        subtokens = iter(source.subtokens)
        words = next(subtokens) if self.subwords else None
        for embedder in self.embedders:
            if subtoken_encoder(embedder) is not None:
                yield _with_subtokens(source, next(subtokens))
            elif words is not None and getattr(embedder, "subwords", False):
                yield replace(source, subtokens=(words,))
            else:
                yield source

    @property
    def subwords(self) -> bool:
        """True if words are read with their subwords."""
        return self.input_kind == "words" and any(
            getattr(e, "subwords", False) for e in self.embedders
        )

    @property
    def frame(self) -> SpecialTokens:
        """The special tokens around its texts."""
        framed: list[Any] = [e for e in self.embedders if hasattr(e, "frame")]
        frame: SpecialTokens = framed[0].frame if framed else NO_SPECIAL_TOKENS
        return replace(frame, each=True) if self.is_bi_encoder else frame

    @property
    def subtoken_encoders(self) -> list[SubtokenEncoder]:
        """The subtoken encoders of embedders that read inside tokens."""
        makers = [subtoken_encoder(embedder) for embedder in self.embedders]
        return [maker for maker in makers if maker is not None]

    @property
    def reads_ids(self) -> bool:
        """True if an embedder reads token ids, not only their spelling."""
        return any(subtoken_encoder(embedder) is None for embedder in self.embedders)

    @property
    def max_positions(self) -> int | None:
        """The longest row it can read, where there is one."""
        parts = (self.encoder, self.head, *self.embedders)
        limits = [getattr(part, "max_positions", None) for part in parts]
        return min((limit for limit in limits if limit is not None), default=None)


def fill(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The model's sections with every default written in, or a UserError for what does not fit."""
    if "embedder" not in parts and parts.get("task", {}).get("kind") == "language":
        return {
            "task": registry.fill("task", parts["task"], ("tokenizer",)),
            "decoder": registry.fill("decoder", parts["decoder"], DECODER_DERIVED),
            "generate": registry.check(SearchSettings, parts.get("generate", {}), "[generate]"),
        }
    tables = parts["embedder"]
    embedder: Any = (
        [registry.fill("embedder", table, ("vocabulary_size",)) for table in tables]
        if isinstance(tables, list)
        else registry.fill("embedder", tables, ("vocabulary_size",))
    )
    encoder = registry.fill("encoder", parts["encoder"], ("input_size",))
    if "decoder" in parts:
        return {
            "embedder": embedder,
            "encoder": encoder,
            "decoder": registry.fill("decoder", parts["decoder"], DECODER_DERIVED),
            "generate": registry.check(SearchSettings, parts.get("generate", {}), "[generate]"),
        }
    two = {"pair": registry.fill("pair", parts["pair"], ("input_size",))} if "pair" in parts else {}
    return {
        "embedder": embedder,
        "encoder": encoder,
        **two,
        "pool": registry.fill("pool", parts["pool"], ("input_size", "directions")),
        "head": registry.fill("head", parts["head"], HEAD_DERIVED),
    }


def _build_seq2seq_head(
    parts: Mapping[str, Any], size: int, directions: int, outputs: Any, copies: bool
) -> nn.Module:
    """The decoder of a model that answers with a text."""
    from weft.decode.decoders.pointer_generator import PointerGenerator
    from weft.decode.heads.seq2seq import Seq2SeqHead

    words, first, last = outputs
    derived = {"vocabulary_size": words, "memory_size": size, "directions": directions}
    decoder = registry.build("decoder", parts["decoder"], **derived)
    if not decoder.reads_source:
        raise UserError(
            f"The decoder '{parts['decoder']['kind']}' reads no source. Use one that does: rnn, "
            "cnn or transformer."
        )
    writer = PointerGenerator(decoder, size) if copies else decoder
    # As `weft generate` does: a word that stands for all unknown ones would always be wrong.
    marks = {SPECIALS.index(PAD), UNKNOWN_ID, first} - {last}
    return Seq2SeqHead(writer, SearchSettings(**parts["generate"]), first, last, marks)


def _build_lm_head(parts: Mapping[str, Any], outputs: Any) -> nn.Module:
    """The decoder of a language model."""
    from weft.decode.heads.lm import LanguageModelHead

    words, first, last = outputs
    kind, task = parts["decoder"]["kind"], parts["task"]
    if registry.find("decoder", kind).reads_source:  # type: ignore[attr-defined]
        raise UserError(
            f"The decoder '{kind}' reads a source, and a language model has none. Use one that "
            "reads its own text: gpt, rnn-lm, nnlm or bidirectional-lm; or set task.kind to "
            "'seq2seq'."
        )
    decoder = registry.build("decoder", parts["decoder"], vocabulary_size=words)
    search = SearchSettings(**parts["generate"])
    return LanguageModelHead(decoder, search, first, last, task["window"], task["overlap"])


def subtoken_encoder(embedder: nn.Module) -> SubtokenEncoder | None:
    """The embedder's own `pieces` method, if it reads more than ids."""
    return getattr(embedder, "subtoken_ids", None)


def _is_bi_encoder(parts: Mapping[str, Any]) -> bool:
    pair: Any = registry.find("pair", parts["pair"]["kind"]) if "pair" in parts else None
    return pair is not None and pair.encodes_separately


def _width(embedder: Any) -> int:
    return embedder.output_size


def _with_subtokens(source: Padded, subtokens: Tensor) -> Padded:
    return replace(source, data=subtokens, subtokens=())
