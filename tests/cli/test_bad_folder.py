"""Folders that cannot be written, disks that are full, models that are damaged or have drifted."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.fixtures.command import fails, ok, says, train
from weft.train import checkpoint


def test_output_folders_that_are_taken(shared, tmp_path):
    data = shared / "train.tsv"
    before = {p: p.read_bytes() for p in (shared / "bag").rglob("*") if p.is_file()}
    says(fails(*train(data, shared / "bag")), "is not empty", "--overwrite", "--resume")
    assert before == {p: p.read_bytes() for p in (shared / "bag").rglob("*") if p.is_file()}
    says(fails(*train(data, data)), "train.tsv is a file; give a folder to -o.")
    says(fails(*train(data, data / "run")), "Cannot write to", "Not a directory")
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    message = fails(*train(data, tmp_path, "--overwrite"))
    says(message, "holds no run of Weft, so --overwrite leaves it alone")
    assert (tmp_path / "mine.txt").read_text("utf-8") == "mine"


def test_a_run_that_failed_before_it_learned_is_in_nobodys_way(shared, tmp_path):
    data, out = shared / "train.tsv", tmp_path / "run"
    fails(*train(data, out, "--set", f"embedder.vectors={tmp_path / 'no.txt'}"))
    assert (out / "config.toml").is_file()
    ok(*train(data, out))
    says(fails(*train(data, out)), "is not empty")
    shutil.rmtree(out / "model")
    says(fails(*train(data, out)), "is not empty")  # it has weights in its checkpoints
    for weights in (out / "checkpoints").glob("*.safetensors"):
        weights.unlink()
    (out / "mine.txt").write_text("mine", "utf-8")
    says(fails(*train(data, out)), "is not empty")


def test_an_output_folder_that_may_not_be_written(shared, tmp_path, monkeypatch):
    def refuse(self, *arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # tests may run as root, who may write anywhere
    message = fails(*train(shared / "train.tsv", tmp_path / "run"))
    says(message, f"Cannot write to {tmp_path / 'run'}: Permission denied")


def full_disk(patch, allowed):
    """After some checkpoints have reached the disk, let it be full."""
    real, calls = os.fsync, []

    def fsync(file):
        calls.append(file)
        if len(calls) > allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    patch.setattr(os, "fsync", fsync)


def test_a_full_disk_keeps_the_last_good_checkpoint(shared, tmp_path, monkeypatch):
    arguments = train(shared / "train.tsv", tmp_path / "run", "--set", "train.save_every=2")
    with monkeypatch.context() as patch:
        full_disk(patch, 3)
        message = fails(*arguments)
    says(message, "Cannot write", "last.safetensors", "No space left on device")
    names = {p.name for p in (tmp_path / "run" / "checkpoints").iterdir()}
    assert "last.safetensors" in names
    assert not any(name.endswith(".part") for name in names)
    told = ok("train", "-o", tmp_path / "run", "--resume").err
    assert "resumed after update 6" in told
    whole = ok(*train(shared / "train.tsv", tmp_path / "whole", "--set", "train.save_every=2"))
    assert whole.status == 0
    first, second = (
        (tmp_path / name / "model" / "weights.safetensors").read_bytes()
        for name in ("run", "whole")
    )
    assert first == second


def test_a_full_disk_while_the_model_is_saved(shared, tmp_path, monkeypatch):
    real = Path.write_bytes

    def full(self, *arguments, **options):
        if "labels.json" in self.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return real(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        message = fails(*train(shared / "train.tsv", tmp_path / "run"))
    place = tmp_path / "run" / "model" / "labels.json"
    says(message, f"Cannot write {place}: No space left on device", "is intact", "--resume")
    says(fails("predict", tmp_path / "run", stdin="good"), "not a model folder")
    ok("train", "-o", tmp_path / "run", "--resume")
    ok("predict", tmp_path / "run", stdin="good")


def test_numbers_that_explode_name_the_lines(shared, tmp_path, monkeypatch):
    from weft.tasks.classify import Classify

    real, calls = Classify.loss, [0]

    def loss(self, scores, batch):
        calls[0] += 1
        return real(self, scores * float("nan") if calls[0] == 12 else scores, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Classify, "loss", loss)
        message = fails(*train(shared / "train.tsv", tmp_path / "run"))
    says(message, "loss became nan at update 12", "The batch has lines ", "of the training file")
    says(message, "The last good state is in", "last.safetensors", "--resume")
    lines = message.split("has lines ")[1].split(" of the")[0].split(", ")
    assert 1 <= len(lines) <= 5
    assert all(1 <= int(line) <= 46 for line in lines)
    assert "resumed after update 9" in ok("train", "-o", tmp_path / "run", "--resume").err


def test_resuming_what_does_not_fit(shared, tmp_path):
    folder = shutil.copytree(shared / "bag", tmp_path / "run")
    before = (folder / "config.toml").read_bytes()
    message = fails(*train(shared / "train.tsv", folder, "--resume", recipe="lstm"))
    says(message, "another", "--overwrite")
    assert (folder / "config.toml").read_bytes() == before
    ok("train", "-o", folder, "--resume")
    last = folder / "checkpoints" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-7])
    says(fails("train", "-o", folder, "--resume"), "damaged checkpoint", "Delete it to start over")


def half(content):
    return content[: len(content) // 2]


def flipped(content):
    return bytes([content[0] ^ 0xFF]) + content[1:]


def changed(key, value):
    """A model.json with one value (or section) of its configuration replaced or removed."""

    def change(content):
        saved = json.loads(content)
        *path, last = key.split(".")
        place = saved
        for step in path:
            place = place[step]
        place[last] = value
        if value is None:
            del place[last]
        return json.dumps(saved).encode()

    return change


# Model folders: (model, file, what happens to it, what must be said).
FOLDERS = {
    "no model.json": ("bag", "model.json", None, ["no model.json"]),
    "half a model.json": ("bag", "model.json", half, ["model.json: damaged", "train again"]),
    "a list": ("bag", "model.json", lambda b: b"[]", ["model format None", "damaged"]),
    "newer format": (
        "bag",
        "model.json",
        changed("format", 2),
        ["model format 2, this Weft reads 1", "Upgrade Weft"],
    ),
    "foreign format": (
        "bag",
        "model.json",
        changed("format", "v7"),
        ["format 'v7'", "not written"],
    ),
    "no configuration": ("bag", "model.json", changed("config", None), ["no configuration"]),
    "no encoder": ("bag", "model.json", changed("config.encoder", None), ["it has no [encoder]"]),
    "no task": ("tfidf", "model.json", changed("config.task", None), ["it has no [task]"]),
    "another encoder": (
        "bag",
        "model.json",
        changed("config.encoder.kind", "bga"),
        ["Unknown encoder 'bga'", "'bag'?"],
    ),
    "another width": (
        "bag",
        "model.json",
        changed("config.embedder.width", 7),
        ["weights.safetensors does not fit model.json", "size mismatch"],
    ),
    "no weights": ("bag", "weights.safetensors", None, ["weights.safetensors is missing"]),
    "half the weights": ("bag", "weights.safetensors", half, ["weights.safetensors: damaged"]),
    "a broken header": ("bag", "weights.safetensors", flipped, ["weights.safetensors: damaged"]),
    "empty weights": ("bag", "weights.safetensors", lambda b: b"", ["safetensors: damaged"]),
    "no tokenizer": ("bag", "tokenizer.json", None, ["tokenizer.json: cannot read the tokenizer"]),
    "half a tokenizer": ("bag", "tokenizer.json", half, ["tokenizer.json: not a tokenizer file"]),
    "no tokenizer JSON": ("bag", "tokenizer.json", lambda b: b"{}", ["or damaged"]),
    "no labels": ("bag", "labels.json", None, ["labels.json is missing"]),
    "half the labels": ("bag", "labels.json", half, ["labels.json: damaged"]),
    "labels of another kind": ("bag", "labels.json", lambda b: b"{}", ["labels.json: ", "damaged"]),
    "one label": (
        "bag",
        "labels.json",
        lambda b: b'{"entries": ["a"], "threshold": 0.5}',
        ["labels.json: ", "too few"],
    ),
    "a label too many": (
        "bag",
        "labels.json",
        lambda b: b'{"entries": ["a", "b", "c"], "threshold": 0.5}',
        ["weights.safetensors does not fit"],
    ),
    "labels exchanged": (
        "bag",
        "labels.json",
        lambda b: b'{"entries": ["positive", "negative"], "threshold": 0.5}',
        ["answers differ from those recorded", "--no-replay"],
    ),
    "no golden answers": ("bag", "golden.jsonl", None, ["golden.jsonl is missing", "--no-replay"]),
    "half the golden answers": ("bag", "golden.jsonl", half, ["golden.jsonl: damaged"]),
    "golden answers of another kind": (
        "tfidf",
        "golden.jsonl",
        lambda b: b'{"text": "a", "value": "b", "scores": ["c"]}\n',
        ["golden.jsonl: damaged"],
    ),
    "no tfidf vocabulary": ("tfidf", "vocabulary.json", None, ["vocabulary.json: ", "missing"]),
    "half a tfidf vocabulary": ("tfidf", "vocabulary.json", half, ["incomplete 'tfidf' model"]),
    "no tfidf weights": ("tfidf", "weights.safetensors", None, ["the file is missing"]),
    "half the tfidf weights": ("tfidf", "weights.safetensors", half, ["incomplete 'tfidf' model"]),
    "a broken tfidf header": ("tfidf", "weights.safetensors", flipped, ["incomplete 'tfidf'"]),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_model_folders(case, shared, tmp_path):
    model, name, change, expected = FOLDERS[case]
    folder = shutil.copytree(shared / model / "model", tmp_path / "model")
    if change is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(change((folder / name).read_bytes()))
    message = fails("predict", folder, stdin="a good film\n")
    says(message, *expected)


@pytest.mark.parametrize(("model", "tensor"), [("bag", "head.score.bias"), ("tfidf", "bias")])
def test_answers_that_drift_are_an_error(model, tensor, shared, tmp_path):
    folder = shutil.copytree(shared / model / "model", tmp_path / "model")
    weights = load_file(folder / "weights.safetensors")
    weights[tensor] = weights[tensor] + [3, 0]  # towards the first class
    save_file({n: w.astype("float32") for n, w in weights.items()}, folder / "weights.safetensors")
    golden = [json.loads(line) for line in open(folder / "golden.jsonl", encoding="utf-8")]
    message = fails("predict", folder, stdin="a good film\n")
    says(message, "answers differ from those recorded", repr(golden[0]["text"]), "--no-replay")
    assert len(ok("predict", folder, "--no-replay", stdin="a good film\n").lines) == 1
    ok("evaluate", folder, shared / "train.tsv", "--no-replay")


def test_checkpoints_are_replaced_whole(tmp_path):
    """What the tests of full disks lean on."""
    (tmp_path / "a").write_bytes(b"old")
    checkpoint.replace(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
