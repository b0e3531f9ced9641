"""Searches whose steps are graphs against the same searches step by step.

Capturing is a plain call here: what is replayed reads and writes memory that stays, as on a GPU.
"""

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

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
from weft.batch import Padded
from weft.decode.cuda_graphs import decode_step as module
from weft.decode.cuda_graphs.decode_step import DecodeGraphs
from weft.decode.decoders.language_models import RecurrentLM
from weft.decode.decoders.prompt_continuation import PromptContinuation
from weft.decode.decoders.transformer import GPT, Seq2SeqTransformerDecoder
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search.constraints import Constraints
from weft.decode.search.search import NO_CONSTRAINTS, search, stream
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import iter_tensors
from weft.predict.generation.batch import GenerationBatch
from weft.predict.generation.torch_search import TorchSearch


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch):
    monkeypatch.setattr(module, "MIN_CACHE_STEPS", 4)  # so that it is outgrown


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("settings", WAYS, ids=lambda s: f"{s.method}{s.num_beam_groups}")
def test_as_step_by_step(kind, settings):
    decoder, capture = made(DECODERS[kind]), Counted()
    graphs = DecodeGraphs(decoder, capture)
    wanted = plainly(decoder, memory(), settings)
    for turn in range(3):
        with torch.no_grad():
            same(graphs.generate(memory(), settings, NO_CONSTRAINTS, bos=2, eos=EOS), wanted)
        if turn == 1:
            first = capture.captured
    assert 0 < first == capture.captured < capture.replayed  # later searches capture nothing
    assert len(graphs.buffers) == 1
    assert not graphs.problem


def test_rows_are_padded_so_that_shapes_repeat():
    decoder, capture = made(DECODERS["transformer"]), Counted()
    graphs, settings = DecodeGraphs(decoder, capture), WAYS[1]
    shapes = []
    for rows in (3, 2, 1):
        source = memory(rows)
        found = graphs.generate(source, settings, NO_CONSTRAINTS, bos=2, eos=EOS)
        same(found, plainly(decoder, source, settings))
        shapes.append(len(graphs.buffers))
    assert shapes == [1, 2, 3]
    assert [module._round_up_rows(n) for n in (1, 2, 3, 5, 6, 7, 33, 48, 49, 64)] == [
        1, 2, 3, 6, 6, 8, 48, 48, 64, 64
    ]  # fmt: skip


def test_rules_of_each_row_hold():
    decoder = made(DECODERS["transformer"])
    rules = Constraints(prefix=[[5, 6], [], [4]], limit=[5, 9, 3], forbidden=[7], minimum=[2, 3, 1])
    found = DecodeGraphs(decoder, Counted()).generate(memory(), WAYS[1], rules, bos=2, eos=EOS)
    same(found, plainly(decoder, memory(), WAYS[1], rules))


@pytest.mark.parametrize(
    "build", [lambda: GPT(V, H, 2, N, max_positions=29), lambda: RecurrentLM(V, 5)]
)
@pytest.mark.parametrize("settings", [WAYS[0], WAYS[3]], ids=lambda s: s.method)
def test_language_models_go_on_from_a_prompt(build, settings):
    decoder, capture = made(build), Counted()
    graphs = DecodeGraphs(decoder, capture)
    torch.manual_seed(5)
    for steps in (5, 3):
        ids = torch.randint(4, V, (2, steps))
        rest = {"batch": 2, "bos": ids[:, -1], "eos": EOS}
        with torch.no_grad():
            wanted = search(decoder.step, prompted(decoder, ids), settings, **rest)
            step, state, own, faster = graphs.prepare(
                prompted(decoder, ids), settings, NO_CONSTRAINTS
            )
            assert faster is not None
            same(search(step, state, own, **rest, wrap_step=faster), wanted)
    assert len(graphs.buffers) == 1  # prompts of all lengths have the same room
    assert capture.replayed > 3


