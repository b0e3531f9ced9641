"""Workers of a search, here or on a cluster, each started as `python -m weft.tune.processes`."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from weft.errors import UserError
from weft.jobs import LOCAL, NO_NEEDS, Job, Place, Resources, spread, stop
from weft.machine import available_cpus
from weft.registry import trusted_packages, trusting
from weft.tune.restart import restarts
from weft.tune.study import Limits, Study, TrialRecord
from weft.tune.trial import run_trials

POLL_SECONDS = 0.3  # between checks of the workers' progress


def run_workers(
    study: Study,
    limits: Limits,
    workers: int,
    on_trial: Callable[[TrialRecord], None],
    where: Place = LOCAL,
    needs: Resources = NO_NEEDS,
) -> None:
    """Run the search and the restarts in workers; call `on_trial` for every finished trial.

    A worker takes one trial after the other. On a cluster 0 workers are as many as fit.
    """
    if where.is_remote:
        threads = max(1, int(needs.cpus or 1))
        gpus = (
            float(limits.device != "cpu" and where.gpus > 0) if needs.gpus is None else needs.gpus
        )
        needs = replace(needs, cpus=needs.cpus or 1, gpus=gpus)
        slots = where.count_slots(needs)
        workers = workers or min(slots, limits.trials or slots)
        limits = limits if gpus else replace(limits, device="cpu")
    else:
        workers = min(workers, available_cpus())
        threads = max(1, available_cpus() // workers)
    logs = study.folder / "workers"
    logs.mkdir(exist_ok=True)
    arguments = (str(study.folder), json.dumps(asdict(limits)), json.dumps(trusted_packages()))
    jobs = []
    for i in range(workers):
        log = logs / f"{i + 1}.txt"
        log.write_bytes(b"")
        name = f"{study.folder.name} worker {i + 1}"
        jobs.append(Job(name, "weft.tune.processes", arguments, "", threads, needs, log))
    reported = {row.number for row in study.rows() if row.over}
    running = spread(jobs, where)
    try:
        while any(job.poll() is None for job in running):
            time.sleep(POLL_SECONDS)
            for row in study.rows():
                if row.over and row.number not in reported:
                    reported.add(row.number)
                    on_trial(row)
    finally:
        stop(running)
    if all(job.returncode for job in running):
        line = running[0].last_line()
        raise UserError(f"Every worker failed; {logs / '1.txt'} ends: {line}")


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
