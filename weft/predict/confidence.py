"""Rules on confidences: abstain below a threshold, list every label that may be right."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.tasks.confidence.table import ConfidenceTable
from weft.tasks.task import Answer

if TYPE_CHECKING:
    from weft.predict.predictor import Predictor


@dataclass(frozen=True)
class ConfidenceRules:
    """A confidence threshold and a conformal quantile, applied to answers."""

    labels: tuple[str, ...]
    threshold: float | None = None  # a text is answered above this confidence
    quantile: float | None = None  # labels up to this non-conformity are listed

    @classmethod
    def of(
        cls, predictor: "Predictor", abstain_at: float | None, label_sets: float | None = None
    ) -> "ConfidenceRules | None":
        """Return the rules that keep these promises, or raise a UserError if they cannot be."""
        if abstain_at is None and label_sets is None:
            return None
        option = "abstain_at" if abstain_at is not None else "label_sets"
        table = _find_table(predictor, option)
        return cls(
            predictor.class_labels,
            None if abstain_at is None else table.abstention_threshold(abstain_at),
            None if label_sets is None else table.label_set_quantile(label_sets),
        )

    def apply(self, answer: Answer) -> Answer:
        """Return the answer without a value if it is not confident enough, and its label set."""
        if self.quantile is not None:
            answer = replace(answer, label_set=self._label_set(answer, self.quantile))
        if self.threshold is None:
            return answer
        abstained = answer.score <= self.threshold
        return replace(answer, value=None if abstained else answer.value, abstained=abstained)

    def _label_set(self, answer: Answer, quantile: float) -> tuple[str, ...]:
        """Return the labels that may be right, most probable first; never without the answer."""
        scores = np.array(answer.scores)
        order = np.argsort(-scores, kind="stable").tolist()
        chosen = [self.labels[i] for i in order if 1 - scores[i] <= quantile]
        return tuple(chosen) if answer.value in chosen else (answer.value, *chosen)


def _find_table(predictor: "Predictor", option: str) -> ConfidenceTable:
    """Return the table of held-out confidences, or raise a UserError without one."""
    if not predictor.task.has_confidence:
        kind = predictor.config["task"]["kind"]
        raise UserError(f"{option} is for classifiers, but this model's task is '{kind}'.")
    table: ConfidenceTable | None = predictor.space.confidence
    if table is None:
        raise UserError(
            f"{option} needs what dev texts say of this model's confidences, and there is nothing "
            "in the model folder: it was trained without a dev part, or joined from others. Train "
            "with --dev."
        )
    return table