def test_two_streams_do_not_disturb_each_other():
    decoder = made(lambda: GPT(V, H, 2, N, max_positions=29))
    graphs, settings = (
        DecodeGraphs(decoder, Counted()),
        replace(WAYS[3], num_samples=1, check_every=1),
    )

    def pieces(seed, with_graphs):
        rules = Constraints(seeds=[seed])
        step, state, own, faster = graphs.prepare(decoder.start(1), settings, rules)
        if not with_graphs:
            step, state, own, faster = decoder.step, decoder.start(1), settings, None
        for (piece,) in stream(
            step, state, own, batch=1, bos=2, eos=EOS, constraints=rules, wrap_step=faster
        ):
            yield piece.ids

    with torch.no_grad():
        wanted = [[id for ids in pieces(seed, False) for id in ids] for seed in (1, 2)]
        both = [pieces(seed, True) for seed in (1, 2)]
        found = [[], []]
        for _ in range(settings.max_length):
            for ids, one in zip(found, both, strict=True):
                ids += next(one, [])
    assert found == wanted
    assert wanted[0] != wanted[1]


def test_graphs_are_off_where_they_cannot_be_captured():
    decoder, capture = made(lambda: GPT(V, H, 2, N, max_positions=29)), Counted()
    graphs = DecodeGraphs(decoder, capture)

    def faster(settings=WAYS[0], rules=NO_CONSTRAINTS):
        return graphs.prepare(decoder.start(2), settings, rules).wrap_step

    assert faster() is not None
    assert faster(replace(WAYS[0], cuda_graphs="off")) is None
    assert faster(replace(WAYS[0], max_length=30)) is None  # positions end before
    assert faster(rules=Constraints(allowed=lambda past, row: torch.ones(2, V).bool())) is None
    assert faster(rules=Constraints(allowed=torch.ones(V).bool())) is not None
    # A growing cache has another shape at every step, whatever it is handed to.
    rest = {"batch": 2, "bos": 2, "eos": EOS}
    with torch.no_grad():
        wanted = search(decoder.step, decoder.start(2), WAYS[0], **rest)
        found = search(decoder.step, decoder.start(2), WAYS[0], **rest, wrap_step=graphs.wrap_step)
    same(found, wanted)
    assert not capture.captured


def test_uncapturable_step_runs_eagerly():
    def refuse(work):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, refuse)
    same(
        graphs.generate(memory(), WAYS[0], NO_CONSTRAINTS, bos=2, eos=EOS),
        plainly(decoder, memory(), WAYS[0]),
    )
    assert graphs.problem == (
        "A step could not be captured: RuntimeError: operation not permitted when stream is "
        "capturing"
    )


def test_new_weights_are_seen_and_copies_start_afresh():
    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, Counted())
    before = graphs.generate(memory(), WAYS[0], NO_CONSTRAINTS, bos=2, eos=EOS)
    with torch.no_grad():
        decoder.words.table.weight.neg_()
    after = graphs.generate(memory(), WAYS[0], NO_CONSTRAINTS, bos=2, eos=EOS)
    same(after, plainly(decoder, memory(), WAYS[0]))
    assert [row[0].ids for row in before] != [row[0].ids for row in after]
    decoder.graphs = graphs
    assert copy.deepcopy(decoder).graphs is None


def test_half_precision_is_a_copy():
    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, Counted(), dtype=torch.bfloat16)
    assert decoder.words.table.weight.dtype == torch.float32
    low = Padded(memory().data.bfloat16(), memory().lengths)
    same(
        graphs.generate(low, WAYS[1], NO_CONSTRAINTS, bos=2, eos=EOS),
        plainly(graphs.decoder, low, WAYS[1]),
        tolerance=0.02,  # steps of padding are summed up with the others, in another order
    )


def test_few_shapes_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MAX_CACHED_SHAPES", 2)
    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, Counted())
    for limit in (3, 4, 5, 4):
        graphs.generate(
            memory(), replace(WAYS[0], max_length=limit), NO_CONSTRAINTS, bos=2, eos=EOS
        )
    assert [key[0][1].max_length for key in graphs.buffers] == [5, 4]


def test_threads_do_not_share_search_buffers():
    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, Counted())
    many = [memory().with_data(memory().data * (i - 2)) for i in range(5)]

    def ask(i):
        with torch.no_grad():
            return [
                row[0].ids
                for row in graphs.generate(many[i], WAYS[0], NO_CONSTRAINTS, bos=2, eos=EOS)
            ]

    wanted = [ask(i) for i in range(5)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, [i for _ in range(12) for i in range(5)]))
    assert found == 12 * wanted


