"""Jobs as processes of this machine."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from weft.jobs.job import Job, Resources, RunningJob
from weft.machine import available_cpus, python_command

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
LAST_BYTES = 4000  # of the errors, searched for the last line


def launch(job: Job, attached: bool = False) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Start the process of a job; its errors go to the file returned.

    An attached process ends with this one, whatever its module does.
    """
    words = [job.module, *job.arguments]
    words = ["weft.jobs.attached", str(os.getpid()), *words] if attached else words
    errors: IO[bytes] = tempfile.TemporaryFile() if job.log is None else open(job.log, "ab+")
    output = subprocess.DEVNULL if job.log is None else errors
    # Libraries that count cores themselves would each use all of them.
    threads = dict.fromkeys(THREAD_VARIABLES, str(job.threads)) if job.threads else {}
    process = subprocess.Popen(
        python_command(*words),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        env={**os.environ, **threads},
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(job.stdin.encode("utf-8"))
        process.stdin.close()
    return process, errors


@dataclass
class LocalJob:
    """A job in a process of this machine."""

    process: Any  # a subprocess.Popen
    errors: IO[bytes] | None
    losses: int = 0
    seconds: float | None = None  # it began when it was started

    @property
    def returncode(self) -> int | None:
        code: int | None = self.process.returncode
        return code

    def poll(self) -> int | None:
        code: int | None = self.process.poll()
        return code

    def kill(self) -> None:
        if self.poll() is None:
            self.process.kill()
            self.process.wait()

    def last_line(self) -> str:
        return "" if self.errors is None else read_last_line(self.errors)


class LocalMachine:
    """The machine of this process."""

    is_remote = False
    gpus = 0.0

    def start(self, job: Job) -> RunningJob:
        """Start a job at once."""
        return LocalJob(*launch(job))

    def count_slots(self, needs: Resources) -> int:
        """Return how many jobs the cores hold."""
        return max(1, int(available_cpus() / (needs.cpus or 1)))


def read_last_line(file: IO[bytes]) -> str:
    """Return the last line of a file that is not empty."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
    return file.read().decode("utf-8", "replace").strip().split("\n")[-1]


def run_to_end(job: Job, folder: str) -> tuple[int, str, float]:
    """Run a job on this machine for a driver on another one.

    Return its exit status, the last line of its errors and its seconds.
    """
    began = time.monotonic()
    try:
        os.chdir(folder)
    except OSError as error:
        reason = f"{socket.gethostname()} has no folder {folder} ({error.strerror})"
        return 1, f"{reason}. Work in a folder that all machines share.", 0.0
    process, errors = launch(job, attached=True)
    with errors:
        code = process.wait()
        return code, read_last_line(errors), time.monotonic() - began


def pack(job: Job) -> dict[str, Any]:
    """Return a job as plain values for another machine."""
    plain: dict[str, Any] = {**job.__dict__, "log": None if job.log is None else str(job.log)}
    del plain["is_finished"], plain["needs"]
    return plain


def unpack(plain: Mapping[str, Any]) -> Job:
    """Return the job that was packed."""
    log = plain["log"]
    return Job(**{**plain, "log": None if log is None else Path(log)})
