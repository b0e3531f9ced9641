"""Vectors and nothing else: the task of a model that was not taught to answer anything yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from weft.errors import UserError
from weft.metrics import Measure
from weft.registry import register
from weft.tasks.task import Answer, Loss
from weft.text.example import Example

if TYPE_CHECKING:
    from weft.batch import LabelledBatch

NOTHING = (
    "This model gives vectors, not answers: `.embed` has one a text and `.states` one a token. To "
    "teach it to answer, fine-tune it: `weft train --recipe bert --pretrained MODEL --train FILE "
    "-o RUN`."
)


@dataclass(frozen=True)
class Vectors:
    """The answers there are: none."""

    size: int = 0

    def to_json(self) -> dict[str, Any]:
        return {}


@register("task", "embed")
class Embed:
    """A vector for each text or token, and no answers."""

    head = "none"
    metric = ""
    tuned = False

    def space(self, examples: Iterable[Example]) -> Vectors:
        """Nothing can be learned from labels here."""
        _refuse()

    def load_space(self, saved: dict[str, Any]) -> Vectors:
        return Vectors()

    def target(self, example: Example, space: Vectors) -> int:
        _refuse()

    def loss(self, scores: Any, batch: "LabelledBatch") -> Loss:
        _refuse()

    def answers(self, scores: Any, space: Vectors) -> list[Answer]:
        """None, unless nothing was asked."""
        return _refuse() if len(scores) else []

    def recorded(self, vectors: Any) -> list[Answer]:
        """What a model folder keeps of some texts, to see at loading that nothing has changed."""
        return [Answer(None, 0.0, scores=tuple(row.tolist())) for row in vectors]

    def predicted(self, scores: Any, space: Vectors) -> Any:
        _refuse()

    def tune(self, scores: Any, targets: Any, space: Vectors) -> Vectors:
        return space

    def measure(self, space: Vectors) -> Measure:
        _refuse()


def _refuse() -> NoReturn:
    raise UserError(NOTHING)