def test_buffers_belong_to_one_search_at_a_time():
    graphs, run = DecodeGraphs(made(DECODERS["transformer"]), Counted()), [torch.zeros(2)]
    owners = [type("Owner", (), {})() for _ in range(2)]
    first, second = (graphs.acquire("key", run, None, owner) for owner in owners)
    assert first is not second
    del owners[0]
    third = type("Owner", (), {})()
    assert graphs.acquire("key", run, None, third) is first


def test_steps_read_matrices_side_by_side_and_the_weights_themselves():
    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, Counted())
    graphs.generate(memory(), WAYS[0], NO_CONSTRAINTS, bos=2, eos=EOS)
    block, laid = decoder.blocks[0], graphs.step_decoder.blocks[0]
    assert laid is not block
    assert laid.feed_in.weight is block.feed_in.weight
    assert block.attention.fused_qkv is None
    kept = laid.attention.fused_qkv[0]
    with torch.no_grad():
        block.attention.key.weight.neg_()
    after = graphs.generate(memory(), WAYS[0], NO_CONSTRAINTS, bos=2, eos=EOS)
    same(after, plainly(decoder, memory(), WAYS[0]))
    assert laid.attention.fused_qkv[0] is kept  # graphs read this memory
    torch.testing.assert_close(kept[H : 2 * H], block.attention.key.weight)
    assert laid.cross.fused_qkv is None


def test_positions_grow_with_the_search():
    decoder = made(lambda: Seq2SeqTransformerDecoder(V, M, H, 2, N, 7, max_positions=5))
    graphs, settings = (
        DecodeGraphs(decoder, Counted()),
        SearchSettings(method="greedy", max_length=5),
    )
    for limit in (5, 41):
        settings = replace(settings, max_length=limit, min_length=limit)
        found = graphs.generate(memory(), settings, NO_CONSTRAINTS, bos=2, eos=EOS)
        same(found, plainly(decoder, memory(), settings))


@pytest.fixture
def compiler(monkeypatch):
    """What stands in for the compiler, with what it was asked and how often it was called."""
    from torch._dynamo.exc import TorchDynamoException

    seen = SimpleNamespace(asked=[], calls=0, fails=False)

    def compiled(step, **options):
        seen.asked.append(options)

        def call(run):
            seen.calls += 1
            if seen.fails:
                raise TorchDynamoException("no compiler here")
            return step(run)

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    return seen


