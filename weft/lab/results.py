"""Measurements on disk: one file per experiment and seed, written whole or not at all."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import jsonio
from weft.errors import UserError
from weft.lab.catalogue import source_of
from weft.lab.experiment import Measurements
from weft.storage import write_text


@dataclass(frozen=True)
class Run:
    """The measurements of one seed, and what they took."""

    name: str
    seed: int
    measurements: Measurements
    seconds: float
    cpu_seconds: float


def run_path(folder: Path, name: str, seed: int) -> Path:
    """Return the file of a run."""
    return folder / "runs" / f"{name}-{seed}.json"


def save_run(folder: Path, run: Run) -> None:
    """Write a run; its measurements must be finite numbers."""
    values = [value for points in run.measurements.values() for value in points.values()]
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"measured {values}; a measurement is a finite number")
    document = {
        "experiment": run.name,
        "seed": run.seed,
        "source": _digest(run.name),
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        # Pairs, because the keys of a JSON object are strings.
        "measurements": {s: [[x, y] for x, y in p.items()] for s, p in run.measurements.items()},
    }
    path = run_path(folder, run.name, run.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=1) + "\n")


def load_run(folder: Path, name: str, seed: int) -> Run | None:
    """Return a saved run; None if there is none, or if the experiment has changed since."""
    path = run_path(folder, name, seed)
    try:
        document = jsonio.read(path)
    except FileNotFoundError:
        return None
    try:
        if document["source"] != _digest(name):
            return None
        return Run(
            name,
            seed,
            _parse_measurements(document["measurements"]),
            float(document["seconds"]),
            float(document["cpu_seconds"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not a run of the lab ({error!r}). Delete it to run it again."
        ) from None


def _parse_measurements(saved: Mapping[str, Any]) -> Measurements:
    return {
        str(series): {x if isinstance(x, str) else float(x): float(y) for x, y in points}
        for series, points in saved.items()
    }


def _digest(name: str) -> str:
    """Return a fingerprint of the code: measurements of another version are outdated."""
    shared = Path(__file__).with_name("training.py").read_bytes()
    return hashlib.sha256(source_of(name) + shared).hexdigest()[:16]
