"""Steps of few rows by kernels of their own: the same numbers as by the blocks themselves."""

from types import SimpleNamespace

import pytest
import torch

from tests.fixtures.decode_graphs import (
    EOS,
    Counted,
    H,
    M,
    N,
    V,
    made,
    memory,
    plainly,
    same,
)
from weft.decode.cuda_graphs import decode_step as module
from weft.decode.cuda_graphs.decode_step import DecodeGraphs, copy_sharing_weights
from weft.decode.decoders import output_layer, small_batch
from weft.decode.decoders.transformer import GPT, Seq2SeqTransformerDecoder
from weft.decode.search import constraints
from weft.decode.search.search import NO_CONSTRAINTS
from weft.decode.search.settings import SearchSettings

MADE = {
    "gpt": lambda: GPT(V, H, 3, N, max_positions=29),
    "untied": lambda: GPT(V, H, 2, N, max_positions=29, tied=False, activation="gelu"),
    "before": lambda: Seq2SeqTransformerDecoder(
        V, M, H, 3, N, 7, norm="pre", activation="gelu-tanh"
    ),
    "behind": lambda: Seq2SeqTransformerDecoder(V, M, H, 3, N, 7, norm="post"),
    "learned": lambda: Seq2SeqTransformerDecoder(
        V, M, H, 2, N, 7, norm="post", positions="learned", tied=False
    ),
}

FEATURES = {"dtype": torch.bfloat16, "is_cuda": True, "dim": lambda: 2}


def laid_out(decoder):
    """As graphs lay one out, with all numbers of rows few."""
    with torch.no_grad():
        for p in decoder.parameters():  # norms and biases that do something
            p += 0.1 * torch.randn_like(p)
    writer = copy_sharing_weights(decoder)
    for block in writer.blocks:
        block.attention.fuse_qkv()
    writer.small_batch_rows = 99
    return writer


@torch.no_grad()
@pytest.mark.parametrize("kind", MADE)
def test_small_batch_step_equals_the_blocks(kind, monkeypatch):
    decoder = made(MADE[kind])
    writer = laid_out(decoder)
    calls, scored = [], []
    through, product = small_batch.run_blocks, small_batch.fused_linear
    monkeypatch.setattr(
        small_batch, "run_blocks", lambda *given: calls.append(1) or through(*given)
    )

    def counted(x, weight, *rest, **more):
        scored.append(weight is decoder.words.weight)
        return product(x, weight, *rest, **more)

    monkeypatch.setattr(small_batch, "fused_linear", counted)
    state = decoder.start(memory()) if decoder.reads_source else decoder.start(3)
    one, two = state, writer.with_static_cache(state, 6, beams=1)
    for ids in torch.randint(4, V, (6, 3)):
        wanted, one = decoder.step(ids, one)
        found, two = writer.step(ids, two)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(calls) == 6
    assert sum(scored) == 6  # the words too


@torch.no_grad()
def test_only_small_batches_use_the_fused_step():
    decoder = made(MADE["behind"])
    writer = laid_out(decoder)
    state = writer.with_static_cache(decoder.start(memory()), 6, beams=1)
    right, _ = writer.step(torch.tensor([4, 5, 6]), state)
    writer.small_batch_rows = 2  # three rows are more
    plain, _ = writer.step(
        torch.tensor([4, 5, 6]), writer.with_static_cache(decoder.start(memory()), 6, 1)
    )
    torch.testing.assert_close(plain, right, rtol=1e-5, atol=1e-5)
    assert decoder.small_batch_rows == 0  # the one that learns never does


@torch.no_grad()
def test_requested_attention_weights_come_from_the_blocks():
    decoder = made(MADE["before"])
    writer = laid_out(decoder)
    state = decoder.start(memory(), weights=True)
    _, wanted = decoder.step(torch.tensor([4, 5, 6]), state)
    _, found = writer.step(torch.tensor([4, 5, 6]), writer.with_static_cache(state, 6, beams=1))
    torch.testing.assert_close(found.weights, wanted.weights)
    assert found.weights.sum() > 0


