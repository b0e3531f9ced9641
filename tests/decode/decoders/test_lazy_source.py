"""Sources that a search reads itself, by graphs, against memories that were made before."""

from dataclasses import replace

import pytest
import torch

from tests.fixtures.decode_graphs import (
    DECODERS,
    EOS,
    WAYS,
    Counted,
    M,
    made,
    plainly,
    same,
)
from tests.fixtures.lazy_source_reader import Reader
from weft.batch import Padded
from weft.decode.cuda_graphs import prefill
from weft.decode.cuda_graphs.decode_step import DecodeGraphs
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search.constraints import Constraints
from weft.decode.search.search import NO_CONSTRAINTS


@torch.no_grad()
@pytest.mark.parametrize("kind", ["transformer", "lstm"])
@pytest.mark.parametrize("settings", WAYS, ids=lambda s: f"{s.method}{s.num_beam_groups}")
def test_a_source_is_read_by_a_graph_once_its_shape_comes_again(kind, settings):
    decoder, reader, capture = made(DECODERS["transformer"]), Reader(kind), Counted()
    graphs, rules = DecodeGraphs(decoder, capture), Constraints(forbidden=[7])
    for turn, lengths in enumerate([[3, 2, 7], [5, 1, 4], [9, 2], [31, 3], [31, 3, 4]]):
        given = reader.of(lengths, turn)
        found = graphs.generate(given, settings, rules, bos=2, eos=EOS)
        same(found, plainly(decoder, given.memory, settings, rules))
    begun = [
        one for held in graphs.buffers.values() for slot in held for one in slot.prefills.values()
    ]
    # Rows 3, 3 and 2 of 32 steps, and 31 words are as many with padding; the first and the second
    # shape came again.
    assert [one.replay is not None for one in begun] == [True, True]
    assert not graphs.problem


@torch.no_grad()
def test_few_beginnings_are_kept(monkeypatch):
    """Each set of forbidden words is another."""
    monkeypatch.setattr(prefill, "MAX_CACHED_SHAPES", 3)
    decoder, reader = made(DECODERS["transformer"]), Reader()
    graphs = DecodeGraphs(decoder, Counted())
    for word in range(5, 11):
        for turn in range(2):
            given, rules = reader.of([3, 2], turn), Constraints(forbidden=[word])
            found = graphs.generate(given, WAYS[0], rules, bos=2, eos=EOS)
            same(found, plainly(decoder, given.memory, WAYS[0], rules))
    (slot,) = [slot for held in graphs.buffers.values() for slot in held]
    assert len(slot.prefills) == 3


@torch.no_grad()
def test_captured_prefill_sees_new_weights_and_constraints():
    decoder, reader = made(DECODERS["transformer"]), Reader()
    graphs = DecodeGraphs(decoder, Counted())

    def right(rules=NO_CONSTRAINTS, settings=WAYS[1], **how):
        given = reader.of([3, 2, 7], 5, **how)
        found = graphs.generate(given, settings, rules, bos=2, eos=EOS)
        wanted = plainly(decoder, given.memory, settings, rules)
        same(found, wanted)
        return [row[0] for row in found]

    first = [right() for _ in range(3)][-1]
    reader.encoder.norm.weight.neg_()
    decoder.blocks[0].attention.key.weight.neg_()
    assert [one.score for one in right()] != [one.score for one in first]
    assert first[0].ids[0] not in right(Constraints(forbidden=[first[0].ids[0]]))[0].ids
    for rules in (
        Constraints(limit=[3, 4, 5]),
        Constraints(prefix=[[5], [], [6, 5]]),
        NO_CONSTRAINTS,
    ):
        right(rules)
    right(settings=replace(WAYS[1], max_length=4))
    slots = len(graphs.buffers)
    right(limit=31)  # positions that end before the padding does
    assert len(graphs.buffers) == slots


@torch.no_grad()
def test_uncapturable_prefill_runs_eagerly():
    decoder, reader, steps = made(DECODERS["transformer"]), Reader(), Counted()

    def refuse(work):
        if work.func.__name__ == "_prefill":
            raise RuntimeError("operation not permitted when stream is capturing")
        return steps(work)

    graphs = DecodeGraphs(decoder, refuse)
    for turn in range(3):
        given = reader.of([3, 2, 7], turn)
        found = graphs.generate(given, WAYS[1], NO_CONSTRAINTS, bos=2, eos=EOS)
        same(found, plainly(decoder, given.memory, WAYS[1]))
    assert graphs.problem.startswith(
        "The prefill could not be captured: RuntimeError: operation not"
    )
    assert steps.replayed > 0


@torch.no_grad()
def test_a_source_is_read_in_the_precision_it_was_given_in():
    reader = Reader()
    with torch.autocast("cpu", torch.bfloat16):
        low = reader.of([3, 2, 7], 1)
        wanted = reader(low.source).data
    high = reader.of([3, 2, 7], 1)
    torch.testing.assert_close(low.memory.data, wanted)
    assert not torch.equal(high.memory.data, wanted)
    decoder = made(DECODERS["transformer"])
    graphs = DecodeGraphs(decoder, Counted())
    for given in (low, low, high, high):
        found = graphs.generate(given, WAYS[1], NO_CONSTRAINTS, bos=2, eos=EOS)
        memory = given.memory.with_data(given.memory.data.float())
        same(found, plainly(decoder, memory, WAYS[1]), tolerance=0.02 if given is low else 1e-5)


@torch.no_grad()
def test_inputs_other_than_ids_are_not_captured():
    """Vectors, say, or rows of two texts: there is nothing to fill them up with."""
    decoder, reader = made(DECODERS["transformer"]), Reader()
    graphs, ends = DecodeGraphs(decoder, Counted()), {"bos": 2, "eos": EOS}
    vectors = Padded(torch.randn(3, 7, M), torch.tensor([3, 2, 7]))
    for _ in range(3):
        given = LazySource(vectors, reader.encoder)
        found = graphs.generate(given, WAYS[1], NO_CONSTRAINTS, **ends)
        same(found, plainly(decoder, given.memory, WAYS[1]))
    assert not any(slot.prefills for held in graphs.buffers.values() for slot in held)
    source = reader.of([3, 2, 7], 1).source
    assert LazySource(source, reader).is_plain
    assert not LazySource(replace(source, second=torch.tensor([1, 1, 3])), reader).is_plain
    assert not LazySource(replace(source, subtokens=(source.data[..., None],)), reader).is_plain
    assert [LazySource(source, reader, limit).is_plain for limit in (31, 32)] == [False, True]


@torch.no_grad()
def test_a_head_that_writes_by_graphs_reads_later():
    decoder, reader, capture = made(DECODERS["transformer"]), Reader(), Counted()
    head = Seq2SeqHead(decoder, WAYS[1], 2, EOS).eval()
    given = reader.of([3, 2, 7], 1)
    assert not head.accepts_lazy_source
    wanted = head(given.memory).generate(WAYS[1])
    same(head(reader.of([3, 2, 7], 1)).generate(WAYS[1]), wanted)
    head.graphs = DecodeGraphs(decoder, capture)
    assert head.accepts_lazy_source
    assert not head.train().accepts_lazy_source
    head.eval()
    for _ in range(3):
        same(head(reader.of([3, 2, 7], 1)).generate(WAYS[1]), wanted)
    calls = reader.calls
    scores = head(reader.of([3, 2, 7], 1))
    assert reader.calls == calls  # nothing is read before it is asked for
    torch.testing.assert_close(scores.memory.data, given.memory.data)
