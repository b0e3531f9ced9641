"""A model folder read with rounded weights: near, faster, and checked in full precision."""

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.command import command
from weft.attend import packed as module
from weft.errors import UserError
from weft.predict.neural import NeuralEngine, make_indexer
from weft.predict.predictor import Predictor
from weft.run.train import resolve_config
from weft.runtime import select_runtime
from weft.tasks.task import build_task

TEXTS = ["a small boat on the river", "boat", "the bank of the river is steep and green"]


def saved(folder, embedder):
    torch.manual_seed(7)
    config = weft.Config(
        {"embedder": embedder, "encoder": {"kind": "none"}, "pool": {"kind": "mean"},
         "head": {"kind": "none"}, "task": {"kind": "embed"}, "tokenizer": {"kind": "word"}}
    )  # fmt: skip
    full = resolve_config(config)
    words = weft.registry.build("tokenizer", full["tokenizer"]).train(TEXTS)
    task = build_task(full)
    space = task.load_space({})
    model = weft.build_model(full, vocabulary_size=len(words), outputs=space.size)
    engine = NeuralEngine(model, make_indexer(model, words, 64, "head"), select_runtime("cpu"))
    Predictor(engine, task, space, full).save(folder, golden=TEXTS)


def test_int8_weights_are_chosen_when_a_model_is_loaded(tmp_path, monkeypatch):
    saved(tmp_path / "m", {"kind": "bert", "hidden": 24, "layers": 2, "heads": 3})
    laid = []
    real = module.PackedBlocks.__init__
    monkeypatch.setattr(
        module.PackedBlocks, "__init__", lambda self, blocks, weights: laid.append(weights) or real(
            self, blocks, weights)
    )  # fmt: skip
    exact = weft.load(tmp_path / "m").embed(TEXTS)
    assert set(laid) == {"float32"}
    model = weft.load(tmp_path / "m", weights="int8")  # what was recorded is compared in fp32
    assert set(laid) == {"float32"}
    near = model.embed(TEXTS)
    assert laid[-1] == "int8"
    assert 1e-6 < np.abs(near - exact).max() < 0.1
    assert np.abs(exact - weft.load(tmp_path / "m", weights="float32").embed(TEXTS)).max() < 1e-6


def test_predict_and_evaluate_take_rounded_weights(tmp_path):
    saved(tmp_path / "m", {"kind": "lookup", "width": 6})
    (tmp_path / "t.tsv").write_text("good\tboat\nbad\triver\n", "utf-8")
    for verb in ("predict", "evaluate"):
        done = command(verb, tmp_path / "m", tmp_path / "t.tsv", "--int8")
        assert done.status == 2
        assert "this model has no BERT or GPT, so there are no weights" in done.err


def test_int8_without_transformer_raises_user_error(tmp_path):
    saved(tmp_path / "m", {"kind": "lookup", "width": 6})
    with pytest.raises(UserError, match="this model has no BERT or GPT, so there are no weights"):
        weft.load(tmp_path / "m", weights="int8")
    with pytest.raises(UserError, match=r"Unknown choice 'int4' in weights. Did you mean 'int8'\?"):
        weft.load(tmp_path / "m", weights="int4")


def test_a_classic_model_has_none(tmp_path):
    rows = list(weft.corpus("reviews")["train"])[:40]
    splits = weft.Splits(lambda: iter(rows[9:]), lambda: iter(rows[:9]))
    weft.train(weft.recipe("tfidf"), tmp_path / "run", splits=splits, quiet=True)
    with pytest.raises(UserError, match="a classic model has no weights to quantise"):
        weft.load(tmp_path / "run", weights="int8")
