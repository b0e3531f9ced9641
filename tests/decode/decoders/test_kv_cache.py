"""Caches whose rows stay where they are, against caches that move with their beams."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.fixtures.decode_graphs import (
    DECODERS,
    EOS,
    WAYS,
    Counted,
    H,
    M,
    N,
    V,
    made,
    memory,
    plainly,
    prompted,
    same,
)
from tests.fixtures.lazy_source_reader import Reader
from weft.batch import Padded
from weft.decode.cuda_graphs import decode_step as module
from weft.decode.cuda_graphs.decode_step import DecodeGraphs
from weft.decode.decoders import kv_cache, small_batch
from weft.decode.decoders.transformer import GPT, Seq2SeqTransformerDecoder
from weft.decode.search import beam
from weft.decode.search.constraints import Constraints
from weft.decode.search.search import NO_CONSTRAINTS, search
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import (
    Pinned,
    expand_beams,
    iter_tensors,
    map_tensors,
    reorder,
    select_prompts,
)

BEAMS = [
    SearchSettings(num_beams=2, max_length=7),
    WAYS[1],
    WAYS[2],
    SearchSettings(
        num_beams=5,
        num_return=3,
        max_length=13,
        length_normalisation="length",
        length_penalty=1.0,
        early_stopping="full",
    ),
]


@pytest.fixture(params=["past", "few"])
def kernel(request, monkeypatch):
    """As on a device that has one; with `few`, one for products as well, whatever the rows."""
    monkeypatch.setattr(module, "has_kernel", lambda *_: True)
    if request.param == "few":
        monkeypatch.setattr(small_batch, "has_kernel", lambda *_: True)
        monkeypatch.setattr(small_batch, "SMALL_BATCH_ROWS", 99)
    return request.param


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("kernel", ["kv_cache_kernel", "fused_linear_kernel", "loss_kernel"])
def test_kernels_in_the_interpreter(kernel):
    """The attention of one step, and the slopes of a loss."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", f"tests.fixtures.{kernel}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.stdout.endswith("all equal\n"), done.stderr[-2000:]


def steps(model, columns, state):
    out = []
    for column in columns:
        scores, state = model.step(column, state)
        out.append(scores)
    return torch.stack(out, 1), state


def test_a_single_step_sees_what_its_row_wrote():
    torch.manual_seed(4)
    q, k, v = torch.randn(3, 4, N, 1, 5)
    keys, values = torch.randn(2, 4, N, 7, 5)
    position = torch.tensor([0, 6, 2, 3])
    wanted = []
    for b, at in enumerate(position):
        near, far = (
            torch.cat([past[b, :, :at], one[b]], 1) for past, one in ((keys, k), (values, v))
        )
        shares = (q[b] @ near.transpose(1, 2) / 5**0.5).softmax(-1)
        wanted.append((shares @ far).transpose(0, 1).flatten(1))
    found = kv_cache.self_attend(q, k, v, keys, values, position, None, 1)
    torch.testing.assert_close(found, torch.stack(wanted))
    assert torch.equal(keys[1, :, 6], k[1, :, 0])
    assert torch.equal(values[2, :, 2], v[2, :, 0])


@pytest.mark.parametrize("more", [1, 3])
def test_rows_that_change_places_see_the_same_past(more):
    """Steps, a change of places, then one step or several at once, as with a past that moves."""
    decoder = made(DECODERS["transformer"])
    torch.manual_seed(6)
    ids = torch.randint(4, V, (6, 9))
    with torch.no_grad():
        moved = decoder.with_static_cache(decoder.start(memory(2)), 9)
        still = decoder.with_static_cache(decoder.start(memory(2)), 9, beams=3)
        states = [expand_beams(state, 3) for state in (moved, still)]
        for t, places in enumerate(([0, 0, 2, 4, 3, 4], [1, 2, 2, 5, 5, 5], [2, 0, 0, 4, 4, 3])):
            found, states = zip(*(decoder.step(ids[:, t], s) for s in states), strict=True)
            torch.testing.assert_close(*found)
            states = [reorder(state, torch.tensor(places)) for state in states]
        assert states[1].rows[:, :4].tolist() == [
            [2, 2, 2, 0], [0, 1, 0, 0], [0, 1, 0, 0], [1, 2, 1, 0], [1, 2, 1, 0], [1, 2, 0, 0]
        ]  # fmt: skip
        # Which rows of a prompt are left does not matter to it.
        states = [select_prompts(state, torch.tensor([1]), 3) for state in states]
        given = Padded(ids[3:, 3 : 3 + more], torch.tensor([more] * 3))
        reads, states = zip(*(decoder.prefill(given, s) for s in states), strict=True)
        torch.testing.assert_close(reads[0].hidden, reads[1].hidden)
        found = [decoder.step(ids[3:, 7], state)[0] for state in states]
        torch.testing.assert_close(*found)


