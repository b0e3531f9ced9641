"""A worker process of a comparison: train one trial, join models, or time one model.

python -m weft.compare.worker < JOB, where JOB is the JSON written by `weft.compare.scheduler`.
"""

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

from weft.compare.trial import ERROR, Trial
from weft.errors import UserError
from weft.registry import trusting
from weft.storage import WriteError, write_text


def main() -> int:
    """Run the job on standard input; write errors to the trial's error.txt."""
    _exit_with_parent()
    job = json.load(sys.stdin)
    trial = Trial.from_json(job["trial"])
    try:
        with trusting(job["trust"]):
            if job["what"] == "time":
                trial.measure_latency(job["device"], job["seconds"])
            elif job["what"] == "join":
                trial.join([Path(folder) for folder in job["members"]], job["device"])
            else:
                trial.run(job["device"], job["minutes"])
    except Exception as error:
        _write_error(trial, error)
        return 1
    return 0


def _write_error(trial: Trial, error: Exception) -> None:
    """Write the message as the first line, then the traceback of an unexpected error."""
    path = trial.folder / ERROR
    if isinstance(error, WriteError) and isinstance(error.__cause__, WriteError):
        error = error.__cause__  # drop the advice to resume: a comparison restarts its trials
    if isinstance(error, UserError):
        text = f"{error}\n"
    else:
        reason = " ".join(str(error).split())
        text = f"{type(error).__name__}: {reason} (see {path})\n{traceback.format_exc()}"
    trial.folder.mkdir(parents=True, exist_ok=True)
    write_text(path, text, errors="replace")


def _exit_with_parent() -> None:
    """Exit when the parent dies: a killed comparison must not leave runs behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
