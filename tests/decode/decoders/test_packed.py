"""Prepared decoders write what the decoders themselves write."""

import copy
import gc

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.decode.decoders import packed as module
from weft.decode.decoders.packed import PackedDecoder, pack_if_possible
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.decode.decoders.transformer import GPT, Seq2SeqTransformerDecoder
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search import constraints
from weft.decode.search.search import Constraints, SearchSettings, search
from weft.decode.search.state import expand_beams, reorder
from weft.errors import UserError

V, M, H, N = 13, 6, 6, 3
BOS, EOS = 2, 3
SHAPES = [
    {},
    {"norm": "post", "activation": "gelu", "tied": False},
    {"positions": "learned", "max_positions": 29, "heads": 1, "feed_forward": 5},
    {"activation": "gelu-tanh", "layers": 1, "max_positions": 3},
]
WAYS = {
    "beam": SearchSettings(num_beams=3, num_return=3, max_length=23),
    "greedy": SearchSettings(method="greedy", max_length=23),
    "sample": SearchSettings(method="sample", num_samples=2, max_length=23, top_p=0.9),
    "groups": SearchSettings(
        num_beams=4,
        num_beam_groups=2,
        num_return=2,
        max_length=7,
        repetition_penalty=1.2,
        no_repeat_ngram_size=3,
    ),
}


def shaken(model):
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def built(**options):
    shape = {"hidden": H, "layers": 2, "heads": N, "feed_forward": 7, **options}
    return shaken(Seq2SeqTransformerDecoder(V, M, **shape))


def memory(lengths=(5, 2, 0, 7, 1), garbage=0.0):
    torch.manual_seed(2)
    x = Padded(torch.randn(len(lengths), max(lengths), M), torch.tensor(lengths))
    return Padded(x.data.masked_fill(~x.mask[..., None], garbage), x.lengths)


