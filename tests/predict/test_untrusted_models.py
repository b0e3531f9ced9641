"""Untrusted model folders: sizes and types are checked before they are used."""

import json
import resource
import shutil
import time
import warnings
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import weft
from tests.fixtures import small
from weft.errors import UserError, UserNote
from weft.tensorfile import DamagedFile, check_network, read_header


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model of each of some recipes."""
    folder = tmp_path_factory.mktemp("models")
    for name, sizes in {
        "bilstm-attention": {"embedder.width": 7, "encoder.hidden": 5},
        "transformer": {"embedder.width": 8, "encoder.layers": 1, "encoder.heads": 2},
        "tfidf": {},
        "fasttext": {"classic.width": 5, "classic.buckets": 64, "classic.epochs": 1},
    }.items():
        config = weft.recipe(name).with_values({**small.SMALL, **sizes}, "test")
        weft.train(config, folder / name, splits=small.splits(), quiet=True)
    return folder


@pytest.fixture
def changed(models, tmp_path):
    """Make a copy of a model in which settings of model.json are others."""

    def make(name, **changes):
        folder = tmp_path / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(models / name / "model", folder)
        change(folder, (folder / "model.json").read_text("utf-8"), changes)
        return folder

    return make


def change(folder, text, changes):
    """Write a model.json with other settings than those in the text of one."""
    saved = json.loads(text)
    for key, value in changes.items():
        *steps, last = key.split("__")
        place = saved["config"]
        for step in steps:
            place = place[step]
        place[last] = value
    (folder / "model.json").write_text(json.dumps(saved), "utf-8")


SIZES = {
    "a wide embedder": ("bilstm-attention", {"embedder__width": 2_000_000}),
    "an absurd width": ("bilstm-attention", {"embedder__width": 10**18}),
    "a number of 30 digits": ("bilstm-attention", {"encoder__hidden": 10**30}),
    "a wide encoder": ("bilstm-attention", {"encoder__hidden": 3_000_000}),
    "3,000 layers": ("transformer", {"encoder__layers": 3000}),
    "ten million layers": ("transformer", {"encoder__layers": 10**7}),
    "ten million layers of an LSTM": ("bilstm-attention", {"encoder__layers": 10**7}),
    "many heads": ("transformer", {"encoder__heads": 10**9}),
    "a long limit": ("transformer", {"encoder__limit": 10**9}),
    "wide classic vectors": ("fasttext", {"classic__width": 10**9}),
    "many buckets": ("fasttext", {"classic__buckets": 2**40}),
    "long grams": ("tfidf", {"classic__words": [1, 10**9]}),
    "long runs of words": ("fasttext", {"classic__order": 2**31}),
    "long parts of words": ("fasttext", {"classic__min_n": 2**63, "classic__max_n": 2**63}),
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_are_compared_before_they_are_believed(changed, case):
    name, changes = SIZES[case]
    folder = changed(name, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    with pytest.raises(UserError) as caught:
        weft.load(folder, device="cpu")
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_vocabularies_are_bounded(models, changed):
    folder = changed("bilstm-attention")
    path = folder / "tokenizer.json"
    saved = json.loads(path.read_text("utf-8"))
    entry = max(saved["model"]["vocab"], key=saved["model"]["vocab"].get)
    saved["model"]["vocab"][entry] = 2**31
    path.write_text(json.dumps(saved), "utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json: the id 2,147,483,648"):
        weft.load(folder)
    saved["model"]["vocab"][entry] = 5000  # more than the table has rows
    path.write_text(json.dumps(saved), "utf-8")
    with pytest.raises(UserError, match=r"size mismatch for embedders\.0"):
        weft.load(folder)


WRONG = (None, [], {}, 3, -1, "x", True, 1e400, [None], {"kind": None}, "9" * 50)


def places(config):
    for name, section in config.items():
        yield name
        if isinstance(section, dict):
            yield from (f"{name}__{key}" for key in section)


@contextmanager
def naming(folder):
    """What goes wrong inside is told in one line that names the folder."""
    try:
        yield
    except UserError as error:
        told = str(error)
        assert "\n" not in told, told
        assert str(folder) in told, told
        raise


@pytest.mark.parametrize("name", ["bilstm-attention", "tfidf", "fasttext"])
def test_wrong_types_in_model_json_are_one_line(models, changed, name):
    text = (models / name / "model" / "model.json").read_text("utf-8")
    folder = changed(name)
    for key in places(json.loads(text)["config"]):
        for value in WRONG:
            change(folder, text, {key: value})
            with suppress(UserError), naming(folder):
                weft.load(folder, device="cpu")


def test_files_that_are_not_what_json_holds(models, changed):
    for name in ("model.json", "labels.json", "tokenizer.json", "golden.jsonl"):
        for text in ("[" * 5000 + "]" * 5000, '{"a": ' + "9" * 5000 + "}", "\ufeff{}", "\0", "3"):
            folder = changed("bilstm-attention")
            (folder / name).write_text(text, "utf-8")
            with pytest.raises(UserError, match=name.replace(".", r"\.")) as caught:
                weft.load(folder)
            assert "\n" not in str(caught.value)


def test_recorded_answers_that_are_gone_are_reported(models, changed):
    folder = changed("bilstm-attention")
    golden = folder / "golden.jsonl"
    lines = golden.read_text("utf-8").splitlines(keepends=True)
    golden.write_text("", "utf-8")
    with pytest.raises(UserError, match=r"holds 0 recorded answers, but 5 were saved.*--no-replay"):
        weft.load(folder)
    golden.write_text("".join(lines[:3]), "utf-8")
    with pytest.raises(UserError, match="holds 3 recorded answers, but 5 were saved"):
        weft.load(folder)
    path = folder / "model.json"
    saved = json.loads(path.read_text("utf-8"))
    del saved["golden"]  # as an earlier Weft wrote it
    path.write_text(json.dumps(saved), "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.load(folder)
        golden.write_text("", "utf-8")
        with pytest.raises(UserNote, match="no recorded answers"):
            weft.load(folder)
        weft.load(folder, replay=False)
    golden.write_text(json.dumps({"text": "a " * 20_000, "value": "x", "scores": [1]}), "utf-8")
    with pytest.raises(UserError, match=r"a text of 40,000 characters"):
        weft.load(folder)


def test_answers_are_recorded_though_dev_is_empty(tmp_path):
    """A small file has no dev part; a model without recorded answers could not be verified."""
    splits = weft.Splits(small.splits().train, lambda: iter(()), None)
    weft.train(weft.recipe("tfidf"), tmp_path, splits=splits, quiet=True)
    lines = (tmp_path / "model" / "golden.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 5


def test_headers_of_tensors(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.int64)}, path)
    whole = path.read_bytes()
    found = read_header(path)
    assert {name: (entry.dtype, entry.shape) for name, entry in found.items()} == {
        "a": ("F32", (3, 5)),
        "b": ("I64", (7,)),
    }
    assert whole[found["a"].start : found["a"].end] == bytes(60)
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]

    def refused(changes, message, rest=data):
        text = changes if isinstance(changes, bytes) else json.dumps(changes).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + rest)
        with pytest.raises(DamagedFile, match=message) as caught:
            read_header(path)
        assert "\n" not in str(caught.value)

    def entry(**changes):
        return {**header, "a": {**header["a"], **changes}}

    refused(entry(shape=[3, 6]), "'a' needs 72 bytes, and has 60")
    refused(entry(shape=[2**40, 2**40]), "'a' needs")
    refused(entry(shape=[-3, -5]), "no whole number")
    refused(entry(shape="x"), "no whole number")
    refused(entry(shape=[3.0, 5]), "no whole number")
    refused(entry(shape=None), "no dtype, shape and data_offsets")
    refused(entry(dtype="F4"), "of type 'F4'")
    refused(entry(dtype=["F32"]), "of type")
    refused(entry(data_offsets=[0]), "no dtype")
    refused(entry(data_offsets=[57, 117]), "begin at byte")
    refused({**header, "a": 3}, "no dtype")
    refused([header], "not an object")
    refused(b"{", "JSON")
    refused(b"\xff{}", "UTF-8")
    refused(b"[" * 9000, "nested")
    refused(header, "the file has", data + b"x")
    refused(header, "the file has", data[:-1])
    for text in (b"", b"1234567", (2**63).to_bytes(8, "little"), whole[:30]):
        path.write_bytes(text)
        with pytest.raises(DamagedFile):
            read_header(path)


def test_a_network_is_never_built_where_the_file_has_no_tensors_for_it(tmp_path):
    built = []

    def many():
        layers = torch.nn.ModuleList()
        for _ in range(10**7):
            layers.append(torch.nn.Linear(10**6, 10**6))
            built.append(1)
        return layers

    began = time.perf_counter()
    with pytest.raises(UserError, match="it holds 3 tensors, and the settings ask for more than"):
        check_network(many, {"a": (3,), "b": (3,), "c": (3,)}, tmp_path / "w")
    assert len(built) < 100
    assert time.perf_counter() - began < 2
    check_network(lambda: torch.nn.Linear(3, 5), {"weight": (5, 3), "bias": (5,)}, "w")
    with pytest.raises(UserError, match="missing: bias; not expected: more"):
        check_network(lambda: torch.nn.Linear(3, 5), {"weight": (5, 3), "more": (5,)}, "w")


def test_unexpected_weights_raise_user_error(models, changed):
    folder = changed("bilstm-attention")
    path = folder / "weights.safetensors"
    arrays = load_file(path)
    name = next(iter(arrays))
    save_file({**arrays, "more": arrays[name]}, path)
    with pytest.raises(UserError, match=r"does not fit model\.json: not expected: more"):
        weft.load(folder)
    save_file({**arrays, name: arrays[name].astype(np.float64)}, path)
    weft.load(folder)  # other numbers of the same value


def test_ids_beyond_the_table_of_a_language_model(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sees a dog\na dog sees the cat\n" * 4, "utf-8")
    config = weft.recipe("rnn-lm").with_values(
        {
            "train.epochs": 1, "train.threads": 1, "decoder.width": 4, "decoder.hidden": 4,
            "data.train": str(texts), "data.dev": str(texts),
        },
        "test",
    )  # fmt: skip
    weft.train(config, tmp_path / "run", quiet=True)
    path = tmp_path / "run" / "model" / "tokenizer.json"
    saved = json.loads(path.read_text("utf-8"))
    vocabulary = saved["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] += 100
    path.write_text(json.dumps(saved), "utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json: \d+ ids, but the model has vectors for"):
        weft.load(tmp_path / "run")
