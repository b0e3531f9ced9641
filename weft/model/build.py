"""Build a model from its configuration: fill in defaults, check the parts, compose them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from weft import registry
from weft.attend.settings import build_part, fill_section, find_uses
from weft.decode.decoders.pointer_generator import PointerGenerator
from weft.decode.heads import auxiliary_lm
from weft.decode.heads.lm import LanguageModelHead
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search.settings import SearchSettings
from weft.encode.pair.bi_encoder import check_pool, check_segment_marks
from weft.encode.stack import EncoderStack
from weft.errors import UserError
from weft.model.compositions import (
    UNKNOWN_ID,
    BiEncoderModel,
    EncoderDecoderModel,
    JointPairModel,
    LanguageModel,
    MaskedLanguageModel,
    Model,
    TextModel,
)
from weft.model.traits import Traits
from weft.protocols import Embedder, Encoder, Head, InputKind, OutputSize, Section
from weft.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from weft.tokens.vocabulary import PAD, SPECIALS

NO_POOL = {"kind": "none"}  # no pool: all states go to the head
# What the model works out itself and passes to constructors; a config may not set it.
EMBEDDER_DERIVED = ("vocabulary_size",)
ENCODER_DERIVED = ("input_size", "attention_config")
PAIR_DERIVED = ("input_size", "attention_config")
POOL_DERIVED = ("input_size", "directions", "attention_config")
HEAD_DERIVED = ("input_size", "outputs", "frame", "modelled")
DECODER_DERIVED = ("vocabulary_size", "memory_size", "directions", "attention_config")
ATTENDING = ("encoder", "pair", "pool", "decoder")  # kinds of parts that may use attention


def build_model(parts: Section, *, vocabulary_size: int, outputs: OutputSize) -> Model:
    """Build the model that a configuration describes; `outputs` is the size of its label space."""
    full = fill(parts)
    if "embedder" not in full:
        return _build_language_model(full, outputs)
    embedders, task = _build_embedders(full, vocabulary_size), parts.get("task", {})
    if "decoder" in full:
        return _build_encoder_decoder(full, embedders, outputs, task)
    if "pair" in full and registry.find("pair", full["pair"]["kind"]).encodes_separately:
        return _build_bi_encoder(full, embedders, outputs, task)
    return _build_text_model(full, embedders, outputs, task)


def _build_text_model(
    parts: Section, modules: nn.ModuleList, outputs: OutputSize, task: Section
) -> Model:
    """Build a model of one text, of two texts in one row, or of masked text."""
    embedders = _embedder_parts(modules)
    has_auxiliary_lm = bool(task.get("auxiliary"))
    if has_auxiliary_lm:
        auxiliary_lm.check_auxiliary(embedders, parts, False)
    frame = _frame(embedders)
    width, pair = sum(part.output_size for part in embedders), None
    if "pair" in parts:
        pair = _build_part(parts, "pair", input_size=width)
        check_segment_marks(pair, frame != NO_SPECIAL_TOKENS)
    encoder = build_encoder(parts, width)
    sizes = {"input_size": encoder.output_size, "directions": encoder.directions}
    pool = _build_part(parts, "pool", **sizes)
    head = registry.build(
        "head", parts["head"],
        input_size=pool.output_size, outputs=outputs, frame=frame, modelled=0,
    )  # fmt: skip
    traits = _describe(parts, embedders, encoder, head, frame)
    traits = replace(traits, is_mlm=head.is_mlm, has_auxiliary_lm=has_auxiliary_lm)
    head.borrow(embedders[0])
    _check_sharing(embedders)
    composition = MaskedLanguageModel if traits.is_mlm else JointPairModel if pair else TextModel
    order = {
        "embedders": modules, "pair": pair, "encoder": encoder, "pool": pool, "head": head
    }  # fmt: skip
    return composition(parts, traits, order)


def _build_bi_encoder(
    parts: Section, modules: nn.ModuleList, outputs: OutputSize, task: Section
) -> Model:
    """Build a model that encodes two texts separately."""
    embedders = _embedder_parts(modules)
    if task.get("auxiliary"):
        auxiliary_lm.check_auxiliary(embedders, parts, True)
    frame = replace(_frame(embedders), each=True)
    width = sum(part.output_size for part in embedders)
    encoder = build_encoder(parts, width)
    pair = _build_part(parts, "pair", input_size=encoder.output_size)
    directions = encoder.directions if pair.directions is None else pair.directions
    sizes = {"input_size": pair.output_size, "directions": directions}
    pool = _build_part(parts, "pool", **sizes)
    join = pair.join(pool.output_size)
    if join is not None:
        check_pool(parts["pair"]["kind"], parts["pool"]["kind"])
    head = registry.build(
        "head", parts["head"], input_size=(join or pool).output_size,
        outputs=outputs, frame=frame, modelled=pair.modelled,
    )  # fmt: skip
    order = {
        "embedders": modules, "encoder": encoder, "pair": pair, "pool": pool, "join": join,
        "head": head,
    }  # fmt: skip
    _check_sharing(embedders)
    traits = _describe(parts, embedders, encoder, head, frame)
    return BiEncoderModel(parts, replace(traits, is_bi_encoder=True), order)


def _build_encoder_decoder(
    parts: Section, modules: nn.ModuleList, outputs: OutputSize, task: Section
) -> Model:
    """Build a model that writes a text about a source."""
    embedders = _embedder_parts(modules)
    width = sum(part.output_size for part in embedders)
    encoder = build_encoder(parts, width)
    sizes = {"input_size": encoder.output_size, "directions": encoder.directions}
    pool = registry.build("pool", NO_POOL, **sizes)
    vocabulary_size, bos, eos = _decoder_outputs(outputs)
    decoder = _build_part(parts, "decoder", vocabulary_size=vocabulary_size,
        memory_size=encoder.output_size, directions=encoder.directions,
    )  # fmt: skip
    if not decoder.reads_source:
        raise UserError(
            f"The decoder '{parts['decoder']['kind']}' reads no source. Use one that does: rnn, "
            "cnn or transformer."
        )
    if task.get("pointer"):
        decoder = PointerGenerator(decoder, encoder.output_size)
    # As in `weft generate`: the token that stands for all unknown words would always be wrong.
    unwritten = {SPECIALS.index(PAD), UNKNOWN_ID, bos} - {eos}
    head = Seq2SeqHead(decoder, SearchSettings(**parts["generate"]), bos, eos, unwritten)
    _share_tables(embedders, head, bool(task.get("shared")))
    order = {
        "embedders": modules, "encoder": encoder, "pool": pool, "head": head, "pair": None
    }  # fmt: skip
    traits = _describe(parts, embedders, encoder, head, _frame(embedders))
    return EncoderDecoderModel(parts, traits, order)


def _build_language_model(parts: Section, outputs: OutputSize) -> Model:
    """Build a model of running text."""
    vocabulary_size, bos, eos = _decoder_outputs(outputs)
    kind, task = parts["decoder"]["kind"], parts["task"]
    if registry.find("decoder", kind).reads_source:
        raise UserError(
            f"The decoder '{kind}' reads a source, and a language model has none. Use one that "
            "reads its own text: gpt, rnn-lm, nnlm or bidirectional-lm; or set task.kind to "
            "'seq2seq'."
        )
    decoder = _build_part(parts, "decoder", vocabulary_size=vocabulary_size)
    search = SearchSettings(**parts["generate"])
    head = LanguageModelHead(decoder, search, bos, eos, task["window"], task["overlap"])
    traits = Traits("text", "decoder", is_lm=True, is_structured=True)
    return LanguageModel(parts, traits, {"embedders": nn.ModuleList(), "head": head})


def _build_part(parts: Section, kind: str, **derived: object) -> Any:
    """Build the part of a kind; one that attends gets the settings of [attention]."""
    return build_part(kind, parts[kind], parts.get("attention", {}), **derived)


def build_encoder(parts: Section, width: int) -> Any:
    """Build the encoder, or a stack of those that several tables describe."""
    section = parts["encoder"]
    if not isinstance(section, list):
        return _build_part(parts, "encoder", input_size=width)
    members: list[Encoder] = []
    for spec in section:
        members.append(_build_part({**parts, "encoder": spec}, "encoder", input_size=width))
        width = members[-1].output_size
    return EncoderStack(members, [spec["kind"] for spec in section])


def _fill_encoder(section: object) -> object:
    """Return the table of the encoder, or of each encoder of a stack, with defaults."""
    if not isinstance(section, list):
        return registry.fill("encoder", section, ENCODER_DERIVED)  # type: ignore[arg-type]
    if not section:
        raise UserError("[[encoder]] is an empty list. Use one [encoder], or name several.")
    return [registry.fill("encoder", spec, ENCODER_DERIVED) for spec in section]


def _build_embedders(parts: Section, vocabulary_size: int) -> nn.ModuleList:
    """Build the embedders, whose vectors lie side by side."""
    modules = nn.ModuleList(
        registry.build("embedder", spec, vocabulary_size=vocabulary_size)
        for spec in _specs(parts["embedder"])
    )
    if len(modules) > 1 and any(part.features for part in _embedder_parts(modules)):
        raise UserError("The embedder 'vectors' reads no tokens, so no other can stand beside it.")
    return modules


def _embedder_parts(modules: nn.ModuleList) -> list[Embedder]:
    return [part for part in modules if isinstance(part, Embedder)]


def _decoder_outputs(outputs: OutputSize) -> tuple[int, int, int]:
    """Return the vocabulary size and the ids of bos and eos, from the label space of a decoder."""
    assert isinstance(outputs, tuple)
    size, bos, eos = (part for part in outputs if isinstance(part, int))
    return size, bos, eos


def _specs(section: Any) -> list[Section]:
    """A section that may be a list, as a list."""
    return section if isinstance(section, list) else [section]


def _frame(embedders: Sequence[Embedder]) -> SpecialTokens:
    """Return the special tokens that the first embedder with any puts around a text."""
    frames = (part.frame for part in embedders if part.frame is not None)
    return next(frames, NO_SPECIAL_TOKENS)


def _describe(
    parts: Section,
    embedders: Sequence[Embedder],
    encoder: Encoder,
    head: Head,
    frame: SpecialTokens,
) -> Traits:
    """Return the traits that follow from the parts."""
    pooling = "decoder" if "decoder" in parts else parts["pool"]["kind"]
    is_structured = pooling in ("none", "decoder")
    features = max(part.features for part in embedders)
    usual: InputKind = head.reads or ("words" if is_structured else "text")
    kind: InputKind = "vectors" if features else encoder.input_kind or usual
    kind = "pairs" if "pair" in parts else kind
    return Traits(
        input_kind=kind,
        pooling=pooling,
        is_structured=is_structured,
        needs_full_sentence=head.needs_full_sentence,
        extended_vocab_start=head.extended_vocab_start,
        features=features,
        frontend=embedders[0].frontend,
        subwords=kind == "words" and any(part.subwords for part in embedders),
        frame=frame,
    )


def _share_tables(embedders: Sequence[Embedder], head: Seq2SeqHead, one_vocabulary: bool) -> None:
    """Let embedders with `shared` read the decoder's table."""
    if not one_vocabulary:
        _check_sharing(embedders)
    decoder = head.decoder.base_decoder
    for embedder in embedders:
        if embedder.shared:
            embedder.borrow(decoder.words.table, decoder.scale)


