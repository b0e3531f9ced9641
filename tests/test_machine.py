"""Memory: what there is, and one line where it does not suffice."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.fixtures import small
from tests.fixtures.command import fails, says
from weft import machine
from weft.classic.linear.sklearn_fit import check_size
from weft.errors import OutOfMemory, is_out_of_memory, out_of_memory_message
from weft.predict.predictor import CHUNK_TEXTS, chunk_size
from weft.protocols import LabelSpace
from weft.tasks.classify import ClassSpace


def test_there_is_some_memory():
    found = machine.available_memory()
    assert found is None or 2**20 < found < 2**60


def test_too_many_labels_fail_before_the_fit(monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda: 20 * 2**30)
    with pytest.raises(OutOfMemory) as error:
        check_size("logistic", 100_000, 100_000)
    says(str(error.value), "100,000 texts and 100,000 labels", "149.0 GiB", "20.0 GiB", "fasttext")
    check_size("svm", 100_000, 100_000)
    check_size("logistic", 100_000, 1_000, 10_000)
    check_size("logistic", 10_000_000, 2)


@pytest.mark.parametrize("several", [False, True])
def test_a_training_with_many_labels_ends_at_once(several, tmp_path, monkeypatch):
    data, count = tmp_path / "many.jsonl", 10_007
    rows = (
        {"text": f"t{i}", "label": [f"l{i % 5003}"] if several else f"l{i}"} for i in range(count)
    )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(machine, "available_memory", lambda: 2**27)
    message = fails("train", "--recipe", "tfidf", "--train", data, "-o", tmp_path / "run")
    says(message, "texts", "labels", "GiB of memory", "Merge or drop rare labels")


def test_fewer_texts_are_answered_together_where_labels_are_many():
    assert chunk_size(ClassSpace(("a", "b"))) == CHUNK_TEXTS
    assert chunk_size(ClassSpace(tuple(map(str, range(100_000))))) == 200
    assert chunk_size(LabelSpace()) == CHUNK_TEXTS


def test_errors_of_memory_are_known():
    cpu = RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes"
    )
    with pytest.raises(MemoryError) as array:
        np.zeros(2**50)
    for error in (cpu, MemoryError(), array.value, OSError(12, "Cannot allocate memory")):
        assert is_out_of_memory(error)
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    assert (
        out_of_memory_message(cpu, "training") == "Out of memory while training (400 bytes more)."
    )
    assert "(8.00 PiB more)" in out_of_memory_message(array.value, "reading")
    cuda = RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has …")
    assert out_of_memory_message(cuda, "training").startswith(
        "Out of memory of the GPU while training (20"
    )


SCARCE = """
import resource, sys
import torch, weft.run.neural, weft.cli.main, weft.report.compare
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20, resource.RLIM_INFINITY))
sys.argv[0] = "weft"
weft.cli.main.main()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS and /proc")
def test_a_training_without_memory_ends_with_one_line(tmp_path):
    data = small.file(tmp_path)
    words = ["train", "--recipe", "lstm", "--train", str(data), "-o", str(tmp_path / "run")]
    words += ["--set", "encoder.hidden=20000", "--set", "train.threads=1", "--quiet"]
    done = subprocess.run([sys.executable, "-c", SCARCE, *words], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    says(
        done.stderr,
        "error: Out of memory while training",
        "more",
        "train.batch_size",
        "train again",
    )
