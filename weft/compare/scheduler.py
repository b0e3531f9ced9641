"""Run trials in parallel processes, here or on a cluster, within the time limit."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.compare.budget import (
    HOPELESS_FRACTION,
    LATENCY_SECONDS,
    MIN_PACE_SECONDS,
    OVERHEAD_SAFETY_FACTOR,
    SEED_SAFETY_FACTOR,
    START_UP_SECONDS,
    UNKNOWN_OVERHEAD_FRACTION,
    Clock,
)
from weft.compare.trial import ERROR, MIN_COMPLETED, RESULT, Result, Timing, Trial
from weft.errors import UserError
from weft.jobs import LOCAL, NO_NEEDS, Job, Place, Resources, RunningJob, spread, stop
from weft.machine import available_cpus
from weft.progress import open_bar, print_line
from weft.registry import trusted_packages
from weft.train.logger import PROGRESS_FILE

ProgressCallback = Callable[[int, str], None]  # number of trials just settled, and a progress line
POLL_SECONDS = 0.02  # between polls of the processes
SHARED_SECONDS = 15.0  # until a file written by another machine appears on a shared disk
GPU_SHARE = 0.25  # of a trial on a cluster: a small model leaves most of a GPU idle


@dataclass(frozen=True)
class WorkerPool:
    """The number of parallel runs, their threads and devices."""

    workers: int
    threads: int  # per worker
    devices: tuple[str, ...]  # of this machine, round robin
    where: Place = LOCAL
    needs: Resources = NO_NEEDS  # of a trial, on a cluster
    remote_device: str = "cpu"  # of a trial, on a cluster

    def device(self, slot: int) -> str:
        """Return the device of the trial in a slot."""
        if self.where.is_remote:
            return self.remote_device
        return self.devices[slot % len(self.devices)]


def build_worker_pool(
    device: str, workers: int, threads: int, where: Place = LOCAL, needs: Resources = NO_NEEDS
) -> WorkerPool:
    """Divide the CPU cores among the workers without oversubscription; use the GPUs in turn.

    On a cluster the nodes are divided by what a trial needs.
    """
    if workers < 0:
        raise UserError(f"--workers must be 0 (automatic) or more, got {workers}.")
    available = available_cpus()
    devices = _devices(device)
    if where.is_remote:
        threads = threads or max(1, int(needs.cpus or 1))
        share = GPU_SHARE if device != "cpu" and where.gpus else 0.0
        needs = dataclasses.replace(
            needs,
            cpus=threads if needs.cpus is None else needs.cpus,
            gpus=share if needs.gpus is None else needs.gpus,
        )
        slots = where.count_slots(needs)
        remote = device if needs.gpus else "cpu"
        return WorkerPool(workers or slots, threads, devices, where, needs, remote)
    if len(devices) > 1 or devices[0] != "cpu":
        # A small model leaves most of a GPU idle; each run needs a core or two for its input.
        count = workers or max(1, min(4 * len(devices), available // 2))
        return WorkerPool(count, threads or max(1, available // count), devices)
    threads = threads or (max(1, available // workers) if workers else 1)
    return WorkerPool(workers or max(1, available // threads), threads, devices)


@dataclass
class RunningTrial:
    """A trial and its process."""

    trial: Trial
    job: RunningJob
    slot: int
    started: float
    losses: int = 0  # of its machine, as far as reported


class TrialScheduler:
    """Run trials in order; with a time limit, `budget` describes the order and what is dropped.

    Without a time limit, every recipe runs one seed before any runs its next. `trials` come
    cheapest recipe first.
    """

    def __init__(self, pool: WorkerPool, clock: Clock, on_progress: ProgressCallback):
        self.pool, self.clock, self.on_progress = pool, clock, on_progress
        self.results: dict[str, list[tuple[Trial, Result]]] = {}  # rankable
        self.shortened: dict[str, list[tuple[Trial, Result]]] = {}  # cut too short by the limit
        self.errors: dict[str, str] = {}
        self.skipped: dict[str, int] = {}  # trials per recipe without time to run
        self.longest_seconds: dict[str, float] = {}  # of each recipe's longest trial
        self.estimated_seconds: dict[str, float] = {}  # projected for one trial of a recipe
        self.hopeless: set[str] = set()  # recipes stopped because of the projection
        self.earlier_results: dict[Path, Result] = {}  # shortened trials to be repeated
        self.overheads: list[float] = []  # seconds of trials outside training
        self.running: list[RunningTrial] = []

    def run(self, trials: Sequence[Trial], finished: Mapping[Path, Result]) -> None:
        """Run until every trial has finished, failed or been dropped for lack of time."""
        waiting: list[Trial] = []
        short: list[tuple[Trial, Result]] = []
        for trial in trials:
            result = finished.get(trial.folder)
            if result is None:
                waiting.append(trial)
            elif result.completed < 1:
                short.append((trial, result))
            else:
                self._record(trial, result, "cached")
        waiting += self._trials_to_repeat(short)
        order = {id(trial): i for i, trial in enumerate(trials)}
        waiting.sort(key=lambda trial: order[id(trial)])
        try:
            self._run_all(waiting)
        finally:
            stop([running.job for running in self.running])
        for pairs in self.results.values():  # they finish in any order
            pairs.sort(key=lambda pair: (pair[0].seed, pair[0].fold or 0))

    def _trials_to_repeat(self, short: Sequence[tuple[Trial, Result]]) -> list[Trial]:
        """Return shortened trials of an earlier comparison that would get further this time."""
        self.earlier_results = {trial.folder: result for trial, result in short}
        for trial, result in short:
            self.estimated_seconds[trial.recipe] = result.seconds / max(result.completed, 1e-3)
        out = []
        for trial, result in short:
            if self._exceeds_limit(trial):
                self._record(trial, result, "cached")
            else:
                out.append(trial)
        return out

    @property
    def seconds_left(self) -> float:
        """Seconds that trials may still use."""
        timed = {*self.results, *(running.trial.recipe for running in self.running)}
        start_up = sum(self.overheads) / len(self.overheads) if self.overheads else START_UP_SECONDS
        return self.clock.left - self.clock.reserve(len(timed), start_up)

    @property
    def overhead_allowance(self) -> float:
        """Seconds allowed for the start-up and evaluation of a trial."""
        return OVERHEAD_SAFETY_FACTOR * max(self.overheads, default=0.0)

    def _run_all(self, waiting: list[Trial]) -> None:
        while waiting or self.running:
            self._collect()
            if self.clock.minutes:
                self._stop_hopeless()
            waiting = self._drop_impossible(waiting)
            while (trial := self._next_trial(waiting)) is not None:
                self._start(trial)
                waiting = [other for other in waiting if other is not trial]
            if self.seconds_left <= 0:
                for running in list(self.running):
                    if not self._must_finish(running):
                        self._stop(running, "stopped, time limit reached")
            self.clock.sleep(POLL_SECONDS)

    def _must_finish(self, running: RunningTrial) -> bool:
        """Return True for a cheap trial without which there would be no model at all."""
        first = next((r for r in self.running if r.trial.classic), None)
        return not self.results and running is first

    def _next_trial(self, waiting: Sequence[Trial]) -> Trial | None:
        """Return the trial to start now, if any; see `budget` for the order under a time limit."""
        if len(self.running) >= self.pool.workers or not waiting:
            return None
        running_recipes = {running.trial.recipe for running in self.running}
        measured = self.longest_seconds.keys() | self.results.keys()
        if not self.clock.minutes:
            n_started = {
                name: len(self.results.get(name, ()))
                + sum(r.trial.recipe == name for r in self.running)
                for name in {trial.recipe for trial in waiting}
            }
            return min(waiting, key=lambda trial: n_started[trial.recipe])
        candidates = [
            trial
            for trial in waiting
            if trial.recipe in measured or trial.recipe not in running_recipes
        ]
        unmeasured = {trial.recipe for trial in candidates} - measured
        fair = self.seconds_left * self.pool.workers / len({trial.recipe for trial in waiting})

        def key(trial: Trial) -> tuple[int, float]:
            if trial.recipe in unmeasured:
                return 1, 0.0
            cost = self.longest_seconds.get(
                trial.recipe, self.estimated_seconds.get(trial.recipe, 0.0)
            )
            ahead = sum(other.recipe == trial.recipe for other in waiting)
            return (0, cost) if cost * ahead <= fair else (2, -self.dev_score(trial.recipe))

        return min(candidates, key=key, default=None)

    def dev_score(self, recipe: str) -> float:
        """Return the mean dev metric of a recipe, negated if lower is better; -inf if unknown."""
        sign = {True: 1.0, False: -1.0}
        values = [(r.dev, sign[r.higher_is_better]) for _, r in self.results.get(recipe, ())]
        scores = [value * way for value, way in values if value is not None]
        return sum(scores) / len(scores) if scores else float("-inf")

    def _drop_impossible(self, waiting: list[Trial]) -> list[Trial]:
        """Drop trials of failed recipes, and trials that would exceed the time limit."""
        kept = []
        for trial in waiting:
            if trial.recipe in self.errors:
                self.on_progress(1, "")
            elif not self._exceeds_limit(trial):
                kept.append(trial)
            elif trial.folder in self.earlier_results:
                self._record(trial, self.earlier_results[trial.folder], "cached")
            else:
                self.skipped[trial.recipe] = self.skipped.get(trial.recipe, 0) + 1
                self.on_progress(1, f"{trial.name}: skipped, not enough time")
        return kept

    def _exceeds_limit(self, trial: Trial) -> bool:
        if trial.recipe in self.hopeless:
            return True
        if trial.recipe in self.longest_seconds:
            return SEED_SAFETY_FACTOR * self.longest_seconds[trial.recipe] >= self.seconds_left
        if trial.recipe in self.estimated_seconds:
            # A rankable result is repeated only if it can be completed.
            earlier = self.earlier_results.get(trial.folder)
            fraction = 1.0 if earlier and earlier.rankable else MIN_COMPLETED
            return (
                SEED_SAFETY_FACTOR * fraction * self.estimated_seconds[trial.recipe]
                >= self.seconds_left
            )
        # One cheap model is always tried, however short the time.
        only_hope = trial.classic and not (self.results or self.running)
        return not only_hope and self.overhead_allowance >= self.seconds_left

    def _start(self, trial: Trial) -> None:
        minutes = 0.0
        if self.clock.minutes and not trial.classic:
            left = self.seconds_left
            seconds = (
                left - self.overhead_allowance
                if self.overheads
                else UNKNOWN_OVERHEAD_FRACTION * left
            )
            minutes = max(1.0, seconds) / 60
        taken = {running.slot for running in self.running}
        slot = next(i for i in range(self.pool.workers) if i not in taken)
        for name in (PROGRESS_FILE, RESULT):  # of an earlier run
            (trial.folder / name).unlink(missing_ok=True)
        values = {"device": self.pool.device(slot), "minutes": minutes}
        job = _make_job("train", trial, self.pool.threads, self.pool.needs, values)
        [running] = spread([job], self.pool.where)
        self.running.append(RunningTrial(trial, running, slot, self.clock.now()))

    def _collect(self) -> None:
        for running in list(self.running):
            trial, code = running.trial, running.job.poll()
            if running.job.losses > running.losses:
                running.losses = running.job.losses
                self.on_progress(0, f"{trial.name}: its machine was lost, starting again")
            if code is None:
                continue
            self.running.remove(running)
            seconds = running.job.seconds or self.clock.now() - running.started
            if code == 0 and (result := self._load_result(trial)):
                self.overheads.append(max(seconds - result.seconds, 0.0))
                if result.completed == 1:
                    self.longest_seconds[trial.recipe] = max(
                        self.longest_seconds.get(trial.recipe, 0.0), seconds
                    )
                else:
                    self.estimated_seconds[trial.recipe] = result.seconds / max(
                        result.completed, 1e-3
                    )
                self._record(trial, result, f"trained in {_seconds(result.seconds)}")
            else:
                self.errors[trial.recipe] = _failure_reason(trial, running.job)
                self.on_progress(1, f"{trial.recipe} failed: {self.errors[trial.recipe]}")

    def _load_result(self, trial: Trial) -> Result | None:
        """Return the result of a trial that has ended, also where it takes seconds to appear."""
        result = trial.load_result()
        if result is not None or not self.pool.where.is_remote:
            return result
        until = time.monotonic() + SHARED_SECONDS
        while result is None and time.monotonic() < until:
            time.sleep(0.5)
            with contextlib.suppress(OSError):
                os.listdir(trial.folder)  # NFS asks its server again when a folder is opened
            result = trial.load_result()
        return result

    def _stop_hopeless(self) -> None:
        """Stop runs whose pace shows that the time left is far too short."""
        for running in list(self.running):
            progress = None if running.trial.classic else running.trial.progress()
            if progress is None or progress.seconds < MIN_PACE_SECONDS or progress.pace <= 0:
                continue
            now = self.clock.now() - running.started
            self.estimated_seconds[running.trial.recipe] = (
                now + (1 - progress.done) / progress.pace + self.overhead_allowance
            )
            reached = progress.done + progress.pace * (self.seconds_left - self.overhead_allowance)
            if reached < HOPELESS_FRACTION * MIN_COMPLETED:
                self.hopeless.add(running.trial.recipe)
                self._stop(
                    running, f"stopped, only {max(reached, 0):.0%} of its epochs fit the time limit"
                )

    def _stop(self, running: RunningTrial, why: str) -> None:
        running.job.kill()
        self.running.remove(running)
        self.skipped[running.trial.recipe] = self.skipped.get(running.trial.recipe, 0) + 1
        self.on_progress(1, f"{running.trial.name}: {why}")

    def _record(self, trial: Trial, result: Result, how: str) -> None:
        from weft.compare.format import format_metric, metric_name

        if not result.rankable:
            self.shortened.setdefault(trial.recipe, []).append((trial, result))
            self.on_progress(1, f"{trial.name}: not enough time, {result.clipped}")
            return
        self.results.setdefault(trial.recipe, []).append((trial, result))
        main = format_metric(result.figures[result.metric]["value"], result.metric)
        notes = "".join(f"; {note}" for note in (result.clipped, result.collapsed) if note)
        self.on_progress(1, f"{trial.name}: {metric_name(result.metric)} {main}, {how}{notes}")


def time_model(
    trial: Trial, device: str, seconds: float = LATENCY_SECONDS, limit: float | None = None
) -> Timing | None:
    """Time a saved model in a separate process, with no other trial running.

    Single texts and batches are timed for about `seconds`. Return None after `limit` seconds.
    """
    timing = trial.load_timing()
    if timing is not None:
        return timing
    job = _make_job("time", trial, values={"device": device, "seconds": seconds})
    running = _run_alone(job, limit)
    if running is None:
        return None
    timing = trial.load_timing()
    if timing is None:
        raise UserError(_failure_reason(trial, running))
    return timing


def join_models(
    trial: Trial, members: Sequence[Trial], device: str, limit: float | None = None
) -> Result | None:
    """Evaluate the ensemble of finished trials in a separate process, unless that was done before.

    Return None after `limit` seconds.
    """
    result = trial.load_result()
    if result is not None:
        return result
    folders = [str(member.folder / "model") for member in members]
    job = _make_job("join", trial, values={"device": device, "members": folders})
    running = _run_alone(job, limit)
    if running is None:
        return None
    result = trial.load_result() if running.returncode == 0 else None
    if result is None:
        raise UserError(_failure_reason(trial, running))
    return result


def _make_job(
    what: str,
    trial: Trial,
    threads: int = 0,
    needs: Resources = NO_NEEDS,
    values: Mapping[str, object] = {},
) -> Job:
    """Return the job of a worker process."""
    request = {"what": what, "trial": trial.to_json(), **values, "trust": trusted_packages()}
    return Job(
        trial.name,
        "weft.compare.worker",
        stdin=json.dumps(request),
        threads=threads,
        needs=needs,
        is_finished=(trial.folder / RESULT).is_file,
    )


def _run_alone(job: Job, limit: float | None) -> RunningJob | None:
    """Run a job here to its end, with no other beside it; None if it took longer than `limit`."""
    until = float("inf") if limit is None else time.monotonic() + limit
    [running] = spread([job], LOCAL)
    try:
        while running.poll() is None:
            if time.monotonic() >= until:
                return None
            time.sleep(POLL_SECONDS)
    finally:
        running.kill()
    return running


def _failure_reason(trial: Trial, running: RunningJob) -> str:
    """Return the reason why a process ended without a result."""
    path = trial.folder / ERROR
    if path.is_file():
        return path.read_text("utf-8").split("\n")[0]
    code = running.returncode
    if code == -9:
        return "the system killed its process, probably for lack of memory."
    if code == 0:
        return (
            f"it ended on another machine, but {trial.folder} is not here. Choose an -o on a disk "
            "that all machines share."
        )
    return f"its process exited with status {code}: {running.last_line()}"


def _devices(device: str) -> tuple[str, ...]:
    if device == "cpu":
        return ("cpu",)
    from weft.runtime import device_names

    return device_names(device)


def _seconds(value: float) -> str:
    from weft.compare.format import format_duration

    return format_duration(value)


@contextlib.contextmanager
def show_progress(total: int, quiet: bool) -> Iterator[ProgressCallback]:
    """Show a progress bar on a terminal or in a notebook, otherwise one line per trial."""
    if quiet:
        yield lambda done, text: None
        return
    bar = open_bar("trials", total)
    if bar is None:
        so_far = [0]

        def count_trial(done: int, text: str) -> None:
            so_far[0] += done
            if text:
                print_line(f"[{so_far[0]}/{total}] {text}")

        yield count_trial
        return
    with contextlib.closing(bar):

        def advance(done: int, text: str) -> None:
            if text:
                bar.say(text)
            bar.advance(done)

        yield advance
