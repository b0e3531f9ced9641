"""A worker process of `weft lab run`: one experiment and seed per line of standard input."""

import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

from weft.lab.catalogue import load_experiment
from weft.lab.results import Run, save_run


def measure(name: str, seed: int) -> Run:
    """Run one seed of an experiment on one thread, from its own random numbers only."""
    from weft.runtime import seed_everything, use_threads

    experiment = load_experiment(name)
    with use_threads(1):
        seed_everything(seed)
        started, busy = time.perf_counter(), time.process_time()
        measurements = experiment.measure(seed)
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return Run(name, seed, measurements, round(seconds, 3), round(cpu, 3))


def main(folder: str) -> None:
    """Answer each job with one line: empty, or why it failed."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever libraries print is not an answer
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, seed = json.loads(line)
        failure = ""
        try:
            save_run(Path(folder), measure(name, seed))
        except Exception as error:
            traceback.print_exc()
            failure = f"{type(error).__name__}: {error}"
        print(json.dumps(failure), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
