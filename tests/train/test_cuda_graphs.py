"""Updates as graphs against plain ones, and when blocks are compiled.

Capturing is a plain call here: what is replayed reads and writes memory that stays, as on a GPU.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.fixtures.counted_graphs import DECODERS, Gpu, V, model, pieces, same
from weft.batch import BatchLoader, Padded, TokenStore
from weft.batch.documents import Documents
from weft.batch.mlm_collator import Masking, MLMLoader
from weft.decode.cuda_graphs.decode_step import enable_decode_graphs
from weft.decode.decoders import elmo
from weft.decode.heads import lm
from weft.decode.heads import mlm as hidden_words
from weft.kernels.compile import compile_blocks, uncompile_blocks
from weft.model import build_model
from weft.runtime import select_runtime
from weft.tasks.classify import Classify
from weft.tasks.language import LanguageModelling
from weft.tasks.mlm import MaskedLM as HiddenWords
from weft.tokens.special_tokens import SpecialTokens
from weft.train import cuda_graphs
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "MIN_UPDATES_TO_CAPTURE", 3)
    monkeypatch.setattr(Gpu, "captures", 0)
    monkeypatch.setattr(Gpu, "replays", 0)
    return Gpu(torch.device("cpu"))


def trained(kind, runtime, **options):
    net = model(kind)
    settings = Settings(epochs=3, schedule="cosine", learning_rate=0.01, **options)
    trainee = TrainState.fresh(net, settings)
    updates = list(fit(trainee, LanguageModelling(window=7), pieces(kind), settings, runtime))
    return net, [update.loss for update in updates], trainee


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_updates_as_graphs_are_the_same_to_the_last_digit(gpu, kind, optimiser):
    wanted, losses, trainee = trained(kind, select_runtime("cpu"), optimiser=optimiser)
    found, others, other = trained(kind, gpu, optimiser=optimiser)
    assert others == losses
    same(found, wanted)
    assert gpu.captures >= 1
    assert gpu.replays > 5 > gpu.captures
    assert (other.carried is None) == (trainee.carried is None)
    rates = [group["lr"] for one in other.optimisers for group in one.param_groups]
    assert all(isinstance(number, float) for number in rates)  # as checkpoints want them


@pytest.mark.parametrize(
    "options", [{"cuda_graphs": False}, {"accumulate": 2}, {"optimiser": "adagrad"}], ids=str
)
def test_updates_that_cannot_be_graphs_run_eagerly(gpu, options):
    _, losses, _ = trained("gpt", gpu, **options)
    assert gpu.captures == 0
    assert len(losses) > 9


def test_uncapturable_update_runs_eagerly(gpu, monkeypatch):
    wanted, losses, _ = trained("rnn-lm", select_runtime("cpu"))
    monkeypatch.setattr(Gpu, "refuses", True)
    made = []
    usual = cuda_graphs.CapturedTrainStep
    monkeypatch.setattr(
        cuda_graphs, "CapturedTrainStep", lambda *given: made.append(usual(*given)) or made[0]
    )
    found, others, _ = trained("rnn-lm", gpu)
    assert others == losses
    same(found, wanted)
    assert made[0].state.speedup_failure == (
        "updates could not be captured: RuntimeError: operation not permitted when stream is "
        "capturing"
    )


def test_autocast_keeps_no_copies_where_updates_are_captured(gpu, monkeypatch):
    """A graph would read them when they are long freed, and a change would compile anew."""
    seen = []
    usual = cuda_graphs.CapturedTrainStep

    def watched(update, *given):
        def once(*asked):
            seen.append(torch.is_autocast_cache_enabled())
            return update(*asked)

        return usual(once, *given)

    monkeypatch.setattr(cuda_graphs, "CapturedTrainStep", watched)
    trained("rnn-lm", gpu)
    assert seen
    assert not any(seen)
    assert torch.is_autocast_cache_enabled()


def test_when_blocks_are_compiled(gpu, monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda block, **options: compiled.append(block))
    monkeypatch.setattr(cuda_graphs, "MIN_UPDATES_TO_COMPILE", 50)
    net = model()

    def count(runtime=gpu, epochs=9, batches=None, net=net, **options):
        compiled.clear()
        settings = Settings(epochs=epochs, **options)
        stream = batches or pieces(epochs=epochs)
        assert cuda_graphs.maybe_compile(net, settings, runtime, stream) == len(compiled)
        return len(compiled)

    assert count() == 4  # two blocks, the sum in front of them, the norm behind
    assert count(epochs=2) == 0  # too short to pay
    assert count(select_runtime("cpu")) == 0
    assert count(select_runtime("cpu"), compile=True) == 4
    assert count(compile=False) == 0
    assert count(accumulate=4) == 0  # updates count, not batches
    assert count(net=model("rnn-lm")) == 0
    late = pieces(epochs=9)
    late.position = type(late.position)(8, 0)
    assert count(batches=late) == 0  # what lies behind does not count


def test_training_goes_on_without_a_compiler(monkeypatch):
    wanted, losses, _ = trained("gpt", select_runtime("cpu"))

    def broken(block, **options):
        def call(*given):
            raise TorchDynamoException("no compiler here")

        block._compiled_call_impl = call

    monkeypatch.setattr(nn.Module, "compile", broken)
    found, others, _ = trained("gpt", select_runtime("cpu"), compile=True)
    assert others == losses
    same(found, wanted)


def test_one_compiled_function_serves_all_blocks():
    """Counted by a compiler that only looks; a real one takes seconds for each."""
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    net = model()
    names = list(net.state_dict())
    wanted, *_ = next(iter(pieces()))
    plain = LanguageModelling(window=7).loss(net(wanted.source), wanted).total
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=8):
        assert compile_blocks(net, backend=backend, fullgraph=True) == 4
        assert torch._dynamo.config.recompile_limit >= 64  # shapes of all models together
    found = LanguageModelling(window=7).loss(net(wanted.source), wanted).total
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-5)
    assert len(seen) == 3  # the sum in front, the blocks, the norm behind
    assert list(net.state_dict()) == names
    assert uncompile_blocks(net) == 4
    assert uncompile_blocks(net) == 0
    torch._dynamo.reset()


def test_embeddings_below_bert_are_compiled():
    seen, net, ids = [], answering().eval(), torch.randint(4, V, (3, 5))
    given = Padded(ids, torch.tensor([5, 5, 2]))
    net.embedders[0].weight_dtype = None  # as in training, not laid out for reading
    plain = net(given)
    torch._dynamo.reset()

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    assert compile_blocks(net, backend=backend, fullgraph=True) == 3
    net.train()
    torch.testing.assert_close(net(given), plain, rtol=1e-5, atol=1e-5)
    assert len(seen) == 2
    torch._dynamo.reset()


def test_decode_graphs_need_a_gpu(gpu):
    net = model()
    enable_decode_graphs(net.head, select_runtime("cpu"))
    assert net.head.graphs is None
    enable_decode_graphs(net.head, gpu)
    assert net.head.graphs.decoder is net.head.decoder


BERT = {"kind": "bert", "hidden": 6, "layers": 2, "heads": 2, "max_positions": 11, "dropout": 0.0}


def answering(pool="cls", two=False, **embedder):
    """A small BERT that answers about texts, one or two in a row."""
    torch.manual_seed(0)
    parts = {
        "embedder": BERT | {"attention_dropout": 0.0} | embedder,
        "encoder": {"kind": "none"},
        "pool": {"kind": pool},
        "head": {"kind": "linear"},
    }
    pair = {"pair": {"kind": "joint"}} if two else {}
    return build_model(parts | pair, vocabulary_size=V, outputs=3)


def texts(two=False, rows=40, epochs=9):
    """Rows of 2 to 11 steps."""
    store, draw = TokenStore(pairs=two), np.random.default_rng(3)
    for i in range(rows):
        ids = draw.integers(4, V, 2 + i % 10)
        store.append(ids, i % 3, line=i + 1, **({"second": 1 + len(ids) // 2} if two else {}))
    return BatchLoader(store.close(), rows=4, budget=999, seed=1, epochs=epochs)


def tuned(runtime, stream, net, **options):
    # Adam would make large steps of the gradient of a key's bias, which is zero but for rounding.
    settings = Settings(epochs=9, learning_rate=0.05, optimiser="sgd", **options)
    trainee = TrainState.fresh(net, settings)
    return [u.loss for u in fit(trainee, Classify(), stream, settings, runtime)], trainee


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("two", [False, True])
def test_fine_tuning_by_graphs_is_the_same(gpu, monkeypatch, pool, two):
    """Rows of any length, in few shapes; the last shape ends at what the network reads."""
    monkeypatch.setattr(cuda_graphs, "LENGTH_MULTIPLE", 4)
    net, other = answering(pool, two), answering(pool, two)
    wanted, _ = tuned(select_runtime("cpu"), texts(two), net)
    found, trainee = tuned(gpu, texts(two), other)
    assert trainee.speedup_failure == ""
    assert found == pytest.approx(wanted, abs=1e-5)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert 2 <= gpu.captures <= 6  # 4, 8 and 11 steps, with rows that are full and that are not
    assert gpu.replays > 30


@pytest.mark.parametrize(
    ("change", "options"),
    [({}, {"unfreeze_epochs": 1.0}), ({}, {"cuda_graphs": False}),
     ({"encoder": {"kind": "rnn"}}, {}),
     ({"pool": {"kind": "attention"}}, {}), ({"embedder": {**BERT, "frozen": True}}, {})],
    ids=str,
)  # fmt: skip
def test_fine_tuning_without_graphs_captures_nothing(gpu, change, options):
    net = answering()
    torch.manual_seed(0)
    net = build_model({**net.parts, **change}, vocabulary_size=V, outputs=3)
    tuned(gpu, texts(), net, **options)
    assert gpu.captures == 0


def test_a_decoder_behind_bert_has_no_pool_to_ask_for(gpu):
    net = answering()
    for name in ("pool", "head"):
        del net.parts[name]
    assert not cuda_graphs._has_recurring_shapes(net, texts())


def test_graphs_make_way_when_memory_runs_out(gpu, monkeypatch):
    net, settings, usual, kept = model(), Settings(epochs=3), cuda_graphs.CapturedTrainStep, []
    monkeypatch.setattr(
        cuda_graphs, "CapturedTrainStep", lambda *given: kept.append(usual(*given)) or kept[0]
    )
    trainee = TrainState.fresh(net, settings)
    made = []
    for update in fit(trainee, LanguageModelling(window=7), pieces(), settings, gpu):
        if update.step == 9:
            made = [gpu.captures, gpu.replays]
            trainee.micro_batches = 2
    assert made[1] > 3
    assert [gpu.captures, gpu.replays] == made
    assert kept[0].graphs == {}
    assert trainee.speedup_failure == "not enough memory for updates as CUDA graphs"


def test_weights_are_said_to_have_changed_after_every_replay(gpu, monkeypatch):
    """A graph does not say so, and what was laid out of them for writing would stay."""
    told, usual = [], torch.autograd.graph.increment_version
    monkeypatch.setattr(
        torch.autograd.graph, "increment_version", lambda some: told.append(usual(some))
    )
    _, losses, _ = trained("gpt", gpu)
    assert len(told) == len(losses) + gpu.replays  # a replay here is also an update in Python


class Crossings(TorchDispatchMode):
    """Notes what goes from the host to the device, the device being `meta`: no graph has that."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        made = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        if any(t.is_meta for t in (*given, *made)) and any(t.device.type == "cpu" for t in given):
            self.found.append(str(op))
        return out


