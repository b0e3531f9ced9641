"""The interface of a task. Importable without torch."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft import registry
from weft.errors import UserError
from weft.metrics import Metric
from weft.tasks.annotation import Annotation
from weft.text.example import Example

if TYPE_CHECKING:
    from torch import Tensor

    from weft.batch import LabelledBatch

MAX_REPR_CHARACTERS = 100  # characters of a value in a repr


@dataclass(frozen=True)
class Loss:
    """A sum and what it is a sum over; only the trainer divides, once."""

    total: "Tensor"
    count: int
    carried: Any = None  # the state in which the next piece of the same rows begins


@dataclass(frozen=True, repr=False)
class Answer:
    """A model's prediction for one text."""

    value: Any
    score: float  # probability of the value where there is one; for a number, the number itself
    parts: tuple = ()  # (start, end, weight) of each token, where the model attends
    coverage: float = 1.0  # below 1: some of the input was not read
    scores: tuple[float, ...] = ()  # one per label, in the order of the space
    structure: Annotation | None = None  # what there is to draw, where it is about the words
    tokens: tuple[tuple[str, float], ...] = ()  # of an answer that was written, with their chances
    blanks: tuple[tuple[tuple[str, float], ...], ...] = ()  # of each, words that fit, with chances

    def __repr__(self) -> str:
        value = repr(self.value)
        value = (
            value if len(value) <= MAX_REPR_CHARACTERS else f"{value[: MAX_REPR_CHARACTERS - 1]}…"
        )
        part = f", coverage={self.coverage:.2f}" if self.coverage < 1 else ""
        return f"Answer({value}, score={self.score:.4g}{part})"


class LabelSpace(Protocol):
    """The answers a task can give, learned from the training labels: classes, or a scale."""

    @property
    def size(self) -> Any:
        """The number of scores per text; for word-level tasks, the tags of each column."""

    def to_json(self) -> dict[str, Any]: ...


class Task(Protocol):
    """Stateless, no parameters: settings only.

    Each task takes back the space it made, so `space` is Any here and its own type there.
    """

    head: str  # the head that answers it unless the config names another
    metric: str  # the figure that early stopping and the leaderboard look at
    has_threshold: bool  # whether `tune` has anything to decide

    def space(self, examples: Iterable[Example]) -> LabelSpace:
        """Learn the answer space in one pass over the training examples."""

    def load_space(self, saved: dict[str, Any]) -> LabelSpace: ...

    def target(self, example: Example, space: Any) -> np.ndarray | int | float:
        """The right answer as numbers; a UserError with file and line where the space lacks it."""

    def loss(self, scores: Any, batch: "LabelledBatch") -> Loss: ...

    def answers(self, scores: Any, space: Any) -> list[Answer]: ...

    def predict_targets(self, scores: Any, space: Any) -> Any:
        """The answers as numbers of the same kind as `target`, for the measure."""

    def tune(self, scores: Any, targets: Any, space: Any) -> LabelSpace:
        """Fit what is decided after training (a threshold) on held-out scores."""

    def build_metric(self, space: Any) -> Metric: ...


def build_task(config: Mapping[str, Any], **settled: Any) -> Task:
    """Build the task of a configuration with the settings inferred from the file."""
    tokenizer = config.get("target") or config.get("tokenizer", {})
    return registry.build("task", {**config["task"], **settled}, tokenizer=tokenizer)


def check_auxiliary(auxiliary: float) -> float:
    """Return the weight of the auxiliary LM loss, or raise a UserError if it is negative."""
    if not 0 <= auxiliary < math.inf:
        raise UserError(f"task.auxiliary is a weight, 0 or more; got {auxiliary}.")
    return auxiliary


def add_auxiliary_loss(own: Loss, scores: Any, auxiliary: float) -> Loss:
    """The loss of an answer and, of a language model in training, so much of that of its words.

    L = L_task + λ L_words, the latter of a token on average (Radford et al. 2018).
    """
    if not hasattr(scores, "nats"):
        return own
    return Loss(own.total + auxiliary * scores.nats().sum(), own.count)


class LabelCheck:
    """Watches for examples without a label while an answer space is learned."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted  # "label" or "number", for messages
        self.file = "input"
        self.labelled = 0
        self.first: Example | None = None  # the first example without a label

    def count(self, example: Example) -> bool:
        """Count the example and return True if it has a label."""
        self.file = example.file or self.file
        if example.label is not None and example.label != "":
            self.labelled += 1
            return True
        self.first = self.first or example
        return False

    def check(self) -> None:
        """A UserError when there was nothing to learn from, or a label was missing."""
        if self.labelled and self.first:
            raise self.missing(self.first)
        if not self.labelled:
            message = "no example has a label" if self.first else "there are no examples"
            raise UserError(
                f"{self.file}: {message}. "
                f"Pass --label with the column that holds the {self.wanted}."
            )

    def missing(self, example: Example) -> UserError:
        """The error for one example without a label."""
        return UserError(
            f"{example.where}: no {self.wanted}. Add it, remove the row, "
            f"or pass --label with the column that holds the {self.wanted}."
        )


def compute_metrics(task: Task, space: Any, scores: Any, targets: Any) -> dict[str, float]:
    """Return every metric of held-out scores, thresholds tuned on them, without intervals."""
    measure = task.build_metric(space)
    measure.add(task.predict_targets(scores, task.tune(scores, targets, space)), targets)
    return {name: figure.value for name, figure in measure.compute(resamples=0).items()}
