"""A job: a module of Weft that runs in a process of its own, and what it needs of a machine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Resources:
    """The part of a machine that one job occupies."""

    cpus: float | None = None  # None: as many as the job has threads
    gpus: float | None = None  # a fraction shares a GPU; None: the caller decides
    memory: int = 0  # bytes; 0: not counted

    def __str__(self) -> str:
        memory = f", memory={self.memory / 2**30:g}GB" if self.memory else ""
        return f"cpus={self.cpus or 0:g}, gpus={self.gpus or 0:g}{memory}"


def never_finished() -> bool:
    """Say that a job has no result of its own to find."""
    return False


NO_NEEDS = Resources()


@dataclass(frozen=True)
class Job:
    """A module to run as `python -m MODULE ARGUMENTS < STDIN`, in the folder of this process."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    threads: int = 0  # of the numeric libraries; 0: they count cores themselves
    needs: Resources = NO_NEEDS
    log: Path | None = None  # for all that it prints; without one only the last line is kept
    # True if its result is on disk: a job whose machine was lost is then not run again.
    is_finished: Callable[[], bool] = field(default=never_finished, compare=False)


class RunningJob(Protocol):
    """A job that was started."""

    @property
    def returncode(self) -> int | None:
        """The exit status as last seen by `poll`; minus the signal that ended the process."""

    @property
    def seconds(self) -> float | None:
        """The seconds that it ran, without waiting for a machine; None if not measured."""

    @property
    def losses(self) -> int:
        """The number of times that its machine was lost and it was started again."""

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs or waits."""

    def kill(self) -> None:
        """End it, if it has not ended."""

    def last_line(self) -> str:
        """Return the last line of its errors."""
