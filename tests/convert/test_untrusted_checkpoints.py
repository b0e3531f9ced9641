"""Untrusted checkpoints: sizes and types are checked before they are used."""

import json
import resource
import shutil
import time
from contextlib import suppress

import pytest
import torch

from tests.fixtures.command import fails
from tests.fuzz import targets
from weft.convert import tensors
from weft.errors import UserError
from weft.run.convert import convert


@pytest.fixture(scope="module")
def seeds():
    return {
        name: [dict(files) for files in targets.ALL[name].seeds()]
        for name in ("checkpoint", "sentence-checkpoint", "checkpoint-gpt2")
    }


@pytest.fixture
def placed(seeds, tmp_path):
    """Write a checkpoint in which some JSON files say something else."""

    def make(name, number=0, **changes):
        folder = tmp_path / "theirs"
        shutil.rmtree(folder, ignore_errors=True)
        for inside, data in seeds[name][number].items():
            path = folder / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for inside, value in changes.items():
            path = folder / inside
            known = json.loads(path.read_text("utf-8")) if path.is_file() else {}
            both = {**known, **value} if isinstance(value, dict) else value
            path.write_text(both if isinstance(both, str) else json.dumps(both), "utf-8")
        return folder

    return make


def bounded(folder, tmp_path):
    """Convert what should be refused, soon and with little memory: the message."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    with pytest.raises(UserError) as caught:
        convert(str(folder), tmp_path / "out")
    assert time.perf_counter() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def test_sound_ones_are_read(placed, tmp_path):
    for name in ("checkpoint", "sentence-checkpoint", "checkpoint-gpt2"):
        convert(str(placed(name)), tmp_path / name)


CONFIG = {
    "layers": {"num_hidden_layers": 10**7},
    "a few layers more": {"num_hidden_layers": 2},
    "width": {"hidden_size": 2_000_000},
    "width beyond all": {"hidden_size": 10**18},
    "feed": {"intermediate_size": 10**12},
    "positions": {"max_position_embeddings": 10**12},
    "words": {"vocab_size": 10**9},
    "words beyond all": {"vocab_size": 10**400},
    "segments": {"type_vocab_size": 10**11},
    "heads": {"num_attention_heads": 10**9},
    "labels": {"id2label": None, "num_labels": 10**9},
    "labels of a kind": {"id2label": [1, 2], "num_labels": {}},
    "epsilon": {"layer_norm_eps": 10**400},
    "types": {"hidden_size": "8", "num_hidden_layers": None},
    "family": {"model_type": ["bert"]},
}


@pytest.mark.parametrize("case", CONFIG)
def test_sizes_in_config_json(placed, tmp_path, case):
    bounded(placed("checkpoint", **{"config.json": CONFIG[case]}), tmp_path)


@pytest.mark.parametrize("case", ["layers", "width", "positions"])
def test_sizes_of_a_checkpoint_to_start_from(placed, tmp_path, case):
    folder = placed("checkpoint", 1, **{"config.json": CONFIG[case]})
    data = tmp_path / "train.tsv"
    data.write_text("".join(f"{'ab'[i % 2]}\tthe film {i}\n" for i in range(23)), "utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    fails(
        "train", "--recipe", "bert", "--pretrained", folder, "--train", data, "-o", tmp_path / "r"
    )
    assert time.perf_counter() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


SENTENCE = {
    "above": ("modules.json", "../other"),
    "absolute": ("modules.json", "/etc"),
    "a link": ("modules.json", "linked"),
    "no text": ("modules.json", ["x"]),
    "a null byte": ("modules.json", "a\0b"),
}


@pytest.mark.parametrize("case", SENTENCE)
def test_modules_outside_their_folder(placed, tmp_path, case):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"pooling_mode": "mean"}', "utf-8")
    for number in (0, 1):
        folder = placed("sentence-checkpoint")
        (folder / "linked").symlink_to(tmp_path / "other")
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        modules[number]["path"] = SENTENCE[case][1]
        (folder / "modules.json").write_text(json.dumps(modules), "utf-8")
        told = bounded(folder, tmp_path)
        assert "modules.json" in told
        assert "outside the folder" in told or "should be a text" in told


@pytest.mark.parametrize(
    "text", ["3", "null", '"x"', "[]", "[3]", '[{"type": 1}]', "{", "[" * 5000]
)
def test_configs_of_sentence_transformers(placed, tmp_path, text):
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        assert name in bounded(placed("sentence-checkpoint", **{name: text}), tmp_path)
    for limit in (-1, 2.5, "9", [], {"a": 1}):
        folder = placed(
            "sentence-checkpoint", **{"sentence_bert_config.json": {"max_seq_length": limit}}
        )
        if limit:
            assert "max_seq_length should be" in bounded(folder, tmp_path)
    for mode in (7, ["mean", "max"], {"mean": 1}, "x" * 99):
        folder = placed("sentence-checkpoint", **{"1_Pooling/config.json": {"pooling_mode": mode}})
        assert "1_Pooling" in bounded(folder, tmp_path)


def test_vocabulary_files(placed, tmp_path):
    folder = placed("checkpoint-gpt2", **{"vocab.json": {"h": 2**31}})
    assert "the id 2,147,483,648" in bounded(folder, tmp_path)
    folder = placed("checkpoint-gpt2", **{"added_tokens.json": {"a": 1, "b": "x"}})
    assert "expected tokens with their ids" in bounded(folder, tmp_path)


def test_special_tokens_that_are_no_text(placed, tmp_path):
    folder = placed("checkpoint-gpt2", **{"added_tokens.json": {"<|endofte\ud800xt|>": 258}})
    assert r"added_tokens.json: '<|endofte\ud800xt|>' holds half" in bounded(folder, tmp_path)
    folder = placed("checkpoint-gpt2", **{"special_tokens_map.json": {"eos_token": "\ud800"}})
    with suppress(UserError):
        convert(str(folder), tmp_path / "out")


def test_pickled_tensors_that_claim_what_they_do_not_have(placed, tmp_path):
    folder = placed("checkpoint-gpt2", 1)
    (folder / "model.safetensors").unlink(missing_ok=True)
    wide = torch.ones(1).as_strided((10**6, 10**6), (0, 0))
    torch.save({"transformer.wte.weight": wide}, folder / "pytorch_model.bin")
    assert "claim 4,000,000,000,000 bytes" in bounded(folder, tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_every_damaged_byte_of_a_pickle_is_one_line(tmp_path, zipped):
    """torch's reader raises KeyError, TypeError, struct.error and more on damaged files."""
    path, kept = tmp_path / "pytorch_model.bin", {"a": torch.ones(2, 3), "b": torch.zeros(5)}
    torch.save(kept, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 3 if zipped else 1):
        damaged = bytearray(whole)
        damaged[at] ^= 0x15
        path.write_bytes(damaged)
        try:
            tensors._read_pickle(path)
        except UserError:
            refused += 1
    assert refused > len(whole) / 30
