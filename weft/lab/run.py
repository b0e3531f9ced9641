"""Run experiments in parallel processes, keep what is finished, judge the claims."""

import json
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import UserError
from weft.lab.experiment import Experiment, Verdict
from weft.lab.results import Run, load_run, run_path
from weft.machine import available_cpus, python_command
from weft.storage import lock_folder

# Workers share the cores; more threads would also change sums, and so the last digits.
THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
Job = tuple[Experiment, int]  # an experiment and a seed


@dataclass(frozen=True)
class Trial:
    """An experiment with its runs and the verdict on them; without runs, it failed."""

    experiment: Experiment
    runs: tuple[Run, ...]
    verdict: Verdict | None
    failure: str = ""


@dataclass
class _Progress:
    """Jobs that wait, and what became of the others; shared by the threads that feed workers."""

    waiting: deque[Job]
    failures: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False

    def next_job(self) -> Job | None:
        """Return the next job of an experiment that has not failed."""
        with self.lock:
            while self.waiting and not self.stopped:
                job = self.waiting.popleft()
                if job[0].name not in self.failures:
                    return job
        return None


def run_experiments(
    experiments: Sequence[Experiment],
    folder: Path,
    *,
    seeds: int = 0,
    first_seed: int = 0,
    workers: int = 0,
    on_finished: Callable[[str, int], None] = lambda name, seed: None,
) -> list[Trial]:
    """Run what is missing in a folder and judge every experiment.

    `seeds` is how many, 0 for as many as each experiment says; `on_finished` is called with the
    name and seed of every run, also of those that an earlier call has finished.
    """
    if seeds < 0 or workers < 0 or first_seed < 0:
        raise UserError("--seeds, --first-seed and --workers are numbers from 0 on.")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, "running experiments"):
        jobs = [
            (experiment, seed)
            for experiment in experiments
            for seed in range(first_seed, first_seed + (seeds or experiment.seeds))
        ]
        missing = []
        for experiment, seed in jobs:
            if load_run(folder, experiment.name, seed) is None:
                missing.append((experiment, seed))
            else:
                on_finished(experiment.name, seed)
        missing.sort(key=lambda job: -job[0].seconds)
        failures = _run_jobs(missing, folder, workers, on_finished)
    return [
        _judge(experiment, folder, [s for e, s in jobs if e.name == experiment.name], failures)
        for experiment in experiments
    ]


def find_missed(trials: Sequence[Trial]) -> list[str]:
    """Return the experiments whose claim holds, and also does when it is turned around.

    There must be none: a planted wrong claim has to fail on the same measurements.
    """
    out = []
    for trial in trials:
        runs = [run.measurements for run in trial.runs]
        if trial.verdict is None or trial.verdict.outcome != "holds":
            continue
        if trial.experiment.opposite.judge(runs).outcome != "does not hold":
            out.append(trial.experiment.name)
    return out


def _judge(
    experiment: Experiment, folder: Path, seeds: Sequence[int], failures: dict[str, str]
) -> Trial:
    if experiment.name in failures:
        return Trial(experiment, (), None, failures[experiment.name])
    runs = [load_run(folder, experiment.name, seed) for seed in seeds]
    finished = tuple(run for run in runs if run is not None)
    assert len(finished) == len(runs)
    return Trial(experiment, finished, experiment.judge([run.measurements for run in finished]))


def _run_jobs(
    jobs: Sequence[Job], folder: Path, workers: int, on_finished: Callable[[str, int], None]
) -> dict[str, str]:
    """Run jobs in worker processes; return why experiments failed, by name."""
    progress = _Progress(deque(jobs))
    count = min(workers or available_cpus(), len(jobs))
    processes = [_start_worker(folder) for _ in range(count)]
    threads = [
        threading.Thread(target=_feed, args=(process, progress, folder, on_finished))
        for process in processes
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        progress.stopped = True
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
    return progress.failures


def _start_worker(folder: Path) -> "subprocess.Popen[str]":
    command = python_command("weft.lab.worker", str(folder))
    with open(folder / "workers.txt", "a", encoding="utf-8") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **THREADS},
            text=True,
            encoding="utf-8",
        )


def _feed(
    process: "subprocess.Popen[str]",
    progress: _Progress,
    folder: Path,
    on_finished: Callable[[str, int], None],
) -> None:
    """Give a worker one job after the other."""
    assert process.stdin is not None
    assert process.stdout is not None
    while (job := progress.next_job()) is not None:
        name, seed = job[0].name, job[1]
        run_path(folder, name, seed).unlink(missing_ok=True)  # of another version
        try:
            print(json.dumps([name, seed]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        if progress.stopped:
            return
        failure = json.loads(answer) if answer else "the worker process ended"
        with progress.lock:
            if failure:
                progress.failures[name] = f"seed {seed}: {failure} (see {folder / 'workers.txt'})"
            else:
                on_finished(name, seed)
        if not answer:
            return