def found(decoder, settings, states=None, rules=None):
    states = memory() if states is None else states
    state = decoder.start(states).per_prompt()
    ends = {"batch": len(states), "bos": BOS, "eos": EOS}
    return search(decoder.step, state, settings, constraints=rules or Constraints(), **ends)


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert [x.ids for x in a] == [x.ids for x in b]
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.logps, y.logps, atol=1e-4)
            assert x.score == pytest.approx(y.score, abs=1e-4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_sequences(shape, way):
    decoder = built(**shape)
    ready = pack_if_possible(decoder)
    assert isinstance(ready, PackedDecoder)
    assert_same(found(ready, WAYS[way]), found(decoder, WAYS[way]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_scores_step_by_step(shape):
    decoder = built(**shape)
    torch.manual_seed(4)
    ids = Padded(torch.randint(1, V, (5, 19)), torch.full((5,), 19))
    expected = decoder(ids, memory())
    ready = pack_if_possible(decoder)
    state = ready.start(memory(garbage=1e9))
    for t, column in enumerate(ids.data.unbind(1)):
        scores, state = ready.step(column, state)
        torch.testing.assert_close(scores, expected[:, t], rtol=1e-5, atol=1e-5)
    assert state.max_length == 19
    assert state.lengths.tolist() == [19] * 5


def test_a_state_is_a_value():
    decoder = built()
    ready = pack_if_possible(decoder)
    old, slow = ready.start(memory()), decoder.start(memory())
    for token in (5, 7):
        old, slow = (
            x.step(torch.full((5,), token), s)[1] for x, s in ((ready, old), (decoder, slow))
        )
    first, branch = ready.step(torch.full((5,), 4), old)
    first = first.clone()
    ready.step(torch.full((5,), 11), old)
    ours, _ = ready.step(torch.full((5,), 6), branch)
    theirs, _ = decoder.step(torch.full((5,), 6), decoder.step(torch.full((5,), 4), slow)[1])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    again, _ = ready.step(torch.full((5,), 4), old)
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    order = torch.tensor([3, 3, 0, 4])
    moved, _ = ready.step(torch.tensor([4, 6, 8, 9]), reorder(old, order))
    expected, _ = decoder.step(torch.tensor([4, 6, 8, 9]), reorder(slow, order))
    torch.testing.assert_close(moved, expected, rtol=1e-5, atol=1e-5)


def test_beams_share_encoder_states():
    decoder = built()
    ready = pack_if_possible(decoder)
    ids = torch.arange(1, 11)
    one, _ = ready.step(ids, expand_beams(ready.start(memory()).per_prompt(), 2))
    other, _ = decoder.step(ids, expand_beams(decoder.start(memory()), 2))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_requested_attention_weights_equal_the_unpacked_ones():
    decoder = built()
    ready = pack_if_possible(decoder)
    ours, theirs = ready.start(memory(), weights=True), decoder.start(memory(), weights=True)
    for token in (5, 7):
        ids = torch.full((5,), token)
        ours, theirs = ready.step(ids, ours)[1], decoder.step(ids, theirs)[1]
        torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-5, atol=1e-6)
    rules = Constraints(attention=lambda state: state.weights, source=memory().mask)
    settings = SearchSettings(num_beams=2, max_length=11, coverage_penalty=0.4)

    def looked(decoder):
        state = decoder.start(memory(), weights=True).per_prompt()
        return search(decoder.step, state, settings, batch=5, bos=BOS, eos=EOS, constraints=rules)

    assert_same(looked(ready), looked(decoder))


def test_words_are_scored_in_pieces(monkeypatch):
    decoder = built()
    expected = found(decoder, WAYS["beam"])
    monkeypatch.setattr(module, "CHUNK_WORDS", 5)
    ready = pack_if_possible(decoder)
    assert [part.weight.shape[0] for part in ready.packed.words] == [5, 5, 3]
    assert_same(found(ready, WAYS["beam"]), expected)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_rows_are_weighed_in_pieces(monkeypatch, rows):
    decoder = built()
    rules = Constraints(prefix=[[5], [], [6, 7], [8], []], forbidden=[9], minimum=[1, 3, 4, 1, 1])
    for way in ("beam", "groups"):
        expected = found(decoder, WAYS[way], rules=rules)
        with monkeypatch.context() as patch:
            patch.setattr(constraints, "CPU_CHUNK_LOGITS", rows * V)
            assert found(decoder, WAYS[way], rules=rules) == expected


def test_a_language_model_after_prompts():
    gpt = shaken(GPT(V, H, 2, N, 7, max_positions=31))
    ready = pack_if_possible(gpt)
    prompts = Padded(torch.randint(1, V, (3, 4)), torch.tensor([4, 1, 3]))
    _, ours = ready.prefill(prompts, ready.start(3))
    _, theirs = gpt.prefill(prompts, gpt.start(3, limit=31))
    for token in range(1, 25):
        ids = torch.full((3,), token % V)
        one, ours = ready.step(ids, ours)
        other, theirs = gpt.step(ids, theirs)
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_int8_is_close_and_enabled_by_the_setting():
    decoder = built(hidden=48, feed_forward=96)
    head = Seq2SeqHead(decoder, SearchSettings(), BOS, EOS).eval()
    exact = head(memory()).generate(SearchSettings(method="greedy", max_length=5))
    near = head(memory()).generate(
        SearchSettings(method="greedy", max_length=5, weight_dtype="int8")
    )
    apart = [abs(a[0].logps[0] - b[0].logps[0]) for a, b in zip(exact, near, strict=True)]
    assert 0 < max(apart) < 0.2
    message = r"Unknown choice 'int4' in generate.weight_dtype. Did you mean 'int8'\?"
    with pytest.raises(UserError, match=message):
        SearchSettings(weight_dtype="int4")


def test_changed_weights_are_laid_out_again():
    decoder = built()
    before = pack_if_possible(decoder)
    assert pack_if_possible(decoder).packed is before.packed
    old = found(before, WAYS["beam"])
    with torch.no_grad():
        decoder.blocks[1].feed_in.weight.mul_(3)
    after = found(pack_if_possible(decoder), WAYS["beam"])
    assert_same(after, found(decoder, WAYS["beam"]))
    assert [row[0].logps for row in after] != [row[0].logps for row in old]


def test_packed_weights_are_freed_with_the_decoder():
    gc.collect()  # what earlier tests have left must not go just now
    decoder = built()
    pack_if_possible(decoder)
    held = len(module._CACHE)
    assert copy.deepcopy(decoder) is not decoder
    del decoder
    gc.collect()
    assert len(module._CACHE) == held - 1


def test_unpackable_decoder_is_returned_unchanged():
    recurrent = shaken(RecurrentDecoder(V, M, width=5, hidden=7))
    assert pack_if_possible(recurrent) is recurrent
    assert pack_if_possible(built().train()).training
    assert pack_if_possible(built().double()).words.table.weight.dtype == torch.float64
    decoder = built()
    with torch.autocast("cpu", torch.bfloat16):
        assert pack_if_possible(decoder) is decoder


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_a_head_writes_with_what_is_fastest(kind, monkeypatch):
    decoder = (
        built() if kind == "transformer" else shaken(RecurrentDecoder(V, M, width=5, hidden=7))
    )
    calls = []
    step = PackedDecoder.step
    monkeypatch.setattr(PackedDecoder, "step", lambda *given: calls.append(1) or step(*given))
    head = Seq2SeqHead(decoder, WAYS["beam"], BOS, EOS).eval()
    states = memory((5, 2, 7))
    assert_same(head(states).generate(WAYS["beam"]), found(decoder, WAYS["beam"], states))
    assert bool(calls) == (kind == "transformer")


def test_not_a_number_stays_one():
    decoder = built()
    states = memory()
    states.data[0, 0, 0] = torch.nan
    ready = pack_if_possible(decoder)
    scores, _ = ready.step(torch.full((5,), 4), ready.start(states))
    assert scores.isnan().any(1).tolist() == [True, False, False, False, False]
