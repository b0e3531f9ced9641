"""What one process of a comparison does: train one trial, or time one model.

python -m weft.compare.worker < JOB, where JOB is the JSON that `schedule` writes.
"""

import json
import os
import sys
import threading
import time
import traceback

from weft.compare.trial import ERROR, Trial
from weft.errors import UserError
from weft.registry import trusting
from weft.storage import WriteError, write_text


def main() -> int:
    """Do the job on standard input; what goes wrong is left in the trial's error.txt."""
    _end_with_parent()
    job = json.load(sys.stdin)
    trial = Trial.from_json(job["trial"])
    try:
        with trusting(job["trust"]):
            if job["what"] == "time":
                trial.time(job["device"], job["seconds"])
            else:
                trial.run(job["device"], job["minutes"])
    except Exception as error:
        _leave(trial, error)
        return 1
    return 0


def _leave(trial: Trial, error: Exception) -> None:
    """First line the message, then the traceback where it is our fault."""
    place = trial.folder / ERROR
    if isinstance(error, WriteError) and isinstance(error.__cause__, WriteError):
        error = error.__cause__  # without the advice to resume: a comparison trains a trial anew
    if isinstance(error, UserError):
        text = f"{error}\n"
    else:
        reason = " ".join(str(error).split())
        text = f"{type(error).__name__}: {reason} (see {place})\n{traceback.format_exc()}"
    trial.folder.mkdir(parents=True, exist_ok=True)
    write_text(place, text, errors="replace")


def _end_with_parent() -> None:
    """A comparison that was killed must not leave trainings behind that nobody waits for."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