@pytest.mark.parametrize(
    ("feed", "rows"), [(7, small_batch.SMALL_BATCH_ROWS), (small_batch.MAX_INPUT_WIDTH + 1, 0)]
)
def test_wide_matrices_are_not_for_it(feed, rows, monkeypatch):
    monkeypatch.setattr(module, "has_kernel", lambda *_: True)
    monkeypatch.setattr(small_batch, "has_kernel", lambda *_: True)
    decoder = made(lambda: Seq2SeqTransformerDecoder(V, M, H, 1, N, feed))
    graphs = DecodeGraphs(decoder, Counted())
    graphs.generate(
        memory(), SearchSettings(num_beams=3, max_length=2), NO_CONSTRAINTS, bos=2, eos=EOS
    )
    assert graphs.step_decoder.small_batch_rows == rows


def test_a_processor_has_no_kernel_for_it():
    assert not small_batch.has_kernel(torch.device("cpu"), torch.float32)


def test_one_that_fails_is_left_out(monkeypatch):
    tries = []

    def broken(*_):
        tries.append(1)
        raise RuntimeError("0.7 away from the reference\nand more")

    monkeypatch.setattr(module, "has_kernel", lambda *_: True)
    monkeypatch.setattr(small_batch, "has_kernel", broken)
    decoder, settings = made(MADE["before"]), SearchSettings(num_beams=3, max_length=7)
    graphs = DecodeGraphs(decoder, Counted())
    for _ in range(2):
        found = graphs.generate(memory(), settings, NO_CONSTRAINTS, bos=2, eos=EOS)
        same(found, plainly(decoder, memory(), settings))
    assert len(tries) == 1  # a kernel that fails is compiled once, not for every search
    assert graphs.problem == (
        "Small batches go on without the fused linear kernel: RuntimeError: 0.7 away from "
        "the reference"
    )
    assert graphs.step_decoder.small_batch_rows == 0


def test_a_device_without_the_kernel_for_the_largest_sorts():
    values = torch.randn(3, 900)
    found, places = constraints._kernel_topk(values, 4)
    wanted = values.topk(4)
    assert torch.equal(found, wanted.values)
    assert torch.equal(places, wanted.indices)
    assert not constraints._has_kernel(torch.device("cpu"))


def test_scores_of_an_odd_vocabulary_are_in_rows_for_matrix_units():
    features, weight = torch.randn(3, 5), torch.randn(21, 5)
    made = output_layer._padded_logits(features, weight)
    torch.testing.assert_close(made, features @ weight.T)
    assert made.stride() == (24, 1)
    torch.library.opcheck(output_layer._padded_logits, (features, weight))


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_such_scores_are_the_scores(bias, monkeypatch):
    vocabulary = output_layer.OutputLayer(21, 5, 5, bias=bias)
    for p in vocabulary.parameters():
        p += 1
    features = torch.randn(3, 5)
    wanted = vocabulary.logits(features)
    monkeypatch.setattr(output_layer, "_needs_row_padding", lambda *_: True)
    found = vocabulary.logits(features)
    assert found.stride() == ((21, 1) if bias else (24, 1))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"is_cuda": False}, False),
        ({"dim": lambda: 3}, False),  # all steps at once are for whoever learns or measures
        ({"dtype": torch.float32}, False),
        ({"dtype": torch.float16}, False),  # the matrix is of another kind: under autocast
    ],
)
def test_only_what_units_cannot_write_is_written_otherwise(changes, expected):
    features = SimpleNamespace(**{**FEATURES, **changes})
    assert (
        output_layer._needs_row_padding(features, torch.empty(21, 5, dtype=torch.bfloat16))
        is expected
    )
    assert not output_layer._needs_row_padding(features, torch.empty(24, 5, dtype=torch.bfloat16))
