"""Choose the number of threads of a run: the faster of one and all, kept on resume."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.fixtures.small import SMALL, killed, splits
from tests.fixtures.weights import digest
from weft import config
from weft.run import train, trainer
from weft.train import threads
from weft.train.threads import ThreadChoice, ThreadTiming

ROOT = Path(__file__).parent.parent.parent
FEW = {
    **SMALL,
    "train.threads": 0,
    "train.epochs": 1,
    "train.batch_size": 17,
    "train.save_every": 1,
}
RESUME = """
import sys, torch
from tests.fixtures.small import splits
from weft import config
from weft.run import train
assert torch.get_num_threads() == 1
train(config.load(sys.argv[1] + "/config.toml"), sys.argv[1], splits=splits(101), resume=True)
"""


def recipe(name="transformer", **changes):
    return config.recipe(name).with_values({**FEW, **changes}, "test")


def events(folder, kind="threads"):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def two(monkeypatch):
    """Compare in short runs, too, and always find two threads to be faster."""
    monkeypatch.setattr(threads, "MAX_COST_BATCHES", 0)
    monkeypatch.setattr(ThreadTiming, "fastest", lambda timing: 2)


class Machine:
    """A clock, and work that takes as long as it is told with each count of threads."""

    def __init__(self, one, two):
        self.now, self.seconds, self.done = 0.0, {1: one, 2: two}, 0

    def clock(self):
        return self.now

    def work(self):
        self.now += self.seconds[torch.get_num_threads()]
        self.done += 1


@pytest.mark.parametrize(
    ("one", "two", "before", "chosen"),
    [
        (0.1, 0.06, 1, 2),
        (0.1, 0.4, 2, 1),
        (0.1, 0.08, 1, 1),  # hardly faster: beside another process it may not last
        (0.1, 0.08, 2, 1),
        (0.1, 0.07, 2, 2),
    ],
)
def test_the_faster_count_is_used(one, two, before, chosen):
    machine = Machine(one, two)
    torch.set_num_threads(before)
    choice = ThreadChoice((1, 2), clock=machine.clock, after=0.0)
    timing = choice.choose([machine.work], 10_000)
    assert torch.get_num_threads() == chosen
    assert timing.seconds == pytest.approx({1: one, 2: two})


def test_one_thread_is_used_unless_all_are_clearly_faster():
    machine = Machine(0.1, 0.095)
    ThreadChoice((1, 2), clock=machine.clock).choose([machine.work], 10_000)
    assert torch.get_num_threads() == 1


def test_threads_are_compared_again_at_growing_intervals():
    machine = Machine(0.1, 0.06)
    choice = ThreadChoice((1, 2), clock=machine.clock)
    torch.set_num_threads(1)
    at, spent = [], 0.0
    while machine.now < 3000:
        if choice.is_due(100_000):
            began = machine.now
            choice.choose([machine.work], 100_000)
            at.append(began)
            spent += machine.now - began
        machine.seconds = {1: 0.1, 2: 0.9} if machine.now > 300 else machine.seconds
        machine.work()
    gaps = [b - a for a, b in pairwise(at)]
    assert len(at) > 4
    assert all(a <= b + 1 for a, b in pairwise(gaps))
    assert max(gaps) < threads.MAX_INTERVAL + 10
    assert torch.get_num_threads() == 1  # another process has come
    assert spent < 0.03 * machine.now


@pytest.mark.parametrize("seconds", [0.001, 0.1, 100.0])
def test_a_short_run_is_never_due_however_slow_it_is(seconds):
    """The count of a short run depends on nothing that varies."""
    machine = Machine(seconds, seconds / 2)
    choice = ThreadChoice((1, 2), clock=machine.clock)
    assert [choice.is_due(batches) for batches in (3, 599, 601)] == [False, False, True]


def test_few_but_slow_batches_are_due_once_their_time_is_known():
    choice = ThreadChoice((1, 2), clock=lambda: 0.0)
    assert not choice.is_due(300)
    assert [choice.is_due(300, each) for each in (0.19, 0.21, 3.0)] == [False, True, True]
    assert [choice.is_due(batches, 3.0) for batches in (99, 100)] == [False, True]


def test_with_one_count_there_is_no_choice():
    assert not ThreadChoice((2,)).is_due(1e9)


def test_a_run_starts_with_the_smallest_count():
    ThreadChoice((1, 2)).start()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("slower", [0.6, 1.0, 1.9, 3.0, 5.0])
@pytest.mark.parametrize("batches", [600, 1_000, 20_000])
def test_comparing_takes_at_most_one_percent(slower, batches):
    """Beside a busy process all threads take 3 to 5 times as long as one."""
    machine = Machine(0.02, 0.02 * slower)
    ThreadChoice((1, 2), clock=machine.clock).choose([machine.work], batches)
    assert machine.now <= 0.0101 * 0.02 * batches
    assert torch.get_num_threads() == (2 if slower < 0.75 else 1)


def test_a_slow_first_batch_does_not_hide_that_all_threads_are_slow():
    """It allocates memory: all threads seem to be less than twice as slow."""
    machine = Machine(0.02, 0.1)

    def slow_first():
        machine.now += 0.06 if not machine.done else 0.0
        machine.work()

    ThreadChoice((1, 2), clock=machine.clock).choose([slow_first], 600)
    assert machine.done == 3
    assert torch.get_num_threads() == 1


def test_measuring_takes_little_of_slow_updates():
    machine = Machine(7.0, 4.0)
    choice = ThreadChoice((1, 2), clock=machine.clock)
    choice.choose([machine.work], 10_000)
    assert machine.done == 4
    assert choice.after - machine.now > 22 / 0.02


@pytest.mark.parametrize("name", ["transformer", "gru", "cnn"])
def test_measuring_leaves_no_trace(name, tmp_path, two):
    """A training that has chosen two threads is that with train.threads=2, bit by bit."""
    train(recipe(name), tmp_path / "auto", splits=splits(101), quiet=True)
    fixed = recipe(name, **{"train.threads": 2})
    train(fixed, tmp_path / "fixed", splits=splits(101), quiet=True)
    assert events(tmp_path / "auto")[0]["threads"] == 2
    assert not events(tmp_path / "fixed")
    assert digest(tmp_path / "auto") == digest(tmp_path / "fixed")


def test_a_language_model_goes_on_where_it_was(tmp_path, two):
    """Its batches carry a state, which measuring must not move."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the {w} was {w * 2} good\n" for w in "abcdefg" * 31))
    small = {"train.evaluate_every": 0, "data.train": str(text), "decoder.hidden": 13}
    for name, count in (("auto", 0), ("fixed", 2)):
        train(recipe("lstm-lm", **small, **{"train.threads": count}), tmp_path / name, quiet=True)
    assert digest(tmp_path / "auto") == digest(tmp_path / "fixed")


