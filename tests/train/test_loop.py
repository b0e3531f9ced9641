import math
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from weft.batch import BatchLoader, Position, TokenStore
from weft.decode.decoders.elmo import BiLM
from weft.model import build_model
from weft.runtime import select_runtime
from weft.tasks.classify import Classify
from weft.train import finite_check, loop
from weft.train.finite_check import NonFiniteLoss
from weft.train.loop import fit
from weft.train.optim import build_optimisers, clip_gradients
from weft.train.settings import Settings
from weft.train.state import Progress, TrainState

PARTS = {
    "embedder": {"kind": "lookup", "width": 7},
    "encoder": {"kind": "rnn", "hidden": 5},
    "pool": {"kind": "mean"},
    "head": {"kind": "linear"},
}
TASK = Classify()


def store(rows=20):
    out = TokenStore()
    for i in range(rows):
        out.append(np.arange(1, 2 + i % 5) + i % 3, i % 2, line=i + 1)
    return out.close()


def model(parts=PARTS):
    torch.manual_seed(0)
    return build_model(parts, vocabulary_size=11, outputs=2)


def batches(rows=20, size=5, epochs=2):
    return BatchLoader(store(rows), rows=size, budget=999, seed=1, epochs=epochs)


def run(settings, stream=None, net=None, **keep):
    net = net or model()
    trainee = TrainState.fresh(net, settings)
    trainee.micro_batches = keep.get("pieces", 1)
    updates = list(fit(trainee, TASK, stream or batches(), settings, select_runtime("cpu")))
    return net, updates, trainee


def same(a, b, tolerance=1e-6):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=tolerance)


def test_loss_falls():
    _, updates, _ = run(Settings(learning_rate=0.05), batches(rows=15, epochs=30))
    assert updates[-1].loss < 0.2 < updates[0].loss
    assert [u.ends_epoch for u in updates] == [(i + 1) % 3 == 0 for i in range(90)]


def test_equals_a_plain_torch_loop():
    settings = Settings(learning_rate=0.01, optimiser="sgd", momentum=0.9, clip_norm=0.5)
    ours, _, _ = run(settings)
    theirs = model()
    optimiser = torch.optim.SGD(theirs.parameters(), 0.01, momentum=0.9)
    for batch, _ in batches():
        optimiser.zero_grad()
        nn.functional.cross_entropy(theirs(batch.source), batch.target).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimiser.step()
    same(ours, theirs)


def test_cutting_batches_in_pieces_changes_nothing():
    whole, a, _ = run(Settings())
    pieces, b, _ = run(Settings(), pieces=3)
    assert [x.loss for x in a] == pytest.approx([x.loss for x in b], rel=1e-5)
    same(whole, pieces)


def test_accumulating_equals_a_larger_batch():
    large, a, _ = run(Settings(), batches(size=20, epochs=3))
    small, b, _ = run(Settings(accumulate=4), batches(size=5, epochs=3))
    assert len(a) == len(b) == 3
    assert [x.loss for x in a] == pytest.approx([x.loss for x in b], rel=1e-5)
    same(large, small)


def test_memory_running_out_halves_the_pieces_and_keeps_the_batch():
    def narrow(net):
        read = net.forward

        def forward(source):
            if len(source) > 2:
                raise torch.OutOfMemoryError("no room for more than two rows")
            return read(source)

        net.forward = forward
        return net

    expected, _, _ = run(Settings())
    net, _, trainee = run(Settings(), net=narrow(model()))
    assert trainee.micro_batches == 4
    same(expected, net)


def test_a_second_try_has_the_memory_of_the_first():
    """Nothing holds on to what the failed one had computed."""
    alive, held, failed = [], [], []

    class Kept:
        pass

    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = Kept()  # lives as long as the graph does
            held.append(weakref.ref(ctx.kept))
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            if not failed:
                failed.append(True)
                raise torch.OutOfMemoryError("no room on the way back")
            return slope

    net = model()
    usual = net.forward

    def forward(source):
        alive.append([one() is not None for one in held])
        return Greedy.apply(usual(source))

    net.forward = forward
    run(Settings(), net=net)
    assert failed
    assert alive[1] == [False]


def test_memory_too_small_for_one_row_is_an_error():
    def forward(source):
        raise torch.OutOfMemoryError("no room at all")

    net = model()
    net.forward = forward
    with pytest.raises(torch.OutOfMemoryError):
        run(Settings(), net=net)


def test_nan_stops_and_names_the_batch():
    stream = batches()
    stream.store.targets = stream.store.targets.copy()
    net = model()
    with torch.no_grad():
        net.embedders[0].table.weight[7] = math.nan
    with pytest.raises(NonFiniteLoss, match=r"loss became nan at update \d+") as caught:
        run(Settings(), stream, net)
    rows = caught.value.update.rows
    assert any(7 in stream.store.row(i) for i in rows)