@pytest.mark.parametrize("by", ["settings", "graphs"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_whole_step_can_be_compiled(compiler, fails, by):
    compiler.fails = fails
    decoder, capture = made(DECODERS["transformer"]), Counted()
    settings = replace(WAYS[1], cuda_graphs="compiled") if by == "settings" else WAYS[1]
    graphs = DecodeGraphs(decoder, capture, compiled=by == "graphs", options={"a": 1})
    wanted = plainly(decoder, memory(), WAYS[1])
    for _ in range(2):
        same(graphs.generate(memory(), settings, NO_CONSTRAINTS, bos=2, eos=EOS), wanted)
    assert compiler.asked == [{"dynamic": False, "fullgraph": True, "options": {"a": 1}}]
    assert compiler.calls == 1 if fails else compiler.calls > 10
    assert graphs.problem == (
        "A step could not be compiled: TorchDynamoException: no compiler here" if fails else ""
    )
    assert capture.replayed > 10  # graphs there are, with and without
    (slot,) = next(iter(graphs.buffers.values()))
    assert slot.compiled != fails
    assert list(slot.step_counts) == (
        [4, 8, 16] if fails else [32]
    )  # one size of the cache, or several


def test_a_shape_that_keeps_coming_is_compiled(compiler, monkeypatch):
    monkeypatch.setattr(module, "COMPILE_AFTER_STEPS", 20)
    decoder = made(DECODERS["transformer"])
    graphs, settings = (
        DecodeGraphs(decoder, Counted()),
        replace(WAYS[0], min_length=15, max_length=15),
    )
    for turn in range(3):
        graphs.generate(memory(), settings, NO_CONSTRAINTS, bos=2, eos=EOS)
        assert len(compiler.asked) == (turn > 0)
    graphs.generate(memory(), replace(settings, max_length=16), NO_CONSTRAINTS, bos=2, eos=EOS)
    assert len(compiler.asked) == 1  # another shape has only begun


@pytest.mark.parametrize("settings", WAYS[:3], ids=lambda s: f"{s.method}{s.num_beam_groups}")
@pytest.mark.parametrize("kind", ["transformer", "gpt"])
def test_a_compiler_sees_the_whole_step(kind, settings):
    """Without a break, which would be an error here: a break costs more than it saves."""
    decoder = made(DECODERS.get(kind, lambda: GPT(V, H, 2, N, max_positions=29)))
    rules, found = Constraints(forbidden=[5, 6], minimum=[2] * 3), []
    if kind == "gpt":
        state, rows = decoder.prefill(memory_of_ids(), decoder.start(3))[1], 3
    else:
        state, rows = decoder.start(memory()).per_prompt(), 3

    def traced(body):
        step = torch.compile(
            lambda run: module._step_in_place(body, run),
            fullgraph=True,
            dynamic=False,
            backend="eager",
        )

        def call(run):
            one, two = (module.map_tensors(torch.clone, run, torch.clone) for _ in range(2))
            step(one)
            module._step_in_place(body, after := two)
            if settings.method == "beam":  # what is not in the pool yet may be anything
                one, two = (replace(each, pool=each.pool.rank) for each in (one, two))
            found.append((one, two))
            return after

        return call

    torch._dynamo.reset()
    with torch.no_grad():
        step, state, how, _ = DecodeGraphs(decoder, Counted()).prepare(state, settings, rules)
        how = replace(how, max_length=3)
        search(step, state, how, batch=rows, bos=2, eos=EOS, constraints=rules, wrap_step=traced)
    assert len(found) == 3
    for one, two in found:
        for x, y in zip(iter_tensors(one), iter_tensors(two), strict=True):
            torch.testing.assert_close(x, y)


def memory_of_ids():
    return Padded(torch.tensor([[4, 5], [6, 7], [8, 9]]), torch.tensor([2, 2, 2]))


def test_an_answer_is_written_by_graphs_where_there_are_any():
    decoder, capture = made(DECODERS["transformer"]), Counted()
    head = Seq2SeqHead(decoder, WAYS[1], 2, EOS).eval()
    wanted = head(memory()).generate(WAYS[1])
    head.graphs = DecodeGraphs(decoder, capture)
    same(head(memory()).generate(WAYS[1]), wanted)
    assert capture.captured > 0
    capture.captured = capture.replayed = 0
    same(head(memory()).generate(replace(WAYS[1], cuda_graphs="off")), wanted)
    assert capture.replayed == 0


@pytest.mark.parametrize(("limit", "graphed"), [(13, True), (40, False)])
def test_prompts_are_continued_by_graphs_unless_some_is_forgotten(limit, graphed):
    """A text that outgrows what the model sees is read again from its middle, step by step."""
    decoder, capture = made(lambda: GPT(V, H, 2, N, max_positions=29)), Counted()
    writer = TorchSearch.__new__(TorchSearch)
    head = SimpleNamespace(graphs=None)
    writer.engine = SimpleNamespace(model=SimpleNamespace(head=head))
    writer.continuing = PromptContinuation(decoder, 20)
    settings, ids = replace(WAYS[0], max_length=limit), torch.tensor([[4, 5, 6], [7, 8, 9]])

    def written():
        state = writer.continuing.start(ids[:, :-1])
        job = GenerationBatch([0, 1], writer.continuing.step, state, ids[:, -1], [[], []])
        step, state, how, faster = writer.prepare(job, settings)
        rest = {
            "batch": 2,
            "bos": job.first,
            "eos": EOS,
            "constraints": Constraints(forbidden=[EOS]),
        }
        return search(step, state, how, **rest, wrap_step=faster)

    with torch.no_grad():
        wanted = written()
        head.graphs = DecodeGraphs(decoder, capture)
        same(written(), wanted)
    assert (capture.replayed > 0) == graphed
    assert len(wanted[0][0].ids) == limit
