"""A checkpoint in a configuration: what a run makes of it, and that nothing is lost on the way."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import weft
from tests.fixtures.checkpoints import TEXTS, checkpoint, vocabulary
from tests.fixtures.command import fails, ok, says, train
from tests.fixtures.small import SMALL, splits
from tests.fixtures.small import file as small
from weft import config as configuration
from weft.run import pretrained
from weft.run.convert import convert
from weft.run.pretrained import load_pretrained, resolve
from weft.run.train import resolve_config
from weft.run.train import train as run

SECTIONS = {
    "embedder": {"kind": "pretrained"},
    "encoder": {"kind": "none"},
    "pool": {"kind": "cls"},
    "head": {"kind": "linear"},
}


def fresh(folder, task="classify", family="bert", rate=0.0, **embedder):
    """A model that starts from a folder, and what was said of it."""
    sections = {**SECTIONS, "embedder": {**SECTIONS["embedder"], "model": str(folder), **embedder}}
    parts = resolve(weft.Config(sections)).sections
    model = weft.build_model(parts, vocabulary_size=len(vocabulary(family)), outputs=2)
    return model, load_pretrained(model, task, rate)


def test_the_recipe_needs_a_checkpoint(tmp_path):
    told = fails(*train(small(tmp_path), tmp_path / "run", recipe="bert"))
    says(told, "[embedder] kind 'pretrained' needs a checkpoint", "--pretrained FOLDER")
    assert not (tmp_path / "run").exists()
    assert "bert" not in configuration.recipes()
    assert "bert" in configuration.recipes(pretrained=True)
    assert "bert" in configuration.recipes(None)
    told = fails(*train(small(tmp_path), tmp_path / "run", "--pretrained", "x", recipe="tfidf"))
    says(told, "--pretrained x: a classic model has no network")


def test_a_rate_at_which_a_large_network_forgets_is_named(tmp_path, monkeypatch):
    checkpoint(tmp_path / "theirs", "bert")
    monkeypatch.setattr(pretrained, "LARGE_NETWORK", 1000)
    told = fresh(tmp_path / "theirs", rate=1e-3)[1][-1]
    says(told, "note: train.learning_rate=0.001 is high for a network of", "embedder.frozen=true")
    for calm in ({"rate": 5e-5}, {"rate": 1e-3, "frozen": True}, {"rate": 1e-3, "lora": 2}):
        assert "high" not in " ".join(fresh(tmp_path / "theirs", **calm)[1])
    monkeypatch.undo()
    assert "high" not in " ".join(fresh(tmp_path / "theirs", rate=1e-3)[1])


def test_a_run_starts_from_the_checkpoint_and_does_not_need_it_again(tmp_path):
    network, made = checkpoint(tmp_path / "theirs", "bert")
    data = small(tmp_path)
    more = ("--pretrained", tmp_path / "theirs", "--set", "train.learning_rate=0")
    done = ok(*train(data, tmp_path / "run", *more, recipe="bert"))
    says(done.err + done.out, "weights of the embedder are those of", "weights of the pool begin")
    shutil.rmtree(tmp_path / "theirs")
    predictor = weft.load(tmp_path / "run")
    spec = predictor.config["embedder"]
    assert (spec["kind"], spec["hidden"], spec["layers"], spec["cls"]) == ("bert", 12, 3, 2)
    given = made(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        found = network(**given)
    states, _ = predictor.states(TEXTS[0])
    np.testing.assert_allclose(states, found.last_hidden_state[0].numpy(), rtol=0, atol=1e-5)
    pooled = predictor.embed(TEXTS[:1])
    np.testing.assert_allclose(pooled, found.pooler_output.numpy(), rtol=0, atol=1e-5)
    # A run that goes on has its weights and its tokenizer.
    again = ("--resume", "--set", "train.epochs=3", "--set", "train.batch_size=5")
    ok("train", "-o", tmp_path / "run", *again, "--set", "train.threads=1")


def test_a_converted_model_is_as_good_as_the_folder(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    (first, told), (second, said) = (fresh(tmp_path / name) for name in ("theirs", "ours"))
    assert len(told) == len(said) == 2
    for part in ("embedders", "pool"):
        one, other = (getattr(model, part).state_dict() for model in (first, second))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_settings_beside_the_model_are_kept(tmp_path):
    checkpoint(tmp_path, "bert")
    model, _ = fresh(tmp_path, frozen=True, mix=True, subword_pooling="mean", dropout=0.3)
    (embedder,) = model.embedders
    assert (embedder.subword_pooling, embedder.dropout.p) == ("mean", 0.3)
    learned = {name for name, p in embedder.named_parameters() if p.requires_grad}
    assert learned == {"mix.scores", "mix.gamma"}
    model, _ = fresh(tmp_path, lora=2)
    (embedder,) = model.embedders
    wanted = load_file(tmp_path / "model.safetensors")
    name = "encoder.layer.2.attention.self.value.weight"
    assert torch.equal(embedder.blocks[2].attention.value.weight, wanted[name])
    with pytest.raises(weft.UserError, match=r"Remove 'hidden' from \[embedder\]: the checkpoint"):
        fresh(tmp_path, hidden=24)


def test_any_recipe_takes_a_pretrained_network(tmp_path):
    checkpoint(tmp_path / "theirs", "roberta")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    base = configuration.recipe("bilstm").with_values({**SMALL, "train.epochs": 1}, "test")
    base = base.with_values({"encoder.hidden": 5}, "test")
    made = configuration.with_pretrained(base, str(tmp_path / "ours"))
    full = resolve_config(made)
    assert full["embedder"]["kind"] == "bert"
    assert full["embedder"]["double_sep"]
    assert full["tokenizer"]["kind"] == "bpe"
    assert made.origin("embedder") == "--pretrained"
    found = run(made, tmp_path / "run", splits=splits(), quiet=True).predictor
    assert len(found.engine.indexer.tokenizer) == len(vocabulary("roberta"))
    again = weft.load(tmp_path / "run")
    np.testing.assert_allclose(again.embed(TEXTS), found.embed(TEXTS), rtol=0, atol=1e-6)


def test_language_model_training_continues(tmp_path):
    checkpoint(tmp_path / "theirs", "gpt2", "LMHeadModel")
    text = "the bank of the river was steep and she banked on it\n" * 60
    (tmp_path / "text.txt").write_text(text, "utf-8")
    sets = (
        "--set",
        "task.window=11",
        "--set",
        "train.learning_rate=0",
        "--set",
        "train.batch_size=7",
    )
    given = ("train", "--recipe", "gpt", "--train", tmp_path / "text.txt", *sets)
    given += (
        "--set",
        "train.epochs=1",
        "--set",
        "train.threads=1",
        "--set",
        "train.cuda_graphs=false",
    )
    ok(*given, "--pretrained", tmp_path / "theirs", "-o", tmp_path / "run")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    before, after = (
        load_file(tmp_path / name / "weights.safetensors") for name in ("ours", "run/model")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    checkpoint(tmp_path / "bert", "bert")
    told = fails(*given, "--pretrained", tmp_path / "bert", "-o", tmp_path / "no")
    says(told, "not a language model, which is what this configuration goes on with")


def test_mlm_head_starts_from_the_checkpoint(tmp_path):
    """The head that fills in hidden words begins where the checkpoint's ended."""
    checkpoint(tmp_path / "theirs", "bert", "ForPreTraining")
    convert(str(tmp_path / "theirs"), tmp_path / "ours", task="masked")
    wanted = load_file(tmp_path / "ours" / "weights.safetensors")
    for name in ("theirs", "ours"):
        sections = {
            **SECTIONS,
            "embedder": {"kind": "pretrained", "model": str(tmp_path / name)},
            "head": {"kind": "masked"},
        }
        parts = resolve(weft.Config(sections)).sections
        size = len(vocabulary("bert"))
        model = weft.build_model(parts, vocabulary_size=size, outputs=(size, True))
        assert len(load_pretrained(model, "masked")) == 3
        found = model.state_dict()
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_unusable_checkpoint_raises_user_error(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    (tmp_path / "theirs" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    from tests.fixtures.checkpoints import write_vocabulary

    write_vocabulary(tmp_path / "theirs", "bert")
    with pytest.raises(weft.UserError, match=r"has to be made first. Run `weft convert"):
        fresh(tmp_path / "theirs")
    data = small(tmp_path)
    ok(*train(data, tmp_path / "bag"))
    with pytest.raises(weft.UserError, match="whose vectors know no context"):
        fresh(tmp_path / "bag")
    ok(*train(data, tmp_path / "tfidf", recipe="tfidf"))
    with pytest.raises(weft.UserError, match="a model without a network"):
        fresh(tmp_path / "tfidf")
    with pytest.raises(weft.UserError, match="no such folder"):
        fresh(tmp_path / "nowhere")
