"""Ctrl-C, SIGTERM and closed pipes: one line that says how to go on, and the right status."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures import small

FOREVER = ("--set", "train.epochs=100000", "--set", "train.patience=0", "--set", "train.threads=1")


def start(*arguments: object, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "weft", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def until(process: subprocess.Popen, path: Path) -> None:
    """Wait until a process has written a file."""
    for _ in range(2400):
        if path.exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    assert path.exists(), process.communicate()[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_training_prints_how_to_resume(number, tmp_path):
    data, out = small.file(tmp_path), tmp_path / "a run"
    process = start("train", "--recipe", "bag", "--train", data, "-o", out, *FOREVER)
    until(process, out / "checkpoints" / "last.safetensors")
    os.killpg(process.pid, number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number, told
    last = told.splitlines()[-1]
    assert last.startswith("stopped; "), told
    assert f"{out}/checkpoints/last.safetensors" in last
    assert last.endswith(f"`weft train -o '{out}' --resume` goes on"), told
    assert "Traceback" not in told
    assert (out / "log.txt").read_text().splitlines()[-1] == last
    assert not (out / ".lock").exists()


def test_training_stopped_before_its_first_checkpoint_says_so(tmp_path):
    out = tmp_path / "run"
    data = small.file(tmp_path, "other.tsv")
    sizes = ("--set", "train.save_every=1000000", "--set", "train.evaluate_every=1000000")
    process = start("train", "--recipe", "bag", "--train", data, "-o", out, *FOREVER, *sizes)
    until(process, out / "metrics.jsonl")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == "stopped; no checkpoint was written yet: train again", told


def test_stopped_comparison_kills_its_workers_and_prints_how_to_resume(tmp_path):
    data, out = small.file(tmp_path), tmp_path / "out"
    options = ("--recipes", "bag", "--seeds", "1", "--minutes", "0", "--workers", "1")
    process = start("compare", data, "-o", out, *options, *FOREVER)
    trial = out / "trials" / "bag-1"
    until(process, trial / "checkpoints" / "last.safetensors")
    child = int((trial / ".lock").read_text().split()[0])
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 143, told
    assert "Traceback" not in told
    last = told.splitlines()[-1]
    assert last.startswith("stopped; finished runs are kept: `weft compare "), told
    assert last.endswith("` goes on"), told
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_closed_stdout_pipe_is_not_an_error(tmp_path):
    process = start("list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.wait()
    assert told == ""
    assert process.returncode in (0, 1, 141)


def test_resume_message_reaches_the_log_when_stderr_is_closed(tmp_path):
    """As with `weft train 2>&1 | tee log`: Ctrl-C ends tee first."""
    data, out = small.file(tmp_path), tmp_path / "run"
    process = start("train", "--recipe", "bag", "--train", data, "-o", out, "--quiet", *FOREVER)
    until(process, out / "checkpoints" / "last.safetensors")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert "--resume` goes on" in (out / "log.txt").read_text().splitlines()[-1]


LOST = """
import os, signal, time
from weft.cli.stopping import Stopped, signals
class Lookup:
    def __getattr__(self, name):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(3): pass
        raise AttributeError(name)
try:
    with signals():
        try:
            Lookup().x
        except BaseException:  # as code in C does that clears the error of a failed lookup
            pass
        time.sleep(20)
except Stopped as stopped:
    print("stopped by", stopped.number)
"""
TRANSLATED = """
import os, signal
from weft.cli.stopping import Stopped, resumable, signals
try:
    with signals(), resumable(lambda: "go on"):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException as error:
            raise SystemError("returned a result with an exception set") from error
except Stopped as stopped:
    print("stopped by", stopped.number, stopped.hint)
"""
CONTINUED = """
import os, signal, time
from weft.cli.stopping import INTERRUPTS, go_on, signals
with signals():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except INTERRUPTS:
        go_on()
    time.sleep(1)
    print("goes on")
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [(LOST, "stopped by 2"), (TRANSLATED, "stopped by 15 go on"), (CONTINUED, "goes on")],
    ids=["lost", "translated", "continued"],
)
def test_a_signal_is_neither_lost_nor_repeated(script, printed):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == printed, done.stderr
