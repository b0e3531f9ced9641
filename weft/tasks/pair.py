"""Two texts, one answer: inference and paraphrase by classes, similarity by a number."""

from weft.errors import UserError
from weft.protocols import Space, Task
from weft.registry import register
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.confidence.calibration import LossKind
from weft.tasks.regress import LabelScale, Regress
from weft.text.example import Example, SkipCounter
from weft.text.line_source import SKIP_HINT
from weft.text.pair_columns import NO_AGREEMENT

PAIR_ADVICE = (
    "Name the two columns, --text A --text-pair B; in Python, give pairs: (text, text_pair)."
)


class TextPairTask(Task[Space]):
    """Shared behaviour of tasks on text pairs."""

    pairs = True

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example, or raise a UserError if there is no second text."""
        if example.other is None:
            raise UserError(
                f"{example.where}: no second text beside {example.text[:40]!r}. {PAIR_ADVICE}"
            )
        if not example.other.strip():
            raise UserError(
                f"{example.where}: the second text is empty. Fill it in, remove the row, or "
                f"{SKIP_HINT}."
            )
        return example


@register("task", "pair-classify")
class PairClassify(TextPairTask[ClassSpace], Classify):
    """One label for two texts (inference, paraphrase), or several (`multi_label = true`)."""

    def __init__(
        self,
        multi_label: bool = False,
        label_smoothing: float = 0.0,
        auxiliary: float = 0.0,
        loss: LossKind = "cross-entropy",
        hierarchy: bool = False,
        separator: str = " > ",
        ancestor_weight: float = 0.0,
        threshold_for: str = "",
        positive: str = "",
    ) -> None:
        super().__init__(
            multi_label, label_smoothing, auxiliary, loss, hierarchy, separator, ancestor_weight,
            threshold_for, positive,
        )  # fmt: skip

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example, or raise a UserError without two texts and an agreed label."""
        if example.label == NO_AGREEMENT:
            raise UserError(
                f"{example.where}: the label is '-', which stands for no agreement, as in SNLI. "
                f"Mend it, or {SKIP_HINT}; if it is a class of yours, call it by a word."
            )
        return super().prepare(example, tally)


@register("task", "pair-score")
class PairScore(TextPairTask[LabelScale], Regress):
    """One number for two texts, how similar they are, in the user's unit; or several."""

    def __init__(self, auxiliary: float = 0.0, dimensions: int = 1) -> None:
        super().__init__(auxiliary, dimensions)

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example, or raise a UserError without two texts and a number."""
        return TextPairTask.prepare(self, Regress.prepare(self, example, tally), tally)