def test_a_short_run_uses_one_thread_without_any_extra_work(tmp_path, monkeypatch, capsys):
    rehearsed = []
    monkeypatch.setattr(trainer, "rehearse_update", lambda *given: rehearsed.append(given))
    outcome = train(recipe(), tmp_path / "run", splits=splits(101))
    assert not rehearsed
    assert outcome.record["threads"] == [(0, 1)]
    assert not events(tmp_path / "run")
    assert "threads: 1 (few updates" in capsys.readouterr().err


def test_the_count_is_logged_and_recorded(tmp_path, two, capsys):
    outcome = train(recipe(), tmp_path / "run", splits=splits(101))
    assert "threads: 2 (a batch takes " in capsys.readouterr().err
    assert outcome.record["threads"] == [(0, 2)]
    (event,) = events(tmp_path / "run")
    assert event["step"] == 0
    assert set(event["batch_seconds"]) == {"1", "2"}


def test_with_one_thread_nothing_is_measured(tmp_path, capsys):
    torch.set_num_threads(1)
    outcome = train(recipe(), tmp_path / "run", splits=splits(101))
    assert "threads" not in capsys.readouterr().err
    assert outcome.record["threads"] == [(0, 1)]
    assert not events(tmp_path / "run")


def test_a_training_is_resumed_with_the_threads_it_had(tmp_path, two):
    """OMP_NUM_THREADS is another by then."""
    train(recipe(), tmp_path / "whole", splits=splits(101), quiet=True)
    with killed(3):
        train(recipe(), tmp_path / "killed", splits=splits(101), quiet=True)
    done = subprocess.run(
        [sys.executable, "-c", RESUME, tmp_path / "killed"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert "resumed after update 3, with 2 threads" in done.stderr
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


def test_other_threads_in_a_resumed_training_are_a_note(tmp_path, two, capsys):
    with killed(3):
        train(recipe(), tmp_path / "run", splits=splits(101), quiet=True)
    with killed(4):
        train(recipe(**{"train.threads": 1}), tmp_path / "run", splits=splits(101), resume=True)
    told = capsys.readouterr().err.replace("\n", " ")
    assert "resumed after update 3, with 1 thread " in told
    assert "note: it had 2 before; the weights will differ in their last bits" in told


def test_fewer_cores_than_threads_are_a_note(tmp_path, two, capsys, monkeypatch):
    with killed(4):
        train(recipe(), tmp_path / "run", splits=splits(101), quiet=True)
    monkeypatch.setattr(trainer, "available_cpus", lambda: 1)
    train(recipe(), tmp_path / "run", splits=splits(101), resume=True)
    told = capsys.readouterr().err.replace("\n", " ")
    assert "note: it resumes with 2 threads on 1 core, which is slow" in told


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"), ({"GOMP_SPINCOUNT": "7"}, "None")],
)
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(given, expected):
    """Set before torch is imported: OpenMP reads it once."""
    code = "import weft, os, sys; assert 'torch' not in sys.modules"
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; print(os.environ.get('OMP_WAIT_POLICY'))"],
        env={**environment, **given}, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == expected
