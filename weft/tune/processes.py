"""Worker processes of a search, each started as `python -m weft.tune.processes`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from weft.errors import UserError
from weft.machine import available_cpus, python_command
from weft.registry import trusted_packages, trusting
from weft.tune.restart import restarts
from weft.tune.study import Limits, Study, TrialRecord
from weft.tune.trial import run_trials

POLL_SECONDS = 0.3  # between checks of the workers' progress
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def run_workers(
    study: Study, limits: Limits, workers: int, on_trial: Callable[[TrialRecord], None]
) -> None:
    """Run the search and the restarts in workers; call `on_trial` for every finished trial."""
    workers = min(workers, available_cpus())
    threads = str(max(1, available_cpus() // workers))
    logs = study.folder / "workers"
    logs.mkdir(exist_ok=True)
    words = python_command("weft.tune.processes", str(study.folder), json.dumps(asdict(limits)))
    words.append(json.dumps(trusted_packages()))
    reported = {row.number for row in study.rows() if row.over}
    running = []
    for i in range(workers):
        with open(logs / f"{i + 1}.txt", "w", encoding="utf-8") as log:
            environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, threads)}
            running.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment))
    try:
        while any(process.poll() is None for process in running):
            time.sleep(POLL_SECONDS)
            for row in study.rows():
                if row.over and row.number not in reported:
                    reported.add(row.number)
                    on_trial(row)
    finally:
        for process in running:
            process.terminate()  # does nothing to one that has ended
        for process in running:
            process.wait()
    if all(process.returncode for process in running):
        lines = (logs / "1.txt").read_text("utf-8").strip().splitlines()
        raise UserError(f"Every worker failed; {logs / '1.txt'} ends: {lines[-1] if lines else ''}")


def main(folder: str, wanted: str, trust: str) -> None:
    """Run one worker: trials, then restarts."""
    with trusting(json.loads(trust)):
        _work(folder, wanted)


def _work(folder: str, wanted: str) -> None:
    limits = Limits(**json.loads(wanted))
    study = Study(Path(folder))
    try:
        run_trials(study, limits)
        best = study.best()
        if best is not None and limits.seeds:
            restarts(study, best.settings, limits)
    finally:
        study.close()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
