"""Trials in processes of their own: as many at once as there are cores, within the time given."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from weft.errors import UserError
from weft.registry import trusted
from weft.report.trial import ERROR, Result, Timing, Trial
from weft.run.processes import python_command

Say = Callable[[int, str], None]  # so many trials are settled, and a line about it
PAUSE = 0.02  # seconds between looks at the processes
TRAINING = 0.75  # of a trial's time, at most; the rest is for reading and measuring
CAUTION = 1.5  # how much longer than the longest so far reading and measuring may take


@dataclass(frozen=True)
class Crew:
    """How many trainings run at once, and where."""

    workers: int
    threads: int  # of each
    devices: tuple[str, ...]  # taken in turn


def crew(device: str, workers: int, threads: int) -> Crew:
    """Without oversubscribing: cores are shared out among the trainings, GPUs taken in turn."""
    if workers < 0:
        raise UserError(f"--workers should be 0 (as many as fit) or more, got {workers}.")
    cores = _cores()
    devices = _devices(device)
    if len(devices) > 1 or devices[0] != "cpu":
        # A small model leaves most of a GPU idle; a core or two feed each training.
        count = workers or max(1, min(4 * len(devices), cores // 2))
        return Crew(count, threads or max(1, cores // count), devices)
    threads = threads or (max(1, cores // workers) if workers else 1)
    return Crew(workers or max(1, cores // threads), threads, devices)


@dataclass
class Clock:
    """When the trials must be over; without minutes, never."""

    minutes: float
    reserve: float  # seconds kept for timing the models and writing the report
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that trials may still use."""
        if not self.minutes:
            return float("inf")
        whole = self.minutes * 60
        return self.started + whole - min(self.reserve, whole / 3) - time.monotonic()


@dataclass
class Running:
    """A trial at work."""

    trial: Trial
    process: subprocess.Popen
    errors: IO[bytes]
    slot: int
    started: float = field(default_factory=time.monotonic)


class Race:
    """Runs trials, cheapest first and one seed of each recipe before the next seed."""

    def __init__(self, crew: Crew, clock: Clock, say: Say):
        self.crew, self.clock, self.say = crew, clock, say
        self.results: dict[str, list[tuple[Trial, Result]]] = {}
        self.errors: dict[str, str] = {}
        self.late: dict[str, int] = {}  # trials of a recipe that there was no time for
        self.took: dict[str, float] = {}  # seconds of a recipe's longest trial
        self.around = 0.0  # the most seconds that a trial spent on anything but training
        self.running: list[Running] = []

    def run(self, trials: Sequence[Trial], known: dict[Any, Result]) -> None:
        """Settle every trial: finished, failed, or left out for want of time."""
        rounds: dict[str, int] = {}
        waiting: list[tuple[int, int, Trial]] = []
        order = {trial.recipe: i for i, trial in reversed(list(enumerate(trials)))}
        for trial in trials:
            if trial.folder in known:
                self._finish(trial, known[trial.folder], "finished earlier")
            else:
                waiting.append((rounds.get(trial.recipe, 0), order[trial.recipe], trial))
            rounds[trial.recipe] = rounds.get(trial.recipe, 0) + 1
        waiting.sort(key=lambda entry: entry[:2])
        try:
            self._settle([trial for _, _, trial in waiting])
        finally:
            for running in self.running:
                _kill(running.process)
        for pairs in self.results.values():  # they end in any order
            pairs.sort(key=lambda pair: (pair[0].seed, pair[0].fold or 0))

    def _settle(self, waiting: list[Trial]) -> None:
        while waiting or self.running:
            self._collect()
            waiting = self._forget(waiting)
            while (trial := self._next(waiting)) is not None:
                self._start(trial, waiting)
                waiting = [other for other in waiting if other is not trial]
            if self.clock.left <= 0:
                for running in list(self.running):
                    self._stop(running)
            time.sleep(PAUSE)

    def _next(self, waiting: Sequence[Trial]) -> Trial | None:
        """The first that may begin: against the clock, a further seed waits for the first one."""
        if len(self.running) >= self.crew.workers:
            return None
        at_work = {running.trial.recipe for running in self.running} if self.clock.minutes else ()
        known = self.took.keys() | self.results.keys()
        return next((t for t in waiting if t.recipe in known or t.recipe not in at_work), None)

    def _forget(self, waiting: list[Trial]) -> list[Trial]:
        """Leave out trials of a failed recipe, and those that would not be done in time."""
        kept = []
        for trial in waiting:
            if trial.recipe in self.errors:
                self.say(1, "")
            elif self.took.get(trial.recipe, CAUTION * self.around) >= self.clock.left:
                self.late[trial.recipe] = self.late.get(trial.recipe, 0) + 1
                self.say(1, f"{trial.name}: left out, the time is up")
            else:
                kept.append(trial)
        return kept

    def _start(self, trial: Trial, waiting: Sequence[Trial]) -> None:
        minutes = 0.0
        if self.clock.minutes:
            # Recipes that have not been seen yet share what is left; what one does not use, the
            # next ones get. A further seed may take as long as the first one did.
            new = {t.recipe for t in waiting} | {r.trial.recipe for r in self.running}
            unseen = max(1, len(new - set(self.took)))
            share = self.clock.left * self.crew.workers / unseen
            seconds = min(self.clock.left, max(share, self.took.get(trial.recipe, 0.0)))
            minutes = max(1.0, min(TRAINING * seconds, seconds - CAUTION * self.around)) / 60
        taken = {running.slot for running in self.running}
        slot = next(i for i in range(self.crew.workers) if i not in taken)
        device = self.crew.devices[slot % len(self.crew.devices)]
        job = {"what": "train", "trial": trial.to_json(), "device": device, "minutes": minutes}
        job["limit"] = self.clock.minutes
        process, errors = _launch(job, self.crew.threads)
        self.running.append(Running(trial, process, errors, slot))

    def _collect(self) -> None:
        for running in list(self.running):
            if running.process.poll() is None:
                continue
            self.running.remove(running)
            trial, seconds = running.trial, time.monotonic() - running.started
            if running.process.returncode == 0 and (result := trial.finished()):
                self.took[trial.recipe] = max(self.took.get(trial.recipe, 0.0), seconds)
                self.around = max(self.around, seconds - result.seconds)
                self._finish(trial, result, f"trained in {_seconds(result.seconds)}")
            else:
                self.errors[trial.recipe] = _failure(trial, running)
                self.say(1, f"{trial.recipe} failed: {self.errors[trial.recipe]}")

    def _stop(self, running: Running) -> None:
        _kill(running.process)
        self.running.remove(running)
        self.late[running.trial.recipe] = self.late.get(running.trial.recipe, 0) + 1
        self.say(1, f"{running.trial.name}: stopped, the time is up")

    def _finish(self, trial: Trial, result: Result, how: str) -> None:
        from weft.report.words import called, figure

        self.results.setdefault(trial.recipe, []).append((trial, result))
        main = figure(result.figures[result.metric]["value"], result.metric)
        remarks = "".join(f"; {word}" for word in (result.clipped, result.collapsed) if word)
        self.say(1, f"{trial.name}: {called(result.metric)} {main}, {how}{remarks}")


