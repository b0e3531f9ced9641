"""Places that run jobs: `spread` starts them here as processes, or on a cluster as tasks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from weft.errors import UserError, unknown_name
from weft.jobs.job import Job, Resources, RunningJob
from weft.jobs.local import LocalMachine

UNITS = {"": 1, "MB": 2**20, "GB": 2**30, "TB": 2**40}


class Place(Protocol):
    """A machine or a cluster."""

    @property
    def is_remote(self) -> bool:
        """True where jobs may run on other machines than this one."""

    @property
    def gpus(self) -> float:
        """The number of GPUs of a cluster; 0 for this machine, whose GPUs need no requests."""

    def start(self, job: Job) -> RunningJob:
        """Start a job, or queue it."""

    def count_slots(self, needs: Resources) -> int:
        """Return how many jobs run at once; UserError if not even one fits."""


LOCAL: Place = LocalMachine()


def spread(jobs: Iterable[Job], where: Place) -> list[RunningJob]:
    """Start jobs at a place. They are followed with `poll`, wherever they run.

    A job whose machine is lost starts again on another one, unless its result is on disk.
    """
    return [where.start(job) for job in jobs]


def stop(running: Sequence[RunningJob]) -> None:
    """End the jobs that still run."""
    for one in running:
        one.kill()


@contextmanager
def open_place(on: str) -> Iterator[Place]:
    """Yield the place that `--on` names: "" for this machine, or ray[:HOST:PORT]."""
    if not on:
        yield LOCAL
        return
    kind, _, address = on.partition(":")
    if kind != "ray":
        raise unknown_name("place", kind, ["ray"], "--on")
    from weft.jobs.ray_cluster import join_cluster

    with join_cluster(address) as cluster:
        yield cluster


def parse_resources(text: str) -> Resources:
    """Parse --needs, such as cpus=2,gpus=0.5,memory=8GB."""
    values: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, amount = part.strip().partition("=")
        if name not in ("cpus", "gpus", "memory"):
            raise unknown_name("resource", name, ["cpus", "gpus", "memory"], "--needs")
        found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(MB|GB|TB)?", amount)
        if found is None or (found[2] and name != "memory"):
            example = "8GB" if name == "memory" else "2"
            raise UserError(f"--needs: {name} should be an amount such as {example}, got '{part}'.")
        values[name] = float(found[1]) * UNITS[found[2] or ""]
    memory = int(values.get("memory", 0))
    return Resources(values.get("cpus"), values.get("gpus"), memory)
