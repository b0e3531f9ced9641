"""Jobs that run on this machine or on a Ray cluster."""

from weft.jobs.job import NO_NEEDS, Job, Resources, RunningJob
from weft.jobs.place import LOCAL, Place, open_place, parse_resources, spread, stop

__all__ = [
    "LOCAL",
    "NO_NEEDS",
    "Job",
    "Place",
    "Resources",
    "RunningJob",
    "open_place",
    "parse_resources",
    "spread",
    "stop",
]
