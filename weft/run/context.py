"""The inputs of a training run, and its result."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from weft.protocols import LabelSpace
from weft.run.data import Data
from weft.run.split import Splits
from weft.tasks.task import AnyTask
from weft.text.example import SkipCounter
from weft.train.logger import RunLogger
from weft.train.settings import Settings

EvalCallback = Callable[[int, dict[str, float]], None]  # called with the step and the dev metrics


@dataclass(frozen=True)
class RunContext:
    """The data, task and settings of a run, and where it writes."""

    data: Data
    settings: Settings
    task: AnyTask
    space: LabelSpace
    splits: Splits
    folder: Path
    logger: RunLogger
    tally: SkipCounter
    started: float  # time.perf_counter() at the start of the run
    on_evaluate: EvalCallback | None = None


class TrainingRecord(TypedDict, total=False):
    """The entries of record.json about training."""

    stopped: str  # see TrainingResult
    completed: float
    rising: str  # TrainingResult.undertrained
    device_bytes: int  # peak
    seconds: float  # of the whole run
    # Of neural models only.
    losses: tuple[float, float] | None
    threads: list[tuple[int, int]]
    updates: int
    training_seconds: float
    gradients: str  # TrainingResult.gradients


class RunRecord(TrainingRecord):
    """The contents of record.json."""

    parameters: int
    figures: dict[str, dict[str, dict[str, float]]]  # by split, then by metric
    notes: list[str]
    versions: dict[str, str]
    command: str
    members: list[dict[str, dict[str, dict[str, float]]]]  # metrics by member of an ensemble


@dataclass(frozen=True)
class TrainingResult:
    """The result of training; the defaults are those of a model that is fitted in one go."""

    stop_reason: str = ""  # set if the time limit ended training
    completed: float = 1.0  # fraction of the configured epochs
    undertrained: str = ""  # advice, if dev was still improving at the end
    losses: tuple[float, float] | None = None  # at the start and the lowest, after enough updates
    updates: int = 0
    seconds: float = 0.0  # of updates and evaluations, without set-up
    threads: tuple[tuple[int, int], ...] = ()  # (update, number of threads from there on)
    gradients: str = ""  # level and verdict on the gradients of the best weights