def test_loss_check_is_read_one_update_later_without_waiting():
    """As on a GPU, where numbers come to the host while it goes on."""
    asked = []

    class Far:
        def fetch(self, tensor):
            number = len(asked)
            asked.append(False)

            def numbers():
                asked[number] = True
                return tensor.tolist()

            return numbers

    def did(step, loss):
        none = Progress(
            step, Position(), 0.0, 0.1, 1, torch.tensor(loss), torch.ones(()), (), False
        )
        trainee.unchecked.append(none)

    trainee = TrainState.fresh(model(), Settings())
    did(1, 2.0), did(2, math.nan)
    finite_check.start_finite_check(trainee, Far())
    assert asked == [False]
    assert trainee.unchecked == []
    did(3, 2.0)
    with pytest.raises(NonFiniteLoss, match="nan at update 2 "):
        finite_check.start_finite_check(trainee, Far())
    assert trainee.pending is None
    finite_check.start_finite_check(trainee, Far())  # the third, which is good
    did(4, math.inf)
    with pytest.raises(NonFiniteLoss, match="inf at update 4 "):
        finite_check.check_finite(trainee)
    finite_check.check_finite(trainee)  # what was told is not told again


def test_a_gradient_that_overflows_is_caught_too(monkeypatch):
    monkeypatch.setattr(loop, "clip_gradients", lambda p, longest: torch.tensor(math.inf))
    with pytest.raises(NonFiniteLoss, match="gradient overflowed at update 1 "):
        run(Settings())


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
@pytest.mark.parametrize("sparse", [False, True])
def test_each_optimiser_trains_dense_and_sparse_tables(name, sparse):
    embedder = {"kind": "word-ngrams", "width": 7, "buckets": 31, "sparse": sparse}
    parts = {**PARTS, "embedder": embedder, "encoder": {"kind": "bag"}}
    settings = Settings(optimiser=name, learning_rate=0.3, clip_norm=0)
    _, updates, trainee = run(settings, batches(rows=15, epochs=20), model(parts))
    assert len(trainee.optimisers) == 1 + sparse
    assert sum(u.loss for u in updates[-3:]) < 0.5 * sum(u.loss for u in updates[:3])


def test_clip_equals_torch_for_dense_and_counts_a_sparse_row_once():
    torch.manual_seed(0)
    table = nn.Embedding(5, 3, sparse=True)
    dense = nn.Embedding(5, 3)
    dense.load_state_dict(table.state_dict())
    ids = torch.tensor([1, 1, 4])
    for net in (table, dense):
        (net(ids) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    norm = clip_gradients([table.weight], 0.5)
    expected = nn.utils.clip_grad_norm_([dense.weight], 0.5)
    torch.testing.assert_close(norm, expected)
    torch.testing.assert_close(table.weight.grad.to_dense(), dense.weight.grad)


def test_decay_leaves_biases_alone():
    (adamw,) = build_optimisers(model(), Settings(weight_decay=0.1))
    decayed, free = adamw.param_groups
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in free["params"]} == {1}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)


def test_biases_of_two_directions_in_one_are_not_decayed():
    net = BiLM(11, width=4, hidden=5, filters=((1, 3),), max_bytes=6)
    (adamw,) = build_optimisers(net, Settings(weight_decay=0.1))
    free = {id(p) for p in adamw.param_groups[1]["params"]}
    layer = net.network.layers[0]
    assert layer.bias.dim() == 2
    assert id(layer.bias) in free
    assert id(layer.enter) not in free


def test_the_mean_of_the_weights_follows_them():
    settings = Settings(ema_decay=0.5, optimiser="sgd", momentum=0.0, learning_rate=0.1)
    net = model()
    trainee = TrainState.fresh(net, settings)
    name = "head.score.weight" if hasattr(net.head, "score") else next(iter(trainee.ema))
    expected = trainee.ema[name].clone()
    for update in fit(trainee, TASK, batches(epochs=1), settings, select_runtime("cpu")):
        keep = min(0.5, update.step / (update.step + 10))
        expected = keep * expected + (1 - keep) * dict(net.named_parameters())[name].detach()
    torch.testing.assert_close(trainee.ema[name], expected)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
def test_every_update_increases_the_version_of_the_weights(name):
    net = model()
    trainee = TrainState.fresh(net, Settings(optimiser=name))
    before = {n: p._version for n, p in net.named_parameters()}
    for _ in fit(trainee, TASK, batches(), Settings(optimiser=name), select_runtime("cpu")):
        now = {n: p._version for n, p in net.named_parameters()}
        assert all(now[n] > before[n] for n in now)
        before = now