def of_hidden_words(follows, rows=3, window=9):
    """A small BERT and a batch for it, on a device that computes nothing."""
    parts = {
        "embedder": {"kind": "bert", "hidden": 8, "layers": 2, "heads": 2, "max_positions": window},
        "encoder": {"kind": "none"},
        "pool": {"kind": "cls" if follows else "mean"},
        "head": {"kind": "masked"},
    }
    documents = Documents()
    for size in (40, 50):
        documents.append([np.arange(7, 7 + size, dtype=np.int32) % 6 + 7 for _ in range(5)])
    masking = Masking(
        6, np.arange(7, V), SpecialTokens((4,), (5,), (5,)), window, next_sentence=follows
    )
    batches = MLMLoader(documents.close(), masking, rows=rows, seed=1, epochs=1)
    return build_model(parts, vocabulary_size=V, outputs=(V, follows)), next(iter(batches))[0]


@pytest.mark.parametrize(
    "kind", ["follows", "hidden words", "text", "two texts", "full texts", *DECODERS]
)
def test_nothing_of_an_update_comes_from_the_host(kind, monkeypatch):
    """Whatever does cannot be captured."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *of: False)  # it knows no `meta`
    for home in (
        hidden_words,
        lm,
        elmo,
    ):  # that on a GPU is another, and never looks at the host
        monkeypatch.setattr(home, "chunked_loss", lambda x, w, b, right: (x.sum() + w.sum(), 1))
    if kind in DECODERS:
        net, batch, task = model(kind), next(iter(pieces(kind)))[0], LanguageModelling(window=7)
    elif "text" in kind:
        two = kind == "two texts"
        net, batch, task = answering(two=two), next(iter(texts(two)))[0], Classify()
        if kind == "full texts":  # whose lengths stay on the host
            net, lengths = answering("max"), torch.full((len(batch),), batch.source.data.shape[1])
            batch = replace(batch, source=Padded(batch.source.data, lengths))
    else:
        net, batch = of_hidden_words(kind == "follows")
        task = HiddenWords(window=9, next_sentence=kind == "follows")
    net.to("meta")
    here = batch.to("meta")
    here = replace(here, source=cuda_graphs._static_copy(here.source))
    with Crossings() as crossings:
        task.loss(net(here.source), here).total.backward()
    assert crossings.found == []