def timing(trial: Trial, device: str) -> Timing:
    """Time a saved model in a process of its own, alone on the machine."""
    known = trial.timing()
    if known is not None:
        return known
    job = {"what": "time", "trial": trial.to_json(), "device": device}
    process, errors = _launch(job, 0)
    try:
        process.wait()
    finally:
        _kill(process)
    found = trial.timing()
    if found is None:
        raise UserError(_failure(trial, Running(trial, process, errors, 0)))
    return found


def _launch(job: dict[str, Any], threads: int) -> tuple[subprocess.Popen, IO[bytes]]:
    environment = dict(os.environ)
    if threads:
        # Libraries that count cores by themselves would each take all of them.
        for name in ("OMP", "MKL", "OPENBLAS", "RAYON"):
            environment[f"{name}_NUM_THREADS"] = str(threads)
    errors = tempfile.TemporaryFile()
    process = subprocess.Popen(
        python_command("weft.report.work"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=environment,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**job, "trust": trusted()}).encode("utf-8"))
        process.stdin.close()
    return process, errors


def _kill(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _failure(trial: Trial, running: Running) -> str:
    """Why a process ended without a result."""
    path = trial.folder / ERROR
    if path.is_file():
        return path.read_text("utf-8").split("\n")[0]
    code = running.process.returncode
    if code == -9:
        return "its process was killed by the system, probably for want of memory."
    running.errors.seek(0)
    last = running.errors.read().decode("utf-8", "replace").strip().split("\n")[-1]
    return f"its process ended with status {code}: {last}"


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _devices(device: str) -> tuple[str, ...]:
    if device == "cpu":
        return ("cpu",)
    from weft.train.runtime import places

    return places(device)


def _seconds(value: float) -> str:
    from weft.report.words import duration

    return duration(value)


@contextlib.contextmanager
def progress(total: int, quiet: bool) -> Iterator[Say]:
    """A bar over the trials on a terminal, one line a trial otherwise."""
    if quiet:
        yield lambda done, text: None
        return
    if not sys.stderr.isatty():
        so_far = [0]

        def say(done: int, text: str) -> None:
            so_far[0] += done
            if text:
                print(f"[{so_far[0]}/{total}] {text}", file=sys.stderr, flush=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        line = bar.add_task("trials", total=total)

        def advance(done: int, text: str) -> None:
            if text:
                bar.console.print(text, markup=False)
            bar.advance(line, done)

        yield advance