def test_only_a_change_of_places_leaves_unmoved_parts_alone():
    state = (Pinned(torch.arange(6).view(3, 2)), torch.arange(3))
    index = torch.tensor([2, 0, 0])
    after = reorder(state, index)
    assert after[0] is state[0]
    assert after[1].tolist() == [2, 0, 0]
    assert len(list(iter_tensors(state))) == 2
    assert expand_beams(state, 2)[0].value.shape == (6, 2)
    assert select_prompts(state, torch.tensor([2]), 1)[0].value.tolist() == [[4, 5]]
    assert map_tensors(torch.clone, state)[0].value is not state[0].value


@pytest.mark.parametrize("shrink", [True, False])
@pytest.mark.parametrize("settings", BEAMS, ids=lambda s: f"{s.num_beams}-{s.num_beam_groups}")
def test_a_beam_over_an_unmoved_past_is_the_same(settings, shrink):
    """Rows end early and leave, a prefix is forced, and prompts have limits of their own."""
    decoder = made(DECODERS["transformer"])
    settings = replace(settings, drop_finished=shrink)
    rules = Constraints(prefix=[[5, 6], [], [4]], limit=[5, 9, 3], forbidden=[7], minimum=[2, 3, 1])
    ends = {"batch": 3, "bos": 2, "eos": EOS}
    for asked in (NO_CONSTRAINTS, rules):
        with torch.no_grad():
            begun = decoder.start(memory()).per_prompt()
            one = decoder.with_static_cache(begun, 23)
            two = decoder.with_static_cache(begun, 23, beams=settings.num_beams)
            assert isinstance(two.past, Pinned)
            wanted = search(decoder.step, one, settings, constraints=asked, **ends)
            found = search(decoder.step, two, settings, constraints=asked, **ends)
        same(found, wanted, tolerance=1e-6)


@pytest.mark.parametrize("settings", [*WAYS, BEAMS[3]], ids=lambda s: f"{s.method}{s.num_beams}")
def test_graphs_over_an_unmoved_past(kernel, settings):
    decoder, capture = made(DECODERS["transformer"]), Counted()
    graphs = DecodeGraphs(decoder, capture)
    rules = Constraints(prefix=[[5, 6], [], [4]], limit=[5, 9, 3], minimum=[2, 3, 1])
    for asked in (NO_CONSTRAINTS, rules):
        wanted = plainly(decoder, memory(), settings, asked)
        for _ in range(2):
            same(graphs.generate(memory(), settings, asked, bos=2, eos=EOS), wanted)
        ((slot,),) = graphs.buffers.values()
        assert slot.run.state.beams == (settings.num_beams if settings.method == "beam" else 1)
        assert list(slot.graphs) == [0]  # one graph, however far the past reaches
        graphs.buffers.clear()
    assert capture.captured == 2
    assert not graphs.problem


@torch.no_grad()
@pytest.mark.parametrize("settings", WAYS, ids=lambda s: f"{s.method}{s.num_beam_groups}")
def test_a_source_is_read_into_an_unmoved_past(kernel, settings):
    """By a graph from the second turn on, over what the search before left behind."""
    decoder, reader = made(DECODERS["transformer"]), Reader()
    graphs = DecodeGraphs(decoder, Counted())
    for turn, lengths in enumerate([[3, 2, 7], [5, 1, 4], [2, 9, 6]]):
        given = reader.of(lengths, turn)
        found = graphs.generate(given, settings, NO_CONSTRAINTS, bos=2, eos=EOS)
        same(found, plainly(decoder, given.memory, settings))
    ((slot,),) = graphs.buffers.values()
    assert [one.replay is not None for one in slot.prefills.values()] == [True]
    assert not graphs.problem


@pytest.mark.parametrize("settings", [WAYS[0], WAYS[1], WAYS[3]], ids=lambda s: s.method)
def test_prompts_go_on_over_an_unmoved_past(kernel, settings):
    decoder = made(lambda: GPT(V, H, 2, N, max_positions=29))
    graphs = DecodeGraphs(decoder, Counted())
    for length in (1, 5, 3):
        ids = torch.randint(4, V, (2, length), generator=torch.Generator().manual_seed(length))
        rest = {"batch": 2, "bos": ids[:, -1], "eos": EOS}
        with torch.no_grad():
            wanted = search(decoder.step, prompted(decoder, ids), settings, **rest)
            step, state, own, faster = graphs.prepare(
                prompted(decoder, ids), settings, NO_CONSTRAINTS
            )
            same(search(step, state, own, **rest, wrap_step=faster), wanted)


