"""Who runs when: shares of the time, rounds of seeds, and what is left out."""

import json
import time

import pytest

from weft.compare import scheduler
from weft.compare.budget import UNKNOWN_OVERHEAD_FRACTION, Clock
from weft.compare.scheduler import TrialScheduler, WorkerPool, build_worker_pool
from weft.compare.trial import Result, SplitSpec, Trial
from weft.config import Config
from weft.jobs.local import LocalJob


class Process:
    """A stand-in for a training: ends after so many looks, well or not."""

    def __init__(self, looks: int, code: int = 0):
        self.looks, self.code = looks, code
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self.looks -= 1
        if self.looks <= 0 and self.returncode is None:
            self.returncode = self.code
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9

    def wait(self) -> None:
        pass


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    """The jobs that were started, in order; `looks` says how long each takes."""
    started: list[dict] = []
    looks: dict[str, int] = {}

    def spread(jobs, where):
        started.extend(json.loads(job.stdin) for job in jobs)
        return [LocalJob(Process(looks.get(started[-1]["trial"]["recipe"], 1)), None)]

    result = Result("d", "accuracy", True, {"accuracy": {"value": 0.5}}, 0.5, 1.0, 1, 1, 1, [], {})
    monkeypatch.setattr(scheduler, "spread", spread)
    monkeypatch.setattr(Trial, "load_result", lambda self: result)
    return started, looks


def trials(tmp_path, names: str, seeds: int) -> list[Trial]:
    cut = SplitSpec("")
    return [
        Trial(name, seed, None, Config({}), cut, tmp_path / f"{name}-{seed}", "d")
        for name in names
        for seed in range(1, seeds + 1)
    ]


def order(jobs: list[dict]) -> list[str]:
    return [f"{job['trial']['recipe']}{job['trial']['seed']}" for job in jobs]


def test_one_seed_of_each_recipe_comes_before_the_next_seed(jobs, tmp_path):
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), Clock(0), lambda n, text: None)
    race.run(trials(tmp_path, "abc", 2), {})
    assert order(jobs[0]) == ["a1", "b1", "c1", "a2", "b2", "c2"]
    assert {job["minutes"] for job in jobs[0]} == {0.0}
    assert {name: len(found) for name, found in race.results.items()} == {"a": 2, "b": 2, "c": 2}


def test_no_more_at_once_than_workers_and_devices_in_turn(jobs, tmp_path):
    jobs[1].update(a=5, b=5, c=5)
    race = TrialScheduler(WorkerPool(2, 1, ("cuda:0", "cuda:1")), Clock(0), lambda n, text: None)
    most = []
    race._collect = lambda collect=race._collect: (most.append(len(race.running)), collect())
    race.run(trials(tmp_path, "abc", 1), {})
    assert max(most) == 2
    assert {job["device"] for job in jobs[0][:2]} == {"cuda:0", "cuda:1"}


def test_a_training_may_use_all_the_time_that_is_left(jobs, tmp_path):
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), Clock(4), lambda n, text: None)
    left = race.seconds_left
    race.run(trials(tmp_path, "a", 1), {})
    assert jobs[0][0]["minutes"] * 60 == pytest.approx(UNKNOWN_OVERHEAD_FRACTION * left, rel=0.1)


def test_trial_beyond_the_time_limit_is_skipped(jobs, tmp_path):
    said = []
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), Clock(1), lambda n, text: said.append(text))
    race.longest_seconds["a"] = 61.0  # longer than what is left
    race.run(trials(tmp_path, "ab", 1), {})
    assert order(jobs[0]) == ["b1"]
    assert race.skipped == {"a": 1}
    assert "a seed 1: skipped, not enough time" in said


def test_against_the_clock_a_further_seed_waits_for_the_first(jobs, tmp_path):
    jobs[1].update(a=9, b=3)
    race = TrialScheduler(WorkerPool(2, 1, ("cpu",)), Clock(4), lambda n, text: None)
    race.run(trials(tmp_path, "ab", 2), {})
    assert order(jobs[0]) == ["a1", "b1", "b2", "a2"]


def test_time_for_measuring_is_learned_from_those_that_went_before(jobs, tmp_path):
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), Clock(4), lambda n, text: None)
    race.overheads = [24.0]
    expected = race.seconds_left - 1.5 * 24
    race.run(trials(tmp_path, "a", 1), {})
    assert jobs[0][0]["minutes"] * 60 == pytest.approx(expected, abs=0.5)
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), Clock(1), lambda n, text: None)
    race.overheads = [41.0]  # more than the time left even without training
    race.run(trials(tmp_path, "b", 1), {})
    assert race.skipped == {"b": 1}


def test_the_clock_stops_what_runs(jobs, tmp_path):
    jobs[1]["a"] = 10**9
    clock = Clock(1)
    clock.started = time.monotonic() - 49.8
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), clock, lambda n, text: None)
    race.run(trials(tmp_path, "a", 2), {})
    assert race.skipped == {"a": 2}
    assert race.results == {}


def test_a_failed_recipe_costs_only_itself(jobs, tmp_path, monkeypatch):
    def spread(given, where):
        jobs[0].extend(json.loads(job.stdin) for job in given)
        killed = jobs[0][-1]["trial"]["recipe"] == "a"
        return [LocalJob(Process(1, code=-9 if killed else 0), None)]

    monkeypatch.setattr(scheduler, "spread", spread)
    race = TrialScheduler(WorkerPool(1, 1, ("cpu",)), Clock(0), lambda n, text: None)
    race.run(trials(tmp_path, "ab", 2), {})
    assert order(jobs[0]) == ["a1", "b1", "b2"]
    assert "probably for lack of memory" in race.errors["a"]
    assert len(race.results["b"]) == 2


@pytest.mark.parametrize(
    ("workers", "threads", "expected"),
    [(0, 0, (8, 1)), (0, 4, (2, 4)), (2, 0, (2, 4)), (1, 0, (1, 8)), (0, 16, (1, 16))],
)
def test_cores_are_not_oversubscribed(monkeypatch, workers, threads, expected):
    monkeypatch.setattr(scheduler, "available_cpus", lambda: 8)
    found = build_worker_pool("cpu", workers, threads)
    assert (found.workers, found.threads) == expected
    assert found.devices == ("cpu",)


def test_the_reserve_never_eats_all_the_time():
    clock = Clock(0.1)
    assert clock.left - clock.reserve(30) == pytest.approx(3, abs=0.1)
    assert Clock(0).left == float("inf")
    assert Clock(0).reserve(30) == 0
