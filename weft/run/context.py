"""The inputs of a training run, and its result."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from weft.protocols import LabelSpace
from weft.run.data import Data
from weft.run.split import Splits
from weft.tasks.task import AnyTask
from weft.text.example import Example, SkipCounter
from weft.train.logger import RunLogger
from weft.train.settings import Settings

EvalCallback = Callable[[int, dict[str, float]], None]  # called with the step and the dev metrics


class DataRecord(TypedDict, total=False):
    """The entries of record.json about the data."""

    rows: int  # of training; absent where they were not counted
    labels: dict[str, int]  # training rows by label, the most frequent first; of classes only
    dev: str  # file, or "held out from" the training file
    test: str


class RowCounter:
    """Counts training rows, and the rows of each class, while they are read."""

    def __init__(self, classes: bool) -> None:
        self.classes = classes
        self.rows = 0
        self.labels: Counter[str] = Counter()
        self.complete = False  # all rows were read

    def watch(self, examples: Iterator[Example]) -> Iterator[Example]:
        """Yield the examples and count them."""
        for example in examples:
            self.rows += 1
            label = example.label
            if self.classes and isinstance(label, (str, tuple)):
                self.labels.update((label,) if isinstance(label, str) else label)
            yield example
        self.complete = True

    def record(self, data: Data, splits: Splits) -> DataRecord:
        """Return the counts, and where dev and test come from."""
        out: DataRecord = {}
        if self.complete:
            out["rows"] = self.rows
            if self.labels:
                out["labels"] = dict(self.labels.most_common())
        if splits.dev is not None:
            out["dev"] = data.dev or f"held out from {data.train}"
        if splits.test is not None:
            out["test"] = data.test or f"held out from {data.train}"
        return out


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
    data_record: DataRecord
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
    metric: str  # that selected the model
    figures: dict[str, dict[str, dict[str, float]]]  # by split, then by metric
    data: DataRecord
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
