"""Run trials in one process until none are left, each in its own folder."""

import contextlib
import math
import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from weft.errors import UserError
from weft.run.context import EvalCallback
from weft.run.train import StopTraining, train
from weft.tune.study import ClaimedTrial, Limits, Study, TrialRecord

KEPT_TRIALS = 3  # the best keep their weights; the rest would fill the disk
WEIGHT_FOLDERS = ("model", "checkpoints")

TrialCallback = Callable[[TrialRecord], None]


def run_trials(study: Study, limits: Limits, on_trial: TrialCallback = lambda row: None) -> None:
    """Run the remaining trials; call `on_trial` for every finished one, also of other processes."""
    reported = {row.number for row in study.rows() if row.over}

    def news() -> None:
        for row in study.rows():
            if row.over and row.number not in reported:
                reported.add(row.number)
                on_trial(row)

    while True:
        late = limits.until is not None and time.time() >= limits.until
        taken = None if late else study.claim(limits)
        if taken is not None:
            run_trial(study, taken, limits.device)
            prune_weights(study)
        elif late or not study.wait():
            news()
            return
        news()


def run_trial(study: Study, taken: ClaimedTrial, device: str) -> None:
    """Run one trial; an error ends only this trial."""
    folder = trial_dir(study.folder, taken.number)
    plan = study.plan
    try:
        # The test file is not even named, so the search cannot use it.
        config = plan.config(taken.settings).with_values({"data.test": ""}, "search")
        outcome = train(
            config, folder, device=device, quiet=True, on_evaluate=make_callback(study, taken)
        )
        value = outcome.figures["dev"][plan.metric].value
        if not math.isfinite(value):
            raise UserError(f"{plan.metric} on dev is {value}.")
    except StopTraining as stop:
        study.finish(taken, None, str(stop))
    except Exception as error:
        study.finish(taken, None, error_line(error, folder), failed=True)
    else:
        study.finish(taken, value)


def make_callback(study: Study, taken: ClaimedTrial) -> EvalCallback:
    """Return a callback that reports evaluations and stops trials that the pruner rejects."""
    count = 0

    def report(step: int, figures: dict[str, float]) -> None:
        nonlocal count
        count += 1  # not `step`: with another batch size, evaluations have other steps
        taken.trial.report(figures[study.plan.metric], count)
        if taken.trial.should_prune():
            raise StopTraining(
                f"at evaluation {count} its best was worse than the median of the others"
            )

    return report


def error_line(error: Exception, folder: Path) -> str:
    """Return an error as one line; an unexpected one leaves its traceback in the folder."""
    if isinstance(error, UserError):
        return str(error)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text(traceback.format_exc(), "utf-8")
    return f"{type(error).__name__}: {' '.join(str(error).split())} (see {folder / 'error.txt'})"


def trial_dir(folder: Path, number: int) -> Path:
    """Return the run folder of a trial."""
    return folder / "trials" / f"{number:03d}"


def prune_weights(study: Study) -> None:
    """Remove the weights of all trials except running ones and the best few."""
    with study.lock:
        rows = study.rows()
        done = sorted((r for r in rows if r.state == "complete"), key=study.plan.rank)
        kept = {
            row.number for row in [*done[:KEPT_TRIALS], *(r for r in rows if r.state == "running")]
        }
        for row in rows:
            if row.number not in kept:
                for name in WEIGHT_FOLDERS:
                    shutil.rmtree(trial_dir(study.folder, row.number) / name, ignore_errors=True)
