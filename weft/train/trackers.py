"""Experiment trackers: TensorBoard, MLflow, Weights & Biases. Each logs one run.

A tracker gets the filled configuration and tags when it starts, metrics by step, and final metrics
without one. Its package is imported only if the configuration names it in `train.loggers`.
"""

import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from weft.errors import UserError
from weft.storage import write_text

IDS_FILE = "loggers.json"  # the ids of the run in trackers, so that a resumed run goes on in them
PROJECT = "weft"  # experiment or project, unless the environment names another
MAX_PARAM_CHARACTERS = 500  # MLflow refuses longer values
PARAM_BATCH = 100  # parameters that MLflow takes at once
_MLFLOW_NAME = re.compile(r"[^\w\-. /:]")


class Tracker(Protocol):
    """Logs one run."""

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        """Log metrics of a step; without one, of the finished model."""

    def finish(self, failed: bool) -> None:
        """End the run."""


class TensorBoard:
    """Event files in the run folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any], tags: Mapping[str, str]):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self.writer = SummaryWriter(str(folder / "tensorboard"))
        for name, text in (("config", json.dumps(config)), ("tags", json.dumps(dict(tags)))):
            self.writer.add_text(name, text)
        self.step = 0

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        self.step = self.step if step is None else step
        for name, value in values.items():
            self.writer.add_scalar(name, value, self.step)

    def finish(self, failed: bool) -> None:
        self.writer.close()


class MLflow:
    """A run of an MLflow experiment: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say where."""

    def __init__(self, folder: Path, config: Mapping[str, Any], tags: Mapping[str, str]):
        try:
            import mlflow
            from mlflow.entities import Metric, Param
        except ImportError:
            raise _missing("mlflow") from None
        self.client: Any = mlflow.MlflowClient()
        self.metric = Metric
        known = _read_ids(folder).get("mlflow")
        if known:
            self.run_id = known
            self.client.update_run(known, status="RUNNING")
            return
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self.client.get_experiment_by_name(experiment)
        place = found.experiment_id if found else self.client.create_experiment(experiment)
        run = self.client.create_run(place, tags=dict(tags), run_name=folder.name)
        self.run_id = run.info.run_id
        _write_id(folder, "mlflow", self.run_id)
        params = [
            Param(_MLFLOW_NAME.sub("_", name), str(value)[:MAX_PARAM_CHARACTERS])
            for name, value in flatten(config)
        ]
        for i in range(0, len(params), PARAM_BATCH):
            self.client.log_batch(self.run_id, params=params[i : i + PARAM_BATCH])

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        now = int(time.time() * 1000)
        metrics = [
            self.metric(_MLFLOW_NAME.sub("_", name), value, now, step or 0)
            for name, value in values.items()
        ]
        self.client.log_batch(self.run_id, metrics=metrics)

    def finish(self, failed: bool) -> None:
        self.client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


class Wandb:
    """A run of Weights & Biases; WANDB_PROJECT and WANDB_MODE=offline are heeded."""

    def __init__(self, folder: Path, config: Mapping[str, Any], tags: Mapping[str, str]):
        try:
            import wandb
        except ImportError:
            raise _missing("wandb") from None
        known = _read_ids(folder).get("wandb")
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=str(folder),
            id=known,
            name=folder.name,
            tags=[f"{name}:{value}"[:64] for name, value in tags.items()],
            config=dict(config),
            reinit="create_new",  # beside a run that the user's own program has open
            resume="allow" if known else None,
        )
        _write_id(folder, "wandb", self.run.id)

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        if step is None:  # a step in the past would be dropped
            self.run.summary.update(dict(values))
        else:
            self.run.log(dict(values), step=step)

    def finish(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


TRACKERS: dict[str, type[TensorBoard] | type[MLflow] | type[Wandb]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": Wandb,
}


def open_tracker(
    name: str, folder: Path, config: Mapping[str, Any], tags: Mapping[str, str]
) -> Tracker:
    """Return the tracker of this name, started; raise UserError if it cannot start."""
    try:
        tracker: Tracker = TRACKERS[name](folder, config, tags)
    except UserError:
        raise
    except Exception as error:  # of any kind: a server that is away, a key that is missing
        raise UserError(f"train.loggers: {name} cannot start: {describe(error)}") from error
    return tracker


def finite_values(values: Mapping[str, object]) -> dict[str, float]:
    """Return the values that are finite numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a configuration by their dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for i, one in enumerate(value):
                yield from flatten(one, f"{prefix}{name}.{i}.")
        else:
            yield f"{prefix}{name}", value


def describe(error: Exception) -> str:
    """Return an error of another library on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _missing(name: str) -> UserError:
    return UserError(
        f"train.loggers = [\"{name}\"] needs another package: pip install 'weft[{name}]'."
    )


def _read_ids(folder: Path) -> dict[str, str]:
    path = folder / IDS_FILE
    ids: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return ids


def _write_id(folder: Path, name: str, run_id: str) -> None:
    write_text(folder / IDS_FILE, json.dumps({**_read_ids(folder), name: run_id}))
