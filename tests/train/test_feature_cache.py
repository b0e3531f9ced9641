"""What a frozen network makes of a row is computed once, and is what it would be each time."""

import hashlib
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.fixtures.networks import LINES, network
from tests.fixtures.small import SMALL, killed, splits
from weft import config as configuration
from weft.batch import TokenStore, inference_batches, labelled_batch
from weft.batch import token_store as stores
from weft.embed.bert import Bert
from weft.model import build_model
from weft.run import train, trainer
from weft.run.neural import NeuralRun
from weft.runtime import select_runtime
from weft.text.example import Example
from weft.train import feature_cache

CLOSE = {"rtol": 0, "atol": 1e-5}
ELMO = {"kind": "elmo", "width": 8, "hidden": 13, "filters": [[1, 3], [2, 7]], "layers": 2}
MADE = {
    "text": {"task": "classify", "frozen": True},
    "mixed": {"task": "classify", "frozen": True, "mix": True},
    "gpt": {"task": "classify", "embedder": "gpt", "frozen": True, "mix": True},
    "words": {"task": "tag", "frozen": True, "subword_pooling": "mean"},
    "joint": {"task": "pair-classify", "pair": "joint", "frozen": True},
    "towers": {"task": "pair-classify", "pair": "towers", "frozen": True, "mix": True},
}


def filled(name, count=9):
    """A model with a frozen network, and a store of rows for it."""
    predictor = network(**MADE[name])
    model, index = predictor.engine.model, predictor.engine.indexer
    texts = [" ".join((LINES[i % 3] + " " + LINES[i % 2]).split()[: 2 + i]) for i in range(count)]
    pairs = model.traits.input_kind == "pairs"
    store = TokenStore(
        index.subtoken_kinds, columns=1 if model.traits.is_structured else 0, pairs=pairs
    )
    if model.traits.input_kind == "words":
        rows = index.sentence_rows([Example(text, words=tuple(text.split())) for text in texts])
    else:
        rows = index.rows(texts, others=texts[::-1] if pairs else ())
    for row in rows:
        target = np.zeros((len(row.ids), 1), np.int64) if model.traits.is_structured else 0
        store.append(row.ids, target, 0, row.subtokens, row.parents, row.second)
    return model, store.close()


@pytest.mark.parametrize("name", MADE)
def test_vectors_are_what_they_would_be(name, tmp_path):
    model, store = filled(name)
    model.eval()
    wanted = [model.embed(batch.source) for batch in inference_batches(store, rows=3, budget=99)]
    assert feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path)
    found = list(inference_batches(store, rows=3, budget=99))
    assert all(len(batch.source.cached) == 1 for batch in found)
    for batch, want in zip(found, wanted, strict=True):
        ids = batch.source.data.clone()
        batch.source.data.zero_()  # nobody looks at them
        got = model.embed(batch.source)
        np.testing.assert_allclose(got.data.detach(), want.data.detach(), **CLOSE)
        assert torch.equal(got.lengths, want.lengths)
        assert got.cached == ()  # it was of the ids, not of the vectors
        batch.source.data.copy_(ids)
        structured = model.traits.is_structured
        np.testing.assert_allclose(
            0 if structured else model.run(batch.source).vector.detach(),
            0 if structured else model.pool_states(model.encode(want))[0].detach(),
            **CLOSE,
        )  # fmt: skip


@pytest.mark.parametrize("own", [{}, {"norm": True}, {"mix": False}], ids=str)
def test_words_beside_what_an_elmo_knows_of_them(own, tmp_path):
    torch.manual_seed(3)
    words = {"kind": "lookup", "width": 5}
    parts = {
        "embedder": [words, {**ELMO, "frozen": True, **own}, {"kind": "character-lstm"}],
        "encoder": {"kind": "none"}, "pool": {"kind": "mean"}, "head": {"kind": "linear"},
    }  # fmt: skip
    model = build_model(parts, vocabulary_size=20, outputs=2).eval()
    store = TokenStore(2)
    for i in range(6):
        tokens = [f"{'ab' * (k + 1)}{i}" for k in range(i + 1)]
        pieces = [part.subtoken_ids(tokens) for part in model.subtoken_embedders]
        store.append(np.arange(5, 6 + i), 0, 0, pieces)
    store.close()
    rows = np.array([5, 1, 2])
    wanted = model.embed(store.padded(rows)).data
    assert feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path)
    source = store.padded(rows)
    source.subtokens[0].zero_()  # what the ELMo would read
    np.testing.assert_allclose(model.embed(source).data.detach(), wanted.detach(), **CLOSE)
    source.subtokens[1].zero_()  # the others go on to read
    assert not torch.allclose(model.embed(source).data, wanted)


def test_only_what_is_frozen_is_read_once(tmp_path, monkeypatch):
    assert network("classify").engine.model.frozen_embedders == []
    config = frozen(**{"embedder.frozen": False})
    monkeypatch.setattr(trainer, "cache_features", None)  # nobody asks
    train(config, tmp_path / "run", splits=splits(), quiet=True, device="cpu")


def test_micro_batches_keep_cached_features(tmp_path):
    model, store = filled("towers")
    feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path)
    model.eval()
    batch = labelled_batch(store, np.arange(len(store)))
    whole = model(batch.source)
    apart = torch.cat([model(piece.to("cpu").source) for piece in batch.split(4)])
    np.testing.assert_allclose(apart.detach(), whole.detach(), **CLOSE)
    assert all(piece.source.cached for piece in batch.split(4))


def test_large_cache_is_kept_on_disk(tmp_path, monkeypatch):
    model, store = filled("mixed")
    feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path)
    rows = np.array([4, 0, 7])
    (here,) = store.padded(rows).cached
    monkeypatch.setattr(stores, "MAX_CACHE_BYTES", 100)
    feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path)
    assert store.cached[0].data.on_disk
    assert torch.equal(store.padded(rows).cached[0], here)