def _check_sharing(embedders: Sequence[Embedder]) -> None:
    """Raise a UserError if an embedder is to share a table that it cannot share."""
    if any(part.shared for part in embedders):
        raise UserError(
            "embedder.shared reads the table of the decoder, so both sides need one "
            "vocabulary: set task.shared = true (of task 'seq2seq'), or remove "
            "embedder.shared."
        )


def fill(parts: Section) -> dict[str, Any]:
    """The model's sections with every default written in, or a UserError for what does not fit."""
    filled = _fill_parts(parts)
    attending = [(kind, spec) for kind in ATTENDING for spec in _specs(filled.get(kind, []))]
    networks = [
        f"the embedder '{spec['kind']}'"
        for spec in _specs(filled.get("embedder", []))
        if registry.find("embedder", spec["kind"]).has_attention
    ]
    attention = fill_section(
        parts.get("attention", {}), find_uses(attending), "".join(networks[:1])
    )
    return {**filled, "attention": attention} if attention else filled


def _fill_parts(parts: Section) -> dict[str, Any]:
    """The sections of parts with every default written in."""
    if "embedder" not in parts and parts.get("task", {}).get("kind") == "language":
        return {
            "task": registry.fill("task", parts["task"], ("tokenizer",)),
            "decoder": registry.fill("decoder", parts["decoder"], DECODER_DERIVED),
            "generate": registry.check(SearchSettings, parts.get("generate", {}), "[generate]"),
        }
    specs = [
        registry.fill("embedder", spec, EMBEDDER_DERIVED) for spec in _specs(parts["embedder"])
    ]
    embedder: object = specs if isinstance(parts["embedder"], list) else specs[0]
    encoder = _fill_encoder(parts["encoder"])
    if "decoder" in parts:
        return {
            "embedder": embedder,
            "encoder": encoder,
            "decoder": registry.fill("decoder", parts["decoder"], DECODER_DERIVED),
            "generate": registry.check(SearchSettings, parts.get("generate", {}), "[generate]"),
        }
    pair = {"pair": registry.fill("pair", parts["pair"], PAIR_DERIVED)} if "pair" in parts else {}
    return {
        "embedder": embedder,
        "encoder": encoder,
        **pair,
        "pool": registry.fill("pool", parts["pool"], POOL_DERIVED),
        "head": registry.fill("head", parts["head"], HEAD_DERIVED),
    }