@pytest.mark.parametrize("settings", WAYS[:3], ids=lambda s: f"{s.method}{s.num_beam_groups}")
@pytest.mark.parametrize("kind", ["transformer", "gpt"])
def test_a_compiled_step_over_an_unmoved_past(kernel, monkeypatch, kind, settings):
    """One whole function to the compiler, which sees rooms that change and gives them back."""
    torch._dynamo.reset()
    compiled = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda step, options, **how: compiled(step, backend="aot_eager", **how),
    )
    decoder = made(DECODERS.get(kind, lambda: GPT(V, H, 2, N, max_positions=29)))
    graphs = DecodeGraphs(decoder, Counted(), compiled=True)
    ids = torch.tensor([[4, 5, 6], [7, 8, 9], [5, 5, 4]])

    def begun():
        return prompted(decoder, ids) if kind == "gpt" else decoder.start(memory()).per_prompt()

    ends = {"batch": 3, "bos": 2, "eos": EOS}
    with torch.no_grad():
        wanted = search(decoder.step, begun(), settings, **ends)
        for _ in range(2):
            step, state, how, faster = graphs.prepare(begun(), settings, NO_CONSTRAINTS)
            same(search(step, state, how, **ends, wrap_step=faster), wanted)
    ((slot,),) = graphs.buffers.values()
    assert slot.compiled
    assert not graphs.problem


def test_a_memory_is_shared_by_rows_next_to_each_other():
    torch.manual_seed(8)
    q, (keys, values) = torch.randn(6, N, 1, 5), torch.randn(2, 3, N, 7, 5)
    lengths = torch.tensor([4, 0, 7])
    found = kv_cache.cross_attend(q, keys, values, lengths).unflatten(2, (N, 5))
    for row in range(6):
        own = slice(int(lengths[row // 2]))
        shares = (q[row] @ keys[row // 2, :, own].transpose(1, 2) / 5**0.5).softmax(-1)
        torch.testing.assert_close(found[row, 0], (shares @ values[row // 2, :, own])[:, 0])


@pytest.mark.parametrize("shared", [True, False])
def test_a_row_with_an_empty_memory_finds_nothing_there(shared):
    decoder = made(lambda: Seq2SeqTransformerDecoder(V, M, H, 2, N, 7))
    torch.manual_seed(2)
    source = Padded(torch.randn(3, 7, M), torch.tensor([3, 0, 7]))
    columns = torch.randint(4, V, (5, 3))
    with torch.no_grad():
        state = decoder.start(source)
        state = state.per_prompt() if shared else state
        wanted, _ = steps(decoder, columns, state)
        found, after = steps(decoder, columns, decoder.with_static_cache(state, 5, beams=1))
    torch.testing.assert_close(found, wanted)
    mask = after.mask.value if shared else after.mask
    assert mask.tolist() == [3, 0, 7]


def test_requested_attention_weights_equal_those_without_cache(kernel):
    decoder = made(DECODERS["transformer"])
    columns = torch.randint(4, V, (5, 3))
    with torch.no_grad():
        state = decoder.start(memory(), weights=True)
        found, after = steps(decoder, columns, decoder.with_static_cache(state, 5, beams=1))
        wanted, last = steps(decoder, columns, state)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(after.weights, last.weights)


def test_a_processor_moves_its_past():
    assert not kv_cache.has_kernel(torch.device("cpu"), torch.float32, 64)
    decoder = made(DECODERS["transformer"])
    state = (
        DecodeGraphs(decoder, Counted())
        .prepare(decoder.start(memory()), WAYS[1], NO_CONSTRAINTS)
        .state
    )
    assert (state.beams, state.rows) == (0, None)


def test_a_kernel_that_fails_is_left_out(monkeypatch):
    calls = []

    def broken(*given):
        calls.append(given)
        raise RuntimeError("no image for this device\nmore")

    monkeypatch.setattr(module, "has_kernel", broken)
    decoder, capture = made(DECODERS["transformer"]), Counted()
    graphs = DecodeGraphs(decoder, capture)
    for _ in range(2):
        found = graphs.generate(memory(), WAYS[1], NO_CONSTRAINTS, bos=2, eos=EOS)
        same(found, plainly(decoder, memory(), WAYS[1]))
    assert calls == [(torch.device("cpu"), torch.float32, H // N)]
    assert graphs.problem == (
        "Decoding goes on without the KV-cache attention kernel: RuntimeError: no image for this "
        "device"
    )
    assert capture.replayed


def test_ranks_are_what_sorting_finds():
    torch.manual_seed(3)
    values = torch.randn(5, 2, 11)
    values[0, 0, 3] = torch.nan
    values[1, :, 4:] = -torch.inf
    for count in (1, 4, 11):
        found, places = beam.topk_by_comparison(values, count)
        wanted, _ = values.topk(count)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(found, values.gather(-1, places), rtol=0, atol=0, equal_nan=True)
        assert all(len(set(row)) == count for row in places.flatten(0, 1).tolist())
    assert beam.topk_by_comparison(torch.tensor([1.0, 2, 2, 0]), 3)[1].tolist() == [1, 2, 0]


@pytest.mark.parametrize("settings", BEAMS, ids=lambda s: f"{s.num_beams}-{s.num_beam_groups}")
def test_a_beam_by_ranks_is_the_same(monkeypatch, settings):
    decoder = made(DECODERS["transformer"])
    wanted = plainly(decoder, memory(), settings)
    calls = []

    def noted(values, count):
        calls.append(count)
        return beam.topk_by_comparison(values, count)

    monkeypatch.setattr(beam, "_topk", noted)
    same(plainly(decoder, memory(), settings), wanted, tolerance=0)
    assert len(calls) > 6
