"""The GPU checks that need no GPU, on a CPU: the script must not fall behind the code."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import gpu_check

QUICK = [
    "gradient clipping", "non-finite losses are noticed", "chunked loss",
    "softmax and logits in half precision", "bag in fp32 and bf16",
    "decoding graphs: rnn, float32", "decoding graphs: cnn, float32",
]  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_checks_pass_on_a_cpu(name):
    function, needs_cuda = gpu_check.CHECKS[name]
    assert not needs_cuda
    assert function(torch.device("cpu"))


def test_gpu_check_without_gpu_reports_it(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu_check.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main() == 0
    assert capsys.readouterr().out == "skipped: torch sees no GPU here\n"


def test_a_failed_check_is_one_line_and_a_status(capsys, monkeypatch):
    def fail(device):
        raise ValueError("first line\nsecond line")

    monkeypatch.setattr(gpu_check, "CHECKS", {"broken": (fail, False), "cuda only": (fail, True)})
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu"])
    assert gpu_check.main() == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("FAILED")
    assert line.endswith("broken: ValueError: first line")
    assert last == "1 failed: broken"
