"""Trials in processes of their own: as many at once as there are cores, within the time given."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from weft.compare.budget import (
    CAUTION,
    LATENCY,
    PROBE,
    SEED_CAUTION,
    SLACK,
    START_UP,
    UNKNOWN,
    Clock,
)
from weft.compare.trial import ERROR, MIN_COMPLETED, Result, Timing, Trial
from weft.errors import UserError
from weft.machine import available_cpus
from weft.registry import trusted_packages
from weft.run.processes import python_command
from weft.train.logger import PROGRESS_FILE

Say = Callable[[int, str], None]  # so many trials are settled, and a line about it
PAUSE = 0.02  # seconds between looks at the processes


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
    available = available_cpus()
    devices = _devices(device)
    if len(devices) > 1 or devices[0] != "cpu":
        # A small model leaves most of a GPU idle; a core or two feed each training.
        count = workers or max(1, min(4 * len(devices), available // 2))
        return Crew(count, threads or max(1, available // count), devices)
    threads = threads or (max(1, available // workers) if workers else 1)
    return Crew(workers or max(1, available // threads), threads, devices)


@dataclass
class Running:
    """A trial at work."""

    trial: Trial
    process: subprocess.Popen
    errors: IO[bytes]
    slot: int
    started: float


class Race:
    """Runs trials; `budget` says which comes next and which is given up against the clock.

    Without a time limit, one seed of each recipe comes before the next seed. `trials` are given
    cheapest recipe first.
    """

    def __init__(self, crew: Crew, clock: Clock, say: Say):
        self.crew, self.clock, self.say = crew, clock, say
        self.results: dict[str, list[tuple[Trial, Result]]] = {}  # those that can be ranked
        self.short: dict[str, list[tuple[Trial, Result]]] = {}  # those that the limit cut too short
        self.errors: dict[str, str] = {}
        self.late: dict[str, int] = {}  # trials of a recipe that there was no time for
        self.took: dict[str, float] = {}  # seconds of a recipe's longest trial
        self.needs: dict[str, float] = {}  # seconds that a trial of it was going to take
        self.hopeless: set[str] = set()  # recipes that were stopped because of that
        self.earlier: dict[Path, Result] = {}  # shortened trials that are to be repeated
        self.around: list[float] = []  # seconds that trials spent on anything but training
        self.running: list[Running] = []

    def run(self, trials: Sequence[Trial], known: dict[Any, Result]) -> None:
        """Settle every trial: finished, failed, or left out for want of time."""
        waiting: list[Trial] = []
        short: list[tuple[Trial, Result]] = []
        for trial in trials:
            result = known.get(trial.folder)
            if result is None:
                waiting.append(trial)
            elif result.completed < 1:
                short.append((trial, result))
            else:
                self._finish(trial, result, "finished earlier")
        waiting += self._to_be_repeated(short)
        order = {id(trial): i for i, trial in enumerate(trials)}
        waiting.sort(key=lambda trial: order[id(trial)])
        try:
            self._settle(waiting)
        finally:
            for running in self.running:
                _kill(running.process)
        for pairs in self.results.values():  # they end in any order
            pairs.sort(key=lambda pair: (pair[0].seed, pair[0].fold or 0))

    def _to_be_repeated(self, short: Sequence[tuple[Trial, Result]]) -> list[Trial]:
        """Those of an earlier comparison that its limit shortened, and that get further now."""
        self.earlier = {trial.folder: result for trial, result in short}
        for trial, result in short:
            self.needs[trial.recipe] = result.seconds / max(result.completed, 1e-3)
        out = []
        for trial, result in short:
            if self._too_long(trial):
                self._finish(trial, result, "finished earlier")
            else:
                out.append(trial)
        return out

    @property
    def left(self) -> float:
        """Seconds that trials may still use."""
        timed = {*self.results, *(running.trial.recipe for running in self.running)}
        start_up = sum(self.around) / len(self.around) if self.around else START_UP
        return self.clock.left - self.clock.reserve(len(timed), start_up)

    @property
    def tail(self) -> float:
        """Seconds that a trial may need beside its training."""
        return CAUTION * max(self.around, default=0.0)

    def _settle(self, waiting: list[Trial]) -> None:
        while waiting or self.running:
            self._collect()
            if self.clock.minutes:
                self._stop_hopeless()
            waiting = self._forget(waiting)
            while (trial := self._next(waiting)) is not None:
                self._start(trial)
                waiting = [other for other in waiting if other is not trial]
            if self.left <= 0:
                for running in list(self.running):
                    if not self._indispensable(running):
                        self._stop(running, "stopped, the time is up")
            self.clock.sleep(PAUSE)

    def _indispensable(self, running: Running) -> bool:
        """Whether there would be no model at all without this one, which is cheap."""
        first = next((r for r in self.running if r.trial.classic), None)
        return not self.results and running is first

    def _next(self, waiting: Sequence[Trial]) -> Trial | None:
        """The trial to begin now, if any; see `budget` for what comes first against the clock."""
        if len(self.running) >= self.crew.workers or not waiting:
            return None
        at_work = {running.trial.recipe for running in self.running}
        seen = self.took.keys() | self.results.keys()
        if not self.clock.minutes:
            begun = {
                name: len(self.results.get(name, ()))
                + sum(r.trial.recipe == name for r in self.running)
                for name in {trial.recipe for trial in waiting}
            }
            return min(waiting, key=lambda trial: begun[trial.recipe])
        able = [trial for trial in waiting if trial.recipe in seen or trial.recipe not in at_work]
        unseen = {trial.recipe for trial in able} - seen
        fair = self.left * self.crew.workers / len({trial.recipe for trial in waiting})

        def key(trial: Trial) -> tuple[int, float]:
            if trial.recipe in unseen:
                return 1, 0.0
            cost = self.took.get(trial.recipe, self.needs.get(trial.recipe, 0.0))
            ahead = sum(other.recipe == trial.recipe for other in waiting)
            return (0, cost) if cost * ahead <= fair else (2, -self._promise(trial.recipe))

        return min(able, key=key, default=None)

    def _promise(self, recipe: str) -> float:
        """How good a recipe is on dev, higher is better; one that was not measured comes last."""
        sign = {True: 1.0, False: -1.0}
        found = [(r.dev, sign[r.higher_is_better]) for _, r in self.results.get(recipe, ())]
        known = [value * way for value, way in found if value is not None]
        return sum(known) / len(known) if known else float("-inf")

    def _forget(self, waiting: list[Trial]) -> list[Trial]:
        """Leave out trials of a failed recipe, and those that would not be done in time."""
        kept = []
        for trial in waiting:
            if trial.recipe in self.errors:
                self.say(1, "")
            elif not self._too_long(trial):
                kept.append(trial)
            elif trial.folder in self.earlier:
                self._finish(trial, self.earlier[trial.folder], "finished earlier")
            else:
                self.late[trial.recipe] = self.late.get(trial.recipe, 0) + 1
                self.say(1, f"{trial.name}: left out, not enough time")
        return kept

    def _too_long(self, trial: Trial) -> bool:
        if trial.recipe in self.hopeless:
            return True
        if trial.recipe in self.took:
            return SEED_CAUTION * self.took[trial.recipe] >= self.left
        if trial.recipe in self.needs:
            # What can be ranked already is done again only to be complete.
            earlier = self.earlier.get(trial.folder)
            wanted = 1.0 if earlier and earlier.rankable else MIN_COMPLETED
            return SEED_CAUTION * wanted * self.needs[trial.recipe] >= self.left
        # Something cheap has to be tried, however short the time.
        nothing = trial.classic and not (self.results or self.running)
        return not nothing and self.tail >= self.left

    def _start(self, trial: Trial) -> None:
        minutes = 0.0
        if self.clock.minutes and not trial.classic:
            left = self.left
            known = left - self.tail if self.around else UNKNOWN * left
            minutes = max(1.0, known) / 60
        taken = {running.slot for running in self.running}
        slot = next(i for i in range(self.crew.workers) if i not in taken)
        device = self.crew.devices[slot % len(self.crew.devices)]
        (trial.folder / PROGRESS_FILE).unlink(missing_ok=True)  # of an earlier try
        job = {"what": "train", "trial": trial.to_json(), "device": device, "minutes": minutes}
        process, errors = _launch(job, self.crew.threads)
        self.running.append(Running(trial, process, errors, slot, self.clock.now()))

    def _collect(self) -> None:
        for running in list(self.running):
            if running.process.poll() is None:
                continue
            self.running.remove(running)
            trial, seconds = running.trial, self.clock.now() - running.started
            if running.process.returncode == 0 and (result := trial.finished()):
                self.around.append(max(seconds - result.seconds, 0.0))
                if result.completed == 1:
                    self.took[trial.recipe] = max(self.took.get(trial.recipe, 0.0), seconds)
                else:
                    self.needs[trial.recipe] = result.seconds / max(result.completed, 1e-3)
                self._finish(trial, result, f"trained in {_seconds(result.seconds)}")
            else:
                self.errors[trial.recipe] = _failure(trial, running)
                self.say(1, f"{trial.recipe} failed: {self.errors[trial.recipe]}")

    def _stop_hopeless(self) -> None:
        """Stop trainings whose pace shows that the time left is far from enough."""
        for running in list(self.running):
            seen = None if running.trial.classic else running.trial.progress()
            if seen is None or seen.seconds < PROBE or seen.pace <= 0:
                continue
            now = self.clock.now() - running.started
            self.needs[running.trial.recipe] = now + (1 - seen.done) / seen.pace + self.tail
            reached = seen.done + seen.pace * (self.left - self.tail)
            if reached < SLACK * MIN_COMPLETED:
                self.hopeless.add(running.trial.recipe)
                self._stop(running, f"stopped, only {max(reached, 0):.0%} of its epochs would fit")

    def _stop(self, running: Running, why: str) -> None:
        _kill(running.process)
        self.running.remove(running)
        self.late[running.trial.recipe] = self.late.get(running.trial.recipe, 0) + 1
        self.say(1, f"{running.trial.name}: {why}")

    def _finish(self, trial: Trial, result: Result, how: str) -> None:
        from weft.compare.format import called, figure

        if not result.rankable:
            self.short.setdefault(trial.recipe, []).append((trial, result))
            self.say(1, f"{trial.name}: not enough time, {result.clipped}")
            return
        self.results.setdefault(trial.recipe, []).append((trial, result))
        main = figure(result.figures[result.metric]["value"], result.metric)
        remarks = "".join(f"; {word}" for word in (result.clipped, result.collapsed) if word)
        self.say(1, f"{trial.name}: {called(result.metric)} {main}, {how}{remarks}")


def timing(
    trial: Trial, device: str, seconds: float = LATENCY, limit: float | None = None
) -> Timing | None:
    """Time a saved model in a process of its own, alone on the machine.

    Texts are answered for about `seconds`, one at a time and together. None where it took longer
    than `limit`.
    """
    known = trial.timing()
    if known is not None:
        return known
    job = {"what": "time", "trial": trial.to_json(), "device": device, "seconds": seconds}
    process, errors = _launch(job, 0)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _kill(process)
    found = trial.timing()
    if found is None:
        raise UserError(_failure(trial, Running(trial, process, errors, 0, 0.0)))
    return found


def _launch(job: dict[str, Any], threads: int) -> tuple[subprocess.Popen, IO[bytes]]:
    environment = dict(os.environ)
    if threads:
        # Libraries that count cores by themselves would each take all of them.
        for name in ("OMP", "MKL", "OPENBLAS", "RAYON"):
            environment[f"{name}_NUM_THREADS"] = str(threads)
    errors = tempfile.TemporaryFile()
    process = subprocess.Popen(
        python_command("weft.compare.worker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=environment,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**job, "trust": trusted_packages()}).encode("utf-8"))
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


def _devices(device: str) -> tuple[str, ...]:
    if device == "cpu":
        return ("cpu",)
    from weft.runtime import device_names

    return device_names(device)


def _seconds(value: float) -> str:
    from weft.compare.format import duration

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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from weft.terminal import Terminal

    columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Terminal(stderr=True), transient=True) as bar:
        line = bar.add_task("trials", total=total)

        def advance(done: int, text: str) -> None:
            if text:
                bar.console.print(text, markup=False)
            bar.advance(line, done)

        yield advance
