"""Updates that fill in hidden words as graphs, against plain ones."""

from dataclasses import replace

import pytest
import torch

from tests.fixtures.counted_graphs import Gpu, same
from tests.fixtures.mlm_parts import MASKING, PARTS, V
from weft.batch.mlm_collator import MLMLoader as Batches
from weft.model import build_model
from weft.runtime import select_runtime
from weft.tasks.mlm import MaskedLM
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


def documents():
    from tests.fixtures.mlm_batches import corpus

    return corpus(2_000, ids=V)


def trained(runtime, follows=True, encoder="none", **options):
    torch.manual_seed(0)
    pool = {"kind": "cls" if follows else "mean"}
    parts = {**PARTS, "pool": pool, "encoder": {"kind": encoder}}
    net = build_model(parts, vocabulary_size=V, outputs=(V, follows))
    settings = Settings(epochs=2, learning_rate=0.01, schedule="linear", **options)
    masking = replace(MASKING, next_sentence=follows)
    batches = Batches(documents(), masking, rows=5, seed=1, epochs=2)
    trainee = TrainState.fresh(net, settings)
    updates = list(fit(trainee, MaskedLM(next_sentence=follows), batches, settings, runtime))
    return net, [update.loss for update in updates], trainee


@pytest.mark.parametrize("follows", [True, False])
def test_updates_as_graphs_are_the_same_to_the_last_digit(gpu, follows):
    wanted, losses, _ = trained(select_runtime("cpu"), follows)
    found, others, trainee = trained(gpu, follows)
    assert others == losses
    same(found, wanted)
    assert not trainee.speedup_failure
    assert gpu.replays > 5 > gpu.captures >= 1


def test_an_encoder_that_looks_at_lengths_is_no_graph(gpu):
    trained(gpu, encoder="rnn")
    assert gpu.captures == 0


def test_static_copy_has_separate_lengths_and_segments():
    """A copy of a batch that is filled again has lengths and second segments of its own."""
    made = Batches(documents(), MASKING, rows=5, seed=1, epochs=1)
    stream = iter(made)
    first, second = (next(stream)[0].source for _ in range(2))
    assert not torch.equal(first.lengths, second.lengths)
    kept = cuda_graphs._static_copy(first)
    cuda_graphs._copy_source(kept, second)
    assert torch.equal(kept.mask, second.mask)
    assert torch.equal(kept.segments, second.segments)
    assert torch.equal(kept.data, second.data)
    assert kept.to("cpu").full == kept.full
    assert not torch.equal(first.lengths, second.lengths)  # what it was made of is left alone
    stream.close()
