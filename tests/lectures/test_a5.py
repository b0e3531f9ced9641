"""A5: the masks of self-attention that deck 001 draws, by one setting.

softmax over the allowed steps of QKᵀ/√d: all, those before and at a step, all but itself, a band.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.fixtures.attention import SCORES, build_spec
from weft.attend.multihead import MultiHeadAttention
from weft.attend.settings import Attention, MaskPattern
from weft.batch import Padded
from weft.config import recipe
from weft.decode.cuda_graphs import decode_step
from weft.decode.decoders import small_batch
from weft.decode.decoders.packed import PackedDecoder, pack_if_possible
from weft.decode.search.search import NO_CONSTRAINTS, search
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.model import fill

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
H, N, T, V = 6, 2, 5, 11
ALLOWED = {
    "full": lambda i, j, w: True,
    "causal": lambda i, j, w: j <= i,
    "no-diagonal": lambda i, j, w: j != i,
    "local": lambda i, j, w: abs(i - j) <= w,
}
MASKS = [("full", None), ("causal", None), ("no-diagonal", None), ("local", 1), ("local", 0)]
SMALL = {"hidden": 4, "heads": 2, "layers": 2, "feed_forward": 5}


def matrix(mask, window, causal=False):
    """The matrix on the slide: which step (row) attends to which (column)."""
    rows = range(T)
    return np.array(
        [[ALLOWED[mask](i, j, window) and (j <= i or not causal) for j in rows] for i in rows]
    )


def section(mask, window, score="scaled"):
    return {"score": score, "mask": mask, **({} if window is None else {"window": window})}


@pytest.mark.parametrize(("mask", "window"), MASKS)
def test_self_attention_is_the_masked_softmax_of_the_slide(mask, window):
    torch.manual_seed(1)
    net = MultiHeadAttention(H, N, attention=Attention("scaled", mask, window)).eval()
    x = torch.randn(1, T, H)
    found, weights = net(x, return_weights=True)
    q, k, v = (
        layer(x)[0].detach().numpy().reshape(T, N, H // N)
        for layer in (net.query, net.key, net.value)
    )
    contexts = []
    for n in range(N):
        scores = q[:, n] @ k[:, n].T / math.sqrt(H // N)
        powers = np.exp(scores) * matrix(mask, window)
        alpha = powers / powers.sum(1, keepdims=True)
        np.testing.assert_allclose(weights[0, n].detach(), alpha, rtol=1e-5, atol=1e-5)
        contexts.append(alpha @ v[:, n])
    expected = net.output(torch.from_numpy(np.concatenate(contexts, 1)).float())
    torch.testing.assert_close(found[0], expected, **CLOSE)
    torch.testing.assert_close(net(x)[0][0], expected, **CLOSE)  # by the fused kernel
    allowed = torch.from_numpy(matrix(mask, window))
    theirs = F.scaled_dot_product_attention(
        *(torch.from_numpy(part).transpose(0, 1) for part in (q, k, v)), attn_mask=allowed
    )
    torch.testing.assert_close(found[0], net.output(theirs.transpose(0, 1).flatten(1)), **CLOSE)


def test_question_one_a_diagonal_matrix_leaves_each_step_alone():
    torch.manual_seed(1)
    net = MultiHeadAttention(H, N, attention=Attention("scaled", "local", 0)).eval()
    x = torch.randn(1, T, H)
    torch.testing.assert_close(net(x)[0], net.output(net.value(x)), **CLOSE)


def test_question_two_a_band_has_the_reach_of_a_convolution():
    spec = {"kind": "transformer", **SMALL, "layers": 1, "positions": "none"}
    encoder = build_spec(
        "encoder", {**spec, "[attention]": section("local", 1)}, input_size=4
    ).eval()
    x = torch.randn(1, T, 4, requires_grad=True)
    conv = torch.nn.Conv1d(4, 4, kernel_size=3, padding=1)
    for t in range(T):
        states = encoder(Padded(x, torch.tensor([T]))).data
        (reach,) = torch.autograd.grad((states[0, t] * torch.arange(1, 5)).sum(), x)
        (kernel,) = torch.autograd.grad(conv(x.transpose(1, 2))[0, :, t].sum(), x)
        assert reach[0].any(1).tolist() == kernel[0].any(1).tolist()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("weights", [False, True])
def test_a_step_that_may_attend_to_nothing_gets_zeros(score, weights):
    torch.manual_seed(1)
    net = MultiHeadAttention(H, N, attention=Attention(score, "no-diagonal")).eval()
    x = torch.randn(2, 3, H)
    mask = torch.tensor([[True, False, False], [True, True, True]])
    x.requires_grad_()
    found, alpha = net(x, mask=mask, return_weights=weights)
    nothing = net.output(torch.zeros(H))
    torch.testing.assert_close(found[0, 0], nothing, **CLOSE)
    assert not torch.allclose(found[1], nothing)
    if weights:
        assert not alpha[0, :, 0].any()
        torch.testing.assert_close(alpha[1].sum(-1), torch.ones(N, 3))
    found.square().sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("mask", "window"), MASKS)
def test_an_encoder_answers_the_same_packed(score, mask, window):
    torch.manual_seed(1)
    spec = {"kind": "transformer", **SMALL, "[attention]": section(mask, window, score)}
    encoder = build_spec("encoder", spec, input_size=4).eval()
    x = Padded(torch.randn(4, T, 4), torch.tensor([5, 1, 3, 3]))
    expected = encoder(x)  # gradients are wanted: not packed
    with torch.no_grad():
        found = encoder(x)
        maps = encoder.attention_weights(x)
    assert not found.data.requires_grad
    torch.testing.assert_close(found.data, expected.data, **CLOSE)
    sums = 0.0 if mask == "no-diagonal" else 1.0
    torch.testing.assert_close(maps[0][1, :, 0].sum(-1), torch.full((2,), sums))  # one word
    torch.testing.assert_close(maps[1][0].sum(-1), torch.ones(2, T))


# ---- decoders: causal and the mask


def decoder(kind, score, mask, window):
    torch.manual_seed(1)
    spec = {"kind": kind, **SMALL, "[attention]": section(mask, window, score)}
    return build_spec("decoder", spec, vocabulary_size=V, memory_size=4).eval()


def inputs(built):
    torch.manual_seed(2)
    ids = Padded(torch.randint(1, V, (3, T)), torch.full((3,), T))
    memory = Padded(torch.randn(3, 4, 4), torch.tensor([4, 2, 0]))
    return (ids, memory) if built.reads_source else (ids,)


CAUSAL = [("causal", None), ("no-diagonal", None), ("local", 1)]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("mask", "window"), CAUSAL)
@pytest.mark.parametrize("kind", ["transformer", "gpt"])
def test_steps_over_every_cache_are_those_of_teacher_forcing(kind, score, mask, window):
    built = decoder(kind, score, mask, window)
    ids, *memory = inputs(built)
    whole = built(ids, *memory)
    start = (lambda **o: built.start(*memory, **o)) if memory else lambda **o: built.start(3, **o)
    states = {
        "growing": start(),
        "static": start(limit=T),
        "grown, then static": built.with_static_cache(start(), T),
        "pinned": built.with_static_cache(start(), T, beams=1),
    }
    assert bool(states["pinned"].beams) == built.has_attention_kernel
    for name, state in states.items():
        for t, column in enumerate(ids.data.unbind(1)):
            with torch.no_grad():
                logits, state = built.step(column, state)
            torch.testing.assert_close(logits, whole[:, t], **CLOSE, msg=lambda m, n=name: n + m)
    if not memory:  # a prompt, and what follows it
        prompt = Padded(ids.data[:, :3], torch.tensor([3, 3, 3]))
        for state in (start(), start(limit=T)):
            _, state = built.prefill(prompt, state)
            torch.testing.assert_close(built.step(ids.data[:, 3], state)[0], whole[:, 3], **CLOSE)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("mask", "window"), CAUSAL)
@pytest.mark.parametrize("kind", ["transformer", "gpt"])
def test_a_packed_decoder_is_the_same_or_is_not_packed(kind, score, mask, window):
    built = decoder(kind, score, mask, window)
    packed = pack_if_possible(built)
    assert isinstance(packed, PackedDecoder) == (score != "additive" and mask == "causal")
    ids, *memory = inputs(built)
    whole = built(ids, *memory)
    state = packed.start(*memory) if memory else packed.start(3)
    for t, column in enumerate(ids.data.unbind(1)):
        with torch.no_grad():
            logits, state = packed.step(column, state)
        torch.testing.assert_close(logits, whole[:, t], rtol=1e-5, atol=1e-5)


def test_a_decoder_never_sees_what_follows():
    for mask, window in CAUSAL:
        pattern = MaskPattern(mask, window).mask_steps(T, T, causal=True)
        assert pattern.tolist() == matrix(mask, window, causal=True).tolist()


def test_beam_search_is_the_same_over_static_caches():
    built = decoder("transformer", "additive", "local", 1)
    memory = inputs(built)[1]
    settings = SearchSettings(method="beam", num_beams=2, max_length=T)
    found = []
    with torch.no_grad():
        for state in (built.start(memory), built.start(memory, limit=T + 1)):
            found.append(search(built.step, state, settings, batch=3, bos=2, eos=3))
    assert [[h.ids for h in row] for row in found[0]] == [[h.ids for h in row] for row in found[1]]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("mask", "window"), CAUSAL)
def test_decoding_graphs_take_kernels_only_where_they_compute_the_score(
    score, mask, window, monkeypatch
):
    """As on a GPU, with the kernels' reference in their place."""
    monkeypatch.setattr(decode_step, "has_kernel", lambda *_: True)
    monkeypatch.setattr(small_batch, "has_kernel", lambda *_: True)
    built = decoder("transformer", score, mask, window)
    memory = inputs(built)[1]
    graphs = decode_step.DecodeGraphs(built, lambda work: work)
    settings = SearchSettings(method="beam", num_beams=2, max_length=T)
    with torch.no_grad():
        expected = search(built.step, built.start(memory), settings, batch=3, bos=2, eos=3)
        found = graphs.generate(memory, settings, NO_CONSTRAINTS, bos=2, eos=3)
    assert not graphs.problem
    assert [[h.ids for h in row] for row in found] == [[h.ids for h in row] for row in expected]
    for row, right in zip(found, expected, strict=True):
        assert [h.score for h in row] == pytest.approx([h.score for h in right], abs=1e-5)
    rows = graphs.step_decoder.small_batch_rows
    assert bool(rows) == (score == "scaled" and mask == "causal")


