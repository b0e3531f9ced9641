"""Every head, decoder and decoder state derives from its interface and has all its members."""

import copy

import pytest
import torch
from torch import nn

from tests.fixtures.interfaces import hidden_members, missing_members
from weft import registry
from weft.batch import Padded
from weft.decode.decoders.output_layer import OutputLayer
from weft.decode.decoders.packed import PackedDecoder, pack_if_possible
from weft.decode.decoders.pointer_generator import PointerGenerator
from weft.decode.heads.lm import LanguageModelHead
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search.settings import SearchSettings
from weft.protocols import (
    Decoder,
    DecoderHead,
    DecoderState,
    Head,
    LanguageModelDecoder,
    Seq2SeqDecoder,
)

V, M = 11, 6
COLUMNS = [(("root", "b", "c"), ""), (("N", "V"), "")]
ROLES = [(("ARG0", "V"), ""), (("see.01", "see.02"), ""), (("saw\tsee",), "")]
OUTPUTS = {
    "role-crf": ROLES, "role-spans": ROLES,
    "arcs": COLUMNS, "brackets": COLUMNS, "crf": COLUMNS, "tags": COLUMNS, "nodes": COLUMNS[:1],
    "numbers": 1, "recursive": COLUMNS, "span": (5, True), "masked": (V, True),
    "intent-slots": COLUMNS, "word-coreference": COLUMNS, "tuple-grid": COLUMNS, "ctc": (V, 2, 3),
}  # fmt: skip
HEADS = sorted(registry.parts("head"))
DECODERS = sorted(registry.parts("decoder"))
SMALL_DECODER = {
    "gpt": {"hidden": 6, "heads": 2, "layers": 1},
    "transformer": {"hidden": 6, "heads": 2, "layers": 1},
    "elmo": {"width": 5, "hidden": 7, "filters": [[1, 3]], "character_width": 3},
}


def build_head(name):
    return registry.build("head", {"kind": name}, input_size=M, outputs=OUTPUTS.get(name, 3))


def build_decoder(name):
    spec = {"kind": name, **SMALL_DECODER.get(name, {})}
    sizes = {"vocabulary_size": V, "memory_size": M, "directions": 1}
    return registry.build("decoder", spec, **sizes).eval()


def check(part, interface):
    assert isinstance(part, interface)
    assert missing_members(part, interface) == []
    if isinstance(part, nn.Module):
        assert hidden_members(part) == []


@pytest.mark.parametrize("name", HEADS)
def test_heads_keep_their_interface(name):
    head = build_head(name)
    check(head, Head)
    with head.greedy_decoding():
        pass
    assert head.graph_decoder is None
    assert not head.accepts_lazy_source
    assert len(head.crfs) == (len(COLUMNS) if name == "crf" else 0)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_keep_their_interface(name):
    decoder = build_decoder(name)
    check(decoder, Seq2SeqDecoder if decoder.reads_source else LanguageModelDecoder)
    assert decoder.base_decoder is decoder
    assert isinstance(decoder.words, OutputLayer)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_as_a_head(name):
    decoder = build_decoder(name)
    if decoder.reads_source:
        head = Seq2SeqHead(decoder, SearchSettings(), 2, 3)
        assert head.max_target_length == decoder.max_positions
    else:
        head = LanguageModelHead(decoder, SearchSettings(), 2, 3, 5, 0.5)
        assert head.is_stateful == decoder.is_stateful
        assert head.is_bidirectional != decoder.causal
    check(head, DecoderHead)
    assert head.graph_decoder is decoder
    assert head.graphs is None
    assert copy.deepcopy(head).graphs is None


@pytest.mark.parametrize("name", [name for name in DECODERS if build_decoder(name).reads_source])
def test_wrappers_stand_in_for_a_decoder(name):
    decoder = build_decoder(name)
    pointer = PointerGenerator(decoder, M)
    check(pointer, Decoder)
    assert pointer.base_decoder is decoder
    assert pointer.extended_vocab_start == V
    assert Seq2SeqHead(pointer, SearchSettings(), 2, 3).graph_decoder is None
    packed = pack_if_possible(decoder)
    check(packed, Seq2SeqDecoder)
    assert packed.base_decoder is decoder
    memory = Padded(torch.randn(2, 3, M), torch.tensor([3, 2]))
    source = Padded(torch.tensor([[4, 12, 5], [6, 11, 0]]), memory.lengths)
    states = [decoder.start(memory, True), packed.start(memory, True)]
    for state in states:
        check(state, DecoderState)
        assert state.attention_weights.shape == (2, 3)
        assert state.num_extended_ids == 0
    state = pointer.start(memory, source, 2).per_prompt()
    check(state, DecoderState)
    assert (state.num_extended_ids, state.attention_weights) == (2, None)


def test_a_packed_language_model_stands_in_for_its_decoder():
    decoder = build_decoder("gpt")
    packed = pack_if_possible(decoder)
    assert isinstance(packed, PackedDecoder)
    check(packed, LanguageModelDecoder)
    assert packed.start(2).attention_weights is None


def test_a_static_cache_ends_with_the_positions():
    decoder = build_decoder("cnn")
    state = decoder.start(Padded(torch.randn(1, 3, M), torch.tensor([3])))
    assert decoder.with_static_cache(state, decoder.max_positions) is state
    assert decoder.with_static_cache(state, decoder.max_positions + 1) is None
    assert build_decoder("rnn-lm").with_static_cache("state", 10**9) == "state"


def test_a_broken_part_is_seen():
    class Broken(nn.Module, LanguageModelDecoder):
        words = None  # hides the output layer
        input_layer = None

        def __init__(self):
            super().__init__()
            self._modules["words"] = OutputLayer(V, 3, 3)

    assert hidden_members(Broken()) == ["words"]
    assert missing_members(Broken(), LanguageModelDecoder) == ["causal"]
    with pytest.raises(AssertionError):
        check(Broken(), LanguageModelDecoder)
    with pytest.raises(AssertionError):
        check(nn.Linear(2, 3), Head)
