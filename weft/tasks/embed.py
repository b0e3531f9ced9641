"""Vectors and nothing else: the task of a model that was not trained to answer anything yet."""

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics import Metric
from weft.protocols import LabelSpace, Saved, Task
from weft.registry import register
from weft.tasks.task import Answer, Loss
from weft.text.example import Example

if TYPE_CHECKING:
    from weft.batch import LabelledBatch

NO_ANSWERS = (
    "This model gives vectors, not answers: `.embed` has one a text and `.states` one a token. To "
    "teach it to answer, fine-tune it: `weft train --recipe bert --pretrained MODEL --train FILE "
    "-o RUN`."
)


@dataclass(frozen=True)
class EmptySpace(LabelSpace):
    """The label space of a model that gives no answers."""

    @property
    def size(self) -> int:
        return 0

    def to_json(self) -> JsonObject:
        return {}


@register("task", "embed")
class Embed(Task[EmptySpace]):
    """A vector for each text or token, and no answers."""

    head = "none"
    metric = ""
    gives_vectors = True
    can_average = True  # the vectors are concatenated

    def space(self, examples: Iterable[Example]) -> EmptySpace:
        """Raise a UserError: there is nothing to learn."""
        _refuse()

    def load_space(self, saved: Saved) -> EmptySpace:
        return EmptySpace()

    def target(self, example: Example, space: EmptySpace) -> int:
        _refuse()

    def loss(self, scores: object, batch: "LabelledBatch") -> Loss:
        _refuse()

    def answers(self, scores: Sized, space: EmptySpace) -> list[Answer]:
        """Raise a UserError unless there are no inputs."""
        return _refuse() if len(scores) else []

    def golden_answers(self, vectors: np.ndarray) -> list[Answer]:
        """Return vectors as answers, stored in a model folder and compared on loading."""
        return [Answer(None, 0.0, scores=tuple(row.tolist())) for row in vectors]

    def predict_targets(self, scores: object, space: EmptySpace) -> np.ndarray:
        _refuse()

    def build_metric(self, space: EmptySpace) -> Metric:
        _refuse()


def _refuse() -> NoReturn:
    raise UserError(NO_ANSWERS)
