"""What a checkpoint folder may hold, and what is said of one that is not whole."""

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import weft
from tests.fixtures.checkpoints import TEXTS, checkpoint, vocabulary, write_vocabulary
from tests.fixtures.command import fails, ok, says
from weft.convert import locate, tensors
from weft.run.convert import convert

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path):
    checkpoint(tmp_path / "theirs", "bert")
    return tmp_path / "theirs"


def change(folder, make):
    """Write the tensors of a folder anew."""
    found = load_file(folder / WEIGHTS)
    save_file(make(found), folder / WEIGHTS, metadata={"format": "pt"})


def settings(folder, name="config.json", **changes):
    said = json.loads((folder / name).read_text("utf-8"))
    said |= changes
    for key in [key for key, value in said.items() if value is None]:
        del said[key]
    (folder / name).write_text(json.dumps(said), "utf-8")


class Evil:
    """Something that would write a file if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def vectors(folder, output):
    convert(str(folder), output)
    return weft.load(output).embed(TEXTS)


def test_pickled_and_sharded_weights_are_the_same(folder, tmp_path):
    wanted = vectors(folder, tmp_path / "0")
    found = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(found, folder / "pytorch_model.bin")
    np.testing.assert_array_equal(vectors(folder, tmp_path / "1"), wanted)
    torch.save(found, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    np.testing.assert_array_equal(vectors(folder, tmp_path / "2"), wanted)
    (folder / "pytorch_model.bin").unlink()
    names = sorted(found)
    shards = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for name, own in shards.items():
        save_file({key: found[key] for key in own}, folder / name)
    placed = {key: name for name, own in shards.items() for key in own}
    index = folder / f"{WEIGHTS}.index.json"
    index.write_text(json.dumps({"weight_map": placed}), "utf-8")
    np.testing.assert_array_equal(vectors(folder, tmp_path / "3"), wanted)
    (folder / "b.safetensors").unlink()
    says(fails("convert", folder, "-o", tmp_path / "4"), "lists b.safetensors, which is missing")


def test_old_names_of_layer_norms(folder, tmp_path):
    wanted = vectors(folder, tmp_path / "0")

    def old(name):
        if "LayerNorm" not in name:
            return f"bert.{name}"
        return f"bert.{name}".replace(".weight", ".gamma").replace(".bias", ".beta")

    change(folder, lambda found: {old(name): tensor for name, tensor in found.items()})
    np.testing.assert_array_equal(vectors(folder, tmp_path / "1"), wanted)


def test_a_pickle_with_code_inside_does_not_run(folder, tmp_path):
    evil = Evil(tmp_path / "was run")
    (folder / WEIGHTS).unlink()
    torch.save({"weight": evil}, folder / "pytorch_model.bin")
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "pytorch_model.bin: refused", "Nothing in it was run", ".safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(evil))
    says(fails("convert", folder, "-o", tmp_path / "model"), "pytorch_model.bin: refused")
    assert not (tmp_path / "was run").exists()
    torch.save([1, 2], folder / "pytorch_model.bin")
    says(fails("convert", folder, "-o", tmp_path / "model"), "expected names with tensors")
    (folder / "pytorch_model.bin").write_bytes(b"PK nothing")
    says(fails("convert", folder, "-o", tmp_path / "model"), "pytorch_model.bin: ")


def test_missing_extra_and_misshapen_tensors_are_named(folder, tmp_path):
    whole = load_file(folder / WEIGHTS)
    name = "encoder.layer.1.attention.self.query.weight"
    change(folder, lambda found: {n: t for n, t in found.items() if n != name})
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "1 tensors that config.json declares are missing", name)
    change(folder, lambda _: {**whole, "encoder.layer.3.output.dense.bias": torch.zeros(12)})
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "1 tensors that config.json does not describe", "encoder.layer.3.output.dense.bias")
    change(folder, lambda _: {**whole, name: torch.zeros(12, 11)})
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, f"{name} has the shape (12, 11)", "need (12, 12)")
    change(folder, lambda _: {**whole, "embeddings.position_ids": torch.arange(23)[None]})
    done = ok("convert", folder, "-o", tmp_path / "model")
    says(done.err, "note: left out because no task uses it: embeddings.position_ids")
    assert not (tmp_path / "no").exists()


def test_settings_that_do_not_fit_the_weights(folder, tmp_path):
    settings(folder, num_hidden_layers=4)
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "16 tensors that config.json declares", "encoder.layer.3.attention", "… (11 more)")
    settings(folder, num_hidden_layers=3, position_embedding_type="relative_key")
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "config.json: position_embedding_type is 'relative_key'", "only if it is 'abs")
    settings(folder, position_embedding_type=None, hidden_act="swish")
    says(fails("convert", folder, "-o", tmp_path / "model"), "Unknown activation 'swish'")
    settings(folder, hidden_act="gelu", model_type="berd")
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "Unknown family of checkpoints 'berd'", "Did you mean 'bert'?")
    settings(folder, model_type=None)
    message = fails("convert", folder, "-o", tmp_path / "model")
    says(message, "config.json: no model_type", "Set model_type to one of bert, ")
    (folder / "config.json").write_text("{", "utf-8")
    says(fails("convert", folder, "-o", tmp_path / "model"), "not readable as JSON")
    (folder / "config.json").unlink()
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "no config.json, so not a checkpoint folder", "the Hugging Face layout")


def test_a_tokenizer_of_another_checkpoint(folder, tmp_path):
    settings(folder, vocab_size=len(vocabulary("bert")) - 2)
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "has 97 entries, the embedding table 95 rows", "no vectors for ##8, ##9")
    settings(folder, vocab_size=400)
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "97 entries, the embedding table 400 rows", "Copy the tokenizer of this")
    name = "embeddings.word_embeddings.weight"
    rows = torch.randn(3, 12)
    change(folder, lambda found: {**found, name: torch.cat([found[name], rows])})
    settings(folder, vocab_size=100)
    done = ok("convert", folder, "-o", tmp_path / "model")
    says(done.err, "note: 3 rows of the embedding table have no token")
    weights = load_file(tmp_path / "model" / "weights.safetensors")
    assert torch.equal(weights["embedders.0.table.weight"][-3:], rows)


def test_a_folder_without_a_tokenizer_or_with_files_of_one(folder, tmp_path):
    wanted = vectors(folder, tmp_path / "0")
    (folder / "tokenizer.json").unlink()
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "no tokenizer", "vocab.txt", "vocab.json with merges.txt")
    write_vocabulary(folder, "bert")
    np.testing.assert_array_equal(vectors(folder, tmp_path / "1"), wanted)
    text = (folder / "vocab.txt").read_text("utf-8").replace("[SEP]", "[sep]")
    (folder / "vocab.txt").write_text(text, "utf-8")
    says(fails("convert", folder, "-o", tmp_path / "model"), "vocab.txt: no entry [SEP]")


def test_added_tokens_have_the_ids_they_say(folder):
    (folder / "tokenizer.json").unlink()
    write_vocabulary(folder, "bert")
    (folder / "added_tokens.json").write_text('{"<x>": 97, "<y>": 99}', "utf-8")
    from weft.convert import tokenizer

    with pytest.raises(weft.UserError, match=r"'<y>' should have the id 99, .* free one is 98"):
        tokenizer.read(folder, "bert")
    (folder / "added_tokens.json").write_text('{"<x>": 97}', "utf-8")
    assert tokenizer.read(folder, "bert").encode_ids(["a <x>"])[0].tolist()[-1] == 97


def test_labels_of_a_checkpoint_are_numbered_without_gaps(tmp_path):
    checkpoint(tmp_path / "c", "bert", "ForSequenceClassification", num_labels=3)
    settings(tmp_path / "c", id2label={"0": "a", "1": "b", "3": "c"})
    says(fails("convert", tmp_path / "c", "-o", tmp_path / "m"), "without gaps")
    settings(tmp_path / "c", id2label={"0": "a", "1": "b", "2": "a"})
    says(fails("convert", tmp_path / "c", "-o", tmp_path / "m"), "distinct labels")
    settings(tmp_path / "c", id2label={"0": "a", "1": "b"})
    told = fails("convert", tmp_path / "c", "-o", tmp_path / "m")
    says(told, "classifier.weight has the shape (3, 12)", "need (2, 12)")


def test_modules_of_sentences_that_are_not_read(folder, tmp_path):
    from tests.fixtures.sentence_checkpoints import sentence_folder

    sentence_folder(folder, "mean_sqrt_len_tokens")
    says(fails("convert", folder, "-o", tmp_path / "m"), "the pooling mode is mean_sqrt_len_tokens")
    listed = [{"type": f"x.{kind}", "path": ""} for kind in ("Transformer", "Pooling", "Dense")]
    (folder / "modules.json").write_text(json.dumps(listed), "utf-8")
    says(
        fails("convert", folder, "-o", tmp_path / "m"),
        "are Transformer, Pooling, Dense",
    )


def test_vectors_and_no_answers(folder, tmp_path):
    ok("convert", folder, "-o", tmp_path / "model")
    predictor = weft.load(tmp_path / "model")
    assert predictor([]) == []
    with pytest.raises(weft.UserError, match=r"gives vectors, not answers.*--recipe bert --pretr"):
        predictor(TEXTS)
    (tmp_path / "f.tsv").write_text("good\ta text\nbad\tanother\n", "utf-8")
    says(fails("evaluate", tmp_path / "model", tmp_path / "f.tsv"), "gives vectors, not answers")
    says(fails("predict", tmp_path / "model", tmp_path / "f.tsv"), "gives vectors, not answers")
    path = tmp_path / "model" / "golden.jsonl"
    first, *rest = path.read_text("utf-8").splitlines()
    line = json.loads(first)
    line["scores"][3] += 0.01
    path.write_text("\n".join([json.dumps(line), *rest]), "utf-8")
    with pytest.raises(weft.UserError, match="answers differ from those recorded"):
        weft.load(tmp_path / "model")


def test_an_output_folder_is_not_overwritten_by_mistake(folder, tmp_path):
    ok("convert", folder, "-o", tmp_path / "model")
    says(fails("convert", folder, "-o", tmp_path / "model"), "is not empty. Pass --overwrite")
    ok("convert", folder, "-o", tmp_path / "model", "--overwrite")
    told = fails("convert", folder, "-o", folder, "--overwrite")
    says(told, "holds no model.json, so --overwrite leaves it alone")
    says(fails("convert", folder, "-o", tmp_path / "x", "--task", "mask"), "mean 'masked'?")


def test_names_of_the_hub(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    checkpoint(tmp_path / "cache", "bert")
    asked = []

    def fetch(name, revision, allow_patterns):
        asked.append((name, revision))
        return str(tmp_path / "cache")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    ok("convert", "org/small-bert@v1.2", "-o", tmp_path / "model")
    told = fails("convert", tmp_path / "model", "-o", tmp_path / "again")
    says(told, "already a Weft model", "--pretrained")
    assert asked == [("org/small-bert", "v1.2")]
    assert locate.locate("plain") == tmp_path / "cache"
    assert locate.locate("cache").name == "cache"  # a folder is preferred
    assert asked[1:] == [("plain", None)]

    def gone(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("not in the cache, and offline.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", gone)
    told = fails("convert", "cash", "-o", tmp_path / "m")
    says(told, "cash: no such folder.", "Did you mean 'cache'?", "The hub could not be searched")
    says(fails("convert", "./gone/for/good", "-o", tmp_path / "m"), "no such folder.")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    told = fails("convert", "org/name", "-o", tmp_path / "m")
    says(told, "no such folder.", "pip install 'weft[hub]'")


def test_shards_may_not_repeat_a_tensor_nor_lack_one(tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"x": torch.zeros(2)}, tmp_path / name)
    index = tmp_path / f"{WEIGHTS}.index.json"

    def read(placed):
        index.write_text(json.dumps({"weight_map": placed}), "utf-8")
        return tensors.read(tmp_path)

    with pytest.raises(weft.UserError, match=r"b.safetensors: x is in another shard"):
        read({"x": "a.safetensors", "y": "b.safetensors"})
    with pytest.raises(weft.UserError, match="is missing"):
        read({"x": "../a.safetensors"})
    with pytest.raises(weft.UserError, match=r"the index lists y, z, but no shard"):
        read({"x": "a.safetensors", "y": "a.safetensors", "z": "a.safetensors"})
    with pytest.raises(weft.UserError, match="lists no shard"):
        read({})
    assert read({"x": "a.safetensors"}).keys() == {"x"}


def test_two_files_of_weights_must_be_of_one_network(folder, tmp_path):
    wanted, found = vectors(folder, tmp_path / "0"), load_file(folder / WEIGHTS)
    other, name = folder / "pytorch_model.bin", "encoder.layer.1.output.dense.bias"
    more = {"embeddings.position_ids": torch.arange(23)[None]}
    torch.save({**found, **more}, other)
    np.testing.assert_array_equal(vectors(folder, tmp_path / "1"), wanted)
    torch.save({n: t.half() for n, t in found.items()}, other)  # the same, rounded
    np.testing.assert_array_equal(vectors(folder, tmp_path / "2"), wanted)
    torch.save({**found, name: found[name] + 1e-3}, other)
    told = fails("convert", folder, "-o", tmp_path / "3")
    says(told, "model.safetensors and pytorch_model.bin hold different weights", name, "Delete")
    torch.save({**found, name: torch.zeros(13)}, other)
    says(fails("convert", folder, "-o", tmp_path / "3"), "hold different weights", name)
    other.write_bytes(b"PK nothing")
    np.testing.assert_array_equal(vectors(folder, tmp_path / "4"), wanted)
    torch.save({name: Evil(tmp_path / "was run")}, other)
    np.testing.assert_array_equal(vectors(folder, tmp_path / "5"), wanted)
    assert not (tmp_path / "was run").exists()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_weights_are_read_in_full_precision(folder, tmp_path, kind):
    change(folder, lambda found: {name: tensor.to(kind) for name, tensor in found.items()})
    rounded = {name: tensor.float() for name, tensor in load_file(folder / WEIGHTS).items()}
    assert {tensor.dtype for tensor in tensors.read(folder).values()} == {torch.float32}
    first = vectors(folder, tmp_path / "0")
    kept = load_file(tmp_path / "0" / "weights.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
    name = "pooler.dense.weight"
    assert torch.equal(kept["pool.dense.weight"], rounded[name])
    change(folder, lambda _: rounded)
    np.testing.assert_array_equal(vectors(folder, tmp_path / "1"), first)


def test_positions_are_as_many_as_the_settings_say(folder, tmp_path):
    settings(folder, max_position_embeddings=29)
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "position_embeddings.weight has the shape (23, 12)", "need (29, 12)")
    settings(folder, max_position_embeddings=23)
    ok("convert", folder, "-o", tmp_path / "model")
    predictor = weft.load(tmp_path / "model")
    long = "the bank " * 40
    states, _ = predictor.states(long)
    assert len(states) == 23  # [CLS] and [SEP] among them
    np.testing.assert_array_equal(predictor.embed([long]), predictor.embed(["the bank " * 30]))
    (tmp_path / "f.tsv").write_text(f"good\ta text\nbad\t{long}\n" * 7, "utf-8")
    more = ("--set", "data.truncate=error", "--set", "train.epochs=1", "--recipe", "bert")
    told = fails("train", "--train", tmp_path / "f.tsv", "--pretrained", folder, *more,
                 "-o", tmp_path / "run")  # fmt: skip
    says(told, "f.tsv:2", "80 tokens, the limit is 21", "data.truncate")


def test_a_family_that_is_not_read_lists_those_that_are(folder, tmp_path):
    settings(folder, model_type="xlm-roberta")
    told = fails("convert", folder, "-o", tmp_path / "model")
    says(told, "Unknown family of checkpoints 'xlm-roberta' in ", "config.json. Did you mean")
    says(told, "Known: bert, distilbert, electra, gpt2, roberta.")
    settings(folder, model_type="t5")
    says(fails("convert", folder, "-o", tmp_path / "model"), "'t5'", "Known: bert")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_size": "12"}, "hidden_size should be a whole number, found '12'"),
        ({"hidden_act": ["gelu"]}, "hidden_act should be a name, found ['gelu']"),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps should be a number, found 'tiny'"),
        ({"num_hidden_layers": True}, "num_hidden_layers should be a whole number, found True"),
        ({"vocab_size": "97"}, "vocab_size should be a whole number, found '97'"),
        ({"vocab_size": None}, "no vocab_size"),
        ({"classifier_dropout": "a"}, "classifier_dropout should be a number, found 'a'"),
        ({"id2label": None, "num_labels": "x"}, "num_labels be at most"),
        ({"id2label": ["a", "b"]}, "id2label should map numbers to names"),
    ],
)
def test_settings_of_the_wrong_kind_are_named_as_the_file_has_them(tmp_path, changes, told):
    checkpoint(tmp_path / "c", "bert", "ForSequenceClassification", num_labels=2)
    settings(tmp_path / "c", **changes)
    says(fails("convert", tmp_path / "c", "-o", tmp_path / "m"), "config.json: ", told)


def test_unknown_architecture_is_named_in_the_error(folder, tmp_path):
    settings(folder, architectures=["BertForMind"])
    done = ok("convert", folder, "-o", tmp_path / "model")
    says(done.err, "note: only the network is kept: the head of BertForMind is unknown")
    settings(folder, architectures="BertModel")
    assert ok("convert", folder, "-o", tmp_path / "same").err.count("note") == 0


def test_roberta_may_be_silent_about_its_padding(tmp_path):
    checkpoint(tmp_path / "c", "roberta")
    wanted = vectors(tmp_path / "c", tmp_path / "0")
    settings(tmp_path / "c", pad_token_id=None)
    said = json.loads((tmp_path / "c" / "config.json").read_text("utf-8"))
    (tmp_path / "c" / "config.json").write_text(json.dumps({**said, "pad_token_id": None}))
    np.testing.assert_array_equal(vectors(tmp_path / "c", tmp_path / "1"), wanted)