# ---- the setting


def filled(name, **values):
    changes = {f"attention.{key}": value for key, value in values.items()}
    return fill(recipe(name).with_values(changes, "test").sections)["attention"]


def test_the_mask_is_one_setting():
    assert filled("transformer", mask="no-diagonal") == {"score": "scaled", "mask": "no-diagonal"}
    assert filled("transformer", mask="local") == {"score": "scaled", "mask": "local", "window": 2}
    assert filled("tagger-transformer", mask="local", window=0)["window"] == 0
    assert filled("seq2seq-transformer", mask="local", window=3) == {
        "score": "scaled", "mask": "local", "window": 3,
    }  # fmt: skip


def test_masks_that_do_not_fit_are_refused():
    def refused(name, message, **values):
        with pytest.raises(UserError, match=message):
            filled(name, **values)

    refused("gpt", "decoder 'gpt' writes a text from left to right", mask="full")
    refused("seq2seq-transformer", "decoder 'transformer' writes a text from left", mask="full")
    refused(
        "bilstm-attention", "attention.mask = 'local', but this model has no self", mask="local"
    )
    refused("cnn", "attention.mask = 'causal', but this model has no self-attention", mask="causal")
    refused("transformer", "'mask' should be one of 'full', 'causal', 'no-diag", mask="diagonal")
    refused("transformer", "attention.window = 3 is the width of the mask 'local'", window=3)
    refused("transformer", "should be 0 or more, got -1", mask="local", window=-1)
