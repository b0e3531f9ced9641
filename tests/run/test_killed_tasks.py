"""Kill -9 and resume for documents, recordings, images and sentences; bad recordings and files."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.fixtures.command import fails
from tests.fixtures.processes import FORK_SERVER
from tests.fixtures.recipe_runs import _DATA, SIZES
from tests.fixtures.weights import digest
from weft import config
from weft.text.audio.wav import write_wav

TASKS = {
    "coref-bilstm": "coref", "ctc-speech": "seq2seq", "caption": "seq2seq",
    "sentence-splitter": "sentences", "openie-grid": "openie", "openie-copy": "seq2seq",
}  # fmt: skip


def train_to_the_end(name: str, data: str, folder: str) -> None:
    recipe = config.recipe(name)
    values, _ = _DATA[TASKS[name]](Path(data), name)
    sizes = {key: SIZES[last] for key in config.setting_names(recipe.sections)
             if (last := key.split(".")[-1]) in SIZES}  # fmt: skip
    made = recipe.with_values({**sizes, **values, "train.epochs": 3, "train.save_every": 1}, "test")
    weft.train(made, folder, quiet=True, device="cpu", resume=Path(folder).exists())


@pytest.mark.parametrize("name", TASKS)
def test_killed_and_resumed_weights_are_bit_identical(name, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_to_the_end(name, str(tmp_path), str(whole))
    process = FORK_SERVER.Process(target=train_to_the_end, args=(name, str(tmp_path), str(killed)))
    process.start()
    checkpoint = killed / "checkpoints/last.safetensors"
    while process.is_alive() and not checkpoint.exists():
        process.join(0.005)
    process.kill()
    process.join(60)
    train_to_the_end(name, str(tmp_path), str(killed))
    assert digest(killed) == digest(whole)


def wav(folder, name, **changes):
    """A short recording with other values in its header."""
    write_wav(folder / name, np.zeros(900), 8000)
    raw = bytearray((folder / name).read_bytes())
    for place, (form, value) in changes.get("header", {}).items():
        struct.pack_into(form, raw, place, value)
    (folder / name).write_bytes(bytes(raw[: changes.get("keep", len(raw))]))
    return json.dumps({"text": name, "target": "low"})


def bad_recordings(folder):
    """Rows of a training file and what the error says."""
    (folder / "text.wav").write_text("no sound", "utf-8")
    (folder / "empty.wav").write_bytes(b"")
    (folder / "noise.npy").write_bytes(b"\x93NUMPY no")
    row = {"text": "good.wav", "target": "low"}
    wav(folder, "good.wav")
    return {
        "missing": (json.dumps(row | {"text": "gone.wav"}), "no such file"),
        "outside": (json.dumps(row | {"text": "../good.wav"}), "not in the folder"),
        "absolute": (json.dumps(row | {"text": str(folder / "good.wav")}), "not in the folder"),
        "no sound": (json.dumps(row | {"text": "text.wav"}), "text.wav"),
        "empty": (json.dumps(row | {"text": "empty.wav"}), "empty.wav"),
        "cut header": (wav(folder, "a.wav", keep=30), "a.wav"),
        "compressed": (wav(folder, "b.wav", header={20: ("<H", 17)}), "b.wav"),
        "no channel": (wav(folder, "c.wav", header={22: ("<H", 0)}), "c.wav"),
        "rate 0": (wav(folder, "d.wav", header={24: ("<I", 0)}), "d.wav"),
        "40 bits": (wav(folder, "e.wav", header={34: ("<H", 40)}), "e.wav"),
        "damaged matrix": (json.dumps(row | {"text": "noise.npy"}), "noise.npy|not"),
        "no target": (json.dumps({"text": "good.wav"}), "label|target"),
        "a number": (json.dumps(row | {"text": 7}), "text"),
        "invalid JSON": ('{"text": "good.wav", ', "JSON"),
        "a list": ('["good.wav", "low"]', "object|JSON"),
        "blank": (json.dumps(row | {"text": ""}), "text"),
    }


def test_bad_recordings_are_one_line_with_file_and_line(tmp_path):
    cases = bad_recordings(tmp_path)
    assert len(cases) > 15
    good = json.dumps({"text": "good.wav", "target": "low"})
    train = ("train", "--recipe", "ctc-speech", "-o", tmp_path / "run", "--set", "train.epochs=1")
    for name, (row, reason) in cases.items():
        (tmp_path / "a.jsonl").write_text("\n".join([good] * 4 + [row]) + "\n", "utf-8")
        line = fails(*train, "--train", tmp_path / "a.jsonl")
        assert re.search(reason, line), (name, line)
        assert line.count("a.jsonl:5: ") == 1, (name, line)
