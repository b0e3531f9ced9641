"""Out and back again: the same bits, and `transformers` loads what was written and agrees."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import weft
from tests.fixtures.checkpoints import CLASSES, TEXTS, checkpoint, name_of, task_of, transformers
from tests.fixtures.command import fails, ok, says, train
from tests.fixtures.sentence_checkpoints import sentence_folder
from tests.fixtures.small import file as small
from weft.run.convert import convert, export

DIGIT = {"rtol": 1e-6, "atol": 1e-6}
SETTINGS = ("hidden_act", "intermediate_size", "max_position_embeddings", "pad_token_id", "dim")
SETTINGS += ("n_inner", "layer_norm_eps", "hidden_dropout_prob", "embedding_size", "id2label")


@pytest.mark.parametrize(("family", "suffix", "more"), CLASSES, ids=name_of)
def test_export_and_import_keep_every_bit(tmp_path, family, suffix, more):
    _, made = checkpoint(tmp_path / "theirs", family, suffix, **more)
    convert(str(tmp_path / "theirs"), tmp_path / "ours", task=task_of(suffix))
    export(tmp_path / "ours", tmp_path / "again")
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "again")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    first, second = (
        transformers.AutoConfig.from_pretrained(tmp_path / name) for name in ("theirs", "again")
    )
    for name in SETTINGS:
        if getattr(first, name, None) is not None:
            assert getattr(second, name) == getattr(first, name), name
    convert(str(tmp_path / "again"), tmp_path / "back", task=task_of(suffix))
    ours, back = (load_file(tmp_path / name / "weights.safetensors") for name in ("ours", "back"))
    assert ours.keys() == back.keys()
    assert all(torch.equal(ours[name], back[name]) for name in ours)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    for text in TEXTS:
        assert loaded(text)["input_ids"] == made(text)["input_ids"]


@pytest.mark.parametrize(("family", "suffix", "more"), CLASSES, ids=name_of)
def test_transformers_loads_it_and_agrees(tmp_path, family, suffix, more):
    network, made = checkpoint(tmp_path / "theirs", family, suffix, **more)
    convert(str(tmp_path / "theirs"), tmp_path / "ours", task=task_of(suffix))
    made_of = export(tmp_path / "ours", tmp_path / "again").name
    kind = type(network)
    assert made_of == kind.__name__
    loaded, told = kind.from_pretrained(tmp_path / "again", output_loading_info=True)
    pooler = {f"pooler.dense.{p}" for p in ("weight", "bias")}
    assert set(told["missing_keys"]) <= pooler
    assert not told["unexpected_keys"]
    pair = suffix in ("ForPreTraining", "ForNextSentencePrediction")
    given = made(*TEXTS[: 1 + pair], return_tensors="pt")
    with torch.no_grad():
        first, second = network(**given).to_tuple(), loaded.eval()(**given).to_tuple()
    # The bits of the weights are the same; where they lie in memory changes the last digit.
    for one, other in zip(first[:2], second[:2], strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, **DIGIT)


def test_a_fine_tuned_classifier_is_a_checkpoint_with_its_labels(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    data = small(tmp_path)
    more = ("--pretrained", tmp_path / "theirs", "--set", "train.learning_rate=0.001")
    ok(*train(data, tmp_path / "run", *more, recipe="bert"))
    done = ok("export", tmp_path / "run", "--to", "huggingface", "-o", tmp_path / "out")
    says(done.err, "BertForSequenceClassification saved in")
    predictor = weft.load(tmp_path / "run")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert network.config.id2label == {0: "negative", 1: "positive"}
    texts = ["the film was good", "the plot was bad"]
    for text, answer in zip(texts, predictor(texts), strict=True):
        with torch.no_grad():
            chances = network.eval()(**made(text, return_tensors="pt")).logits[0].softmax(0)
        np.testing.assert_allclose(answer.scores, chances.numpy(), rtol=0, atol=1e-5)


def test_numbers_are_written_in_their_unit(tmp_path):
    rows = [f"{i / 10 + 3}\tthe bank was {'good' if i % 2 else 'bad'} {i}\n" for i in range(23)]
    (tmp_path / "train.tsv").write_text("".join(rows), "utf-8")
    checkpoint(tmp_path / "theirs", "bert")
    more = ("--pretrained", tmp_path / "theirs", "--task", "regress")
    ok(*train(tmp_path / "train.tsv", tmp_path / "run", *more, recipe="bert"))
    export(tmp_path / "run", tmp_path / "out")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    (answer,) = weft.load(tmp_path / "run")(TEXTS[:1])
    with torch.no_grad():
        (value,) = network.eval()(**made(TEXTS[0], return_tensors="pt")).logits[0].tolist()
    assert answer.value == pytest.approx(value, abs=1e-4)


def test_sentence_vectors_keep_their_pool(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    sentence_folder(tmp_path / "theirs")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    export(tmp_path / "ours", tmp_path / "again")
    said = json.loads((tmp_path / "again" / "modules.json").read_text("utf-8"))
    assert [one["type"].split(".")[-1] for one in said] == ["Transformer", "Pooling", "Normalize"]
    convert(str(tmp_path / "again"), tmp_path / "back")
    first, second = (weft.load(tmp_path / name) for name in ("ours", "back"))
    np.testing.assert_array_equal(first.embed(TEXTS), second.embed(TEXTS))
    assert second.config["data"]["max_tokens"] == 7


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_towers_become_a_model_of_sentences(tmp_path, pool):
    """Two texts were compared; what gave them vectors is kept, and gives the same ones there."""
    checkpoint(tmp_path / "theirs", "bert")
    rows = "".join(f"the bank {i}\ta river {i % 3}\t{i / 7}\n" for i in range(23))
    (tmp_path / "two.tsv").write_text("sentence1\tsentence2\tlabel\n" + rows, "utf-8")
    more = ("--pretrained", tmp_path / "theirs", "--task", "pair-score")
    more += ("--set", f"pool.kind={pool}", "--set", "train.learning_rate=0.01")
    ok(*train(tmp_path / "two.tsv", tmp_path / "run", *more, recipe="bert-towers"))
    ours = weft.load(tmp_path / "run")
    done = ok("export", tmp_path / "run", "--to", "huggingface", "-o", tmp_path / "out")
    says(
        done.err, "BertModel saved in", "the comparison of two is left out", "head.layers.0.weight"
    )
    network = transformers.AutoModel.from_pretrained(tmp_path / "out").eval()
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    given = made(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = network(**given).last_hidden_state
    mask = given["attention_mask"][..., None].float()
    wanted = (states * mask).sum(1) / mask.sum(1) if pool == "mean" else states[:, 0]
    np.testing.assert_allclose(ours.embed(TEXTS), wanted.numpy(), rtol=0, atol=1e-5)
    convert(str(tmp_path / "out"), tmp_path / "back")
    back = weft.load(tmp_path / "back").embed(TEXTS)
    np.testing.assert_allclose(ours.embed(TEXTS), back, rtol=0, atol=1e-6)
    sentences = pytest.importorskip("sentence_transformers")
    peer = sentences.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(ours.embed(TEXTS), peer, rtol=0, atol=1e-5)


def test_towers_that_no_model_of_sentences_has(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    rows = "".join(f"the bank {i}\ta river {i % 3}\t{i % 2}\n" for i in range(23))
    (tmp_path / "two.tsv").write_text("sentence1\tsentence2\tlabel\n" + rows, "utf-8")
    more = ("--pretrained", tmp_path / "theirs", "--set", "pool.kind=mean+max")
    ok(*train(tmp_path / "two.tsv", tmp_path / "run", *more, recipe="bert-towers"))
    told = fails("export", tmp_path / "run", "--to", "huggingface", "-o", tmp_path / "out")
    says(told, "sentence-transformers has no pool 'mean+max'", "pool.kind=mean or first")
    checkpoint(tmp_path / "gpt", "gpt2", "LMHeadModel")
    more = ("--pretrained", tmp_path / "gpt", "--set", "pool.kind=last")
    ok(*train(tmp_path / "two.tsv", tmp_path / "spoken", *more, recipe="bert-towers"))
    told = fails("export", tmp_path / "spoken", "--to", "huggingface", "-o", tmp_path / "out")
    says(told, "A sentence encoder from a GPT-2 cannot be exported")


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "max_tokens", "mean"])
def test_vectors_of_sentences(tmp_path, mode):
    """Against the equations of sentence-transformers, over the states of transformers."""
    network, made = checkpoint(tmp_path / "theirs", "bert")
    sentence_folder(tmp_path / "theirs", mode, normalise=mode != "max_tokens")
    (note,) = convert(str(tmp_path / "theirs"), tmp_path / "ours")
    says(note, "left out", "pooler.dense.bias, pooler.dense.weight")
    given = made(TEXTS, return_tensors="pt", padding=True, truncation=True, max_length=7)
    assert given["input_ids"].shape[1] == 7  # a text was cut
    with torch.no_grad():
        states = network(**given).last_hidden_state
    mask = given["attention_mask"][..., None].float()
    if mode.startswith("mean"):
        wanted = (states * mask).sum(1) / mask.sum(1)
    elif mode.startswith("cls"):
        wanted = states[:, 0]
    else:
        wanted = states.masked_fill(mask == 0, -1e9).max(1).values
    if mode != "max_tokens":
        wanted = torch.nn.functional.normalize(wanted, dim=1)
    found = weft.load(tmp_path / "ours").embed(TEXTS)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=1e-5)


def test_export_without_transformers_class_fails(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    data = small(tmp_path)
    given = ("--pretrained", tmp_path / "theirs")
    to = ("--to", "huggingface", "-o", tmp_path / "out")

    def refused(name, *sets, recipe="bert"):
        ok(*train(data, tmp_path / name, *sets, recipe=recipe))
        return fails("export", tmp_path / name, *to)

    told = refused("words", recipe="bag")
    says(told, "only a bert or gpt network with a head")
    told = refused("mean", *given, "--set", "pool.kind=mean")
    says(told, "pool 'cls' and head 'linear', not 'mean' and 'linear'")
    told = refused("mix", *given, "--set", "embedder.mix=true")
    says(told, "no class for a mix of layers")
    told = refused("act", *given, "--set", "pool.activation=relu")
    says(told, "pooler of Bert has the activation tanh, this one relu", "--set pool.")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    ok(*train(data, tmp_path / "good", *given, recipe="bert"))
    says(fails("export", tmp_path / "good", *to), "is not empty. Pass --overwrite")
    says(fails("export", tmp_path / "good", *to, "--overwrite"), "holds no config.json")
    told = fails("export", tmp_path / "good", "--to", "hugginface", "-o", tmp_path / "x")
    says(told, "Did you mean 'huggingface'?")


def test_low_rank_changes_are_written_into_the_matrices(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    more = ("--pretrained", tmp_path / "theirs", "--set", "embedder.lora=2")
    more += ("--set", "train.learning_rate=0.05")
    ok(*train(small(tmp_path), tmp_path / "run", *more, recipe="bert"))
    export(tmp_path / "run", tmp_path / "out")
    name = "encoder.layer.0.attention.self.query.weight"
    before = load_file(tmp_path / "theirs" / "model.safetensors")[name]
    after = load_file(tmp_path / "out" / "model.safetensors")[f"bert.{name}"]
    assert torch.linalg.matrix_rank(after - before, tol=1e-4) == 2
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    (answer,) = weft.load(tmp_path / "run")(TEXTS[:1])
    with torch.no_grad():
        chances = network.eval()(**made(TEXTS[0], return_tensors="pt")).logits[0].softmax(0)
    np.testing.assert_allclose(answer.scores, chances.numpy(), rtol=0, atol=1e-5)


def test_half_precision_is_read_as_full(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    path = tmp_path / "theirs" / "model.safetensors"
    halved = {name: tensor.half() for name, tensor in load_file(path).items()}
    save_file(halved, path, metadata={"format": "pt"})
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    weights = load_file(tmp_path / "ours" / "weights.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    wanted = halved["embeddings.LayerNorm.weight"].float()
    assert torch.equal(weights["embedders.0.norm.weight"], wanted)
