"""Vectors and nothing else: the task of a model that was not taught to answer anything yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from weft.errors import UserError
from weft.metrics import Metric
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
class EmptySpace:
    """The answers there are: none."""

    size: int = 0

    def to_json(self) -> dict[str, Any]:
        return {}


@register("task", "embed")
class Embed:
    """A vector for each text or token, and no answers."""

    head = "none"
    metric = ""
    has_threshold = False

    def space(self, examples: Iterable[Example]) -> EmptySpace:
        """Nothing can be learned from labels here."""
        _refuse()

    def load_space(self, saved: dict[str, Any]) -> EmptySpace:
        return EmptySpace()

    def target(self, example: Example, space: EmptySpace) -> int:
        _refuse()

    def loss(self, scores: Any, batch: "LabelledBatch") -> Loss:
        _refuse()

    def answers(self, scores: Any, space: EmptySpace) -> list[Answer]:
        """Raise a UserError unless there are no inputs."""
        return _refuse() if len(scores) else []

    def golden_answers(self, vectors: Any) -> list[Answer]:
        """Return vectors as answers, stored in a model folder and compared on loading."""
        return [Answer(None, 0.0, scores=tuple(row.tolist())) for row in vectors]

    def predict_targets(self, scores: Any, space: EmptySpace) -> Any:
        _refuse()

    def tune(self, scores: Any, targets: Any, space: EmptySpace) -> EmptySpace:
        return space

    def build_metric(self, space: EmptySpace) -> Metric:
        _refuse()


def _refuse() -> NoReturn:
    raise UserError(NO_ANSWERS)