def test_too_much_or_too_slow_is_left(tmp_path, monkeypatch):
    model, store = filled("text")
    seen = []

    def heard(share):
        seen.append(share)
        return share < 0.5

    monkeypatch.setattr("weft.inference.forward.MAX_ROWS", 2)
    assert not feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path, heard)
    assert seen == sorted(seen)
    assert 0.5 <= seen[-1] < 1
    assert not store.cached
    needed = int(store.ends[-1]) * 12 * 4
    free = SimpleNamespace(free=2 * needed - 1)
    monkeypatch.setattr(feature_cache.shutil, "disk_usage", lambda folder: free)
    assert not feature_cache.cache_features(
        model, store, select_runtime("cpu"), tmp_path
    )  # only half of the disk is taken
    free.free = 2 * needed
    assert feature_cache.cache_features(model, store, select_runtime("cpu"), tmp_path)


@pytest.mark.parametrize("mix", [False, True])
def test_a_frozen_network_drops_only_what_comes_out(mix):
    model, store = filled("mixed" if mix else "text")
    (embedder,) = model.train().embedders
    source = store.padded(np.arange(4))
    assert torch.equal(embedder.frozen_features(source).data, embedder.frozen_features(source).data)
    embedder.dropout.p = 0.5
    out = embedder(source)
    real = out.data[out.mask]  # (M, H)
    assert 0.3 < (real == 0).float().mean() < 0.7
    model.eval()
    whole = embedder(source).data[out.mask]
    kept = real != 0
    np.testing.assert_allclose(real[kept].detach(), 2 * whole[kept].detach(), rtol=1e-4, atol=1e-5)
    assert out.data.requires_grad == mix  # the mix learns, and nothing else


def frozen(**changes):
    """A recipe over a frozen network of random weights."""
    network = {"kind": "bert", "hidden": 12, "layers": 2, "heads": 2, "frozen": True, "mix": True}
    values = {
        **SMALL, "train.epochs": 3, "train.save_every": 2, "embedder": network,
        "encoder": {"kind": "rnn", "cell": "gru", "hidden": 7}, **changes,
    }  # fmt: skip
    return configuration.recipe("gru").with_values(values, "test")


def test_the_network_reads_each_row_once(tmp_path, monkeypatch):
    read = []
    layers = Bert.layers

    def counted(self, x):
        read.append(len(x))
        return layers(self, x)

    monkeypatch.setattr(Bert, "layers", counted)
    monkeypatch.setattr(trainer.Trainer, "_load_best", lambda loop: read.append("end"))
    out = train(frozen(), tmp_path / "run", splits=splits(), quiet=True, device="cpu")
    rows = read[: read.index("end")]
    parts = splits()
    assert sum(rows) == len(list(parts.train())) + len(list(parts.dev()))
    assert out.predictor.engine.model.embedders[0].mix.scores.any()  # this has learned


def test_cached_features_train_the_same_weights(tmp_path, monkeypatch):
    with_, without = ({}, {})
    for name, found in (("with", with_), ("without", without)):
        out = train(frozen(), tmp_path / name, splits=splits(), quiet=True, device="cpu")
        found |= dict(out.predictor.engine.model.state_dict())
        monkeypatch.setattr(trainer, "cache_features", lambda *rest: False)
    for name, weight in with_.items():
        np.testing.assert_allclose(weight, without[name], rtol=0, atol=2e-4, err_msg=name)


def test_a_resumed_training_is_the_same(tmp_path, monkeypatch):
    """The network that reads is the one that was saved, not one that a new start would make."""
    train(frozen(), tmp_path / "whole", splits=splits(), quiet=True, device="cpu")
    with killed(11):
        train(frozen(), tmp_path / "cut", splits=splits(), quiet=True, device="cpu")
    made = NeuralRun.build_model

    def others(run, tokenizer, resume):
        model = made(run, tokenizer, resume)
        for p in model.parameters():
            p.data.add_(1.0)
        return model

    monkeypatch.setattr(NeuralRun, "build_model", others)
    train(frozen(), tmp_path / "cut", splits=splits(), quiet=True, device="cpu", resume=True)
    first, second = (
        hashlib.sha256((tmp_path / name / "model" / "weights.safetensors").read_bytes()).digest()
        for name in ("whole", "cut")
    )
    assert first == second


def test_half_of_the_time_is_enough_for_reading(tmp_path, monkeypatch):
    """A slow network does not keep the others from learning."""
    asked = []

    def slow(model, store, runtime, folder, heard):
        asked.append(heard(0.5))
        return False

    monkeypatch.setattr(trainer, "cache_features", slow)
    monkeypatch.setattr(trainer.TimeBudget, "fraction_used", property(lambda clock: 0.6))
    train(frozen(), tmp_path / "run", splits=splits(), quiet=True, device="cpu")
    assert asked == [False, False]
    said = (tmp_path / "run" / "log.txt").read_text("utf-8")
    assert "the frozen features of train are computed in every epoch" in said


def test_the_clock_counts_the_epochs(tmp_path, monkeypatch):
    """What was read once is no part of the course that the learning rate follows."""
    seen, updates = [], trainer.Trainer._updates

    def slow(*rest):
        time.sleep(0.2)
        return False

    def begun(loop):
        seen.append(loop.budget.seconds)
        return updates(loop)

    monkeypatch.setattr(trainer, "cache_features", slow)
    monkeypatch.setattr(trainer.Trainer, "_updates", begun)
    train(frozen(), tmp_path / "run", splits=splits(), quiet=True, device="cpu")
    assert seen[0] < 0.2  # twice that was slept
