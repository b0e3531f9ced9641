"""Two texts, one answer: inference and paraphrase by classes, similarity by a number."""

from weft.errors import UserError
from weft.registry import register
from weft.tasks.classify import Classify
from weft.tasks.regress import Regress
from weft.text.example import Example, SkipCounter
from weft.text.line_source import SKIP_HINT
from weft.text.pair_columns import NO_AGREEMENT

PAIR_ADVICE = (
    "Name the two columns, --text A --text-pair B; in Python, give pairs: (text, text_pair)."
)


class TextPairTask:
    """Shared behaviour of tasks on text pairs."""

    pairs = True  # each example has two texts

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """The same, or a UserError where there is no second text."""
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
class PairClassify(TextPairTask, Classify):
    """One label for two texts (inference, paraphrase), or several (`multi_label = true`)."""

    def __init__(
        self, multi_label: bool = False, label_smoothing: float = 0.0, auxiliary: float = 0.0
    ) -> None:
        super().__init__(multi_label, label_smoothing, auxiliary)

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """The same, or a UserError where a text is missing or there is no agreed label."""
        if example.label == NO_AGREEMENT:
            raise UserError(
                f"{example.where}: the label is '-', which stands for no agreement, as in SNLI. "
                f"Mend it, or {SKIP_HINT}; if it is a class of yours, call it by a word."
            )
        return super().prepare(example, tally)


@register("task", "pair-score")
class PairScore(TextPairTask, Regress):
    """One number for two texts: how similar they are, in the user's unit."""

    def __init__(self, auxiliary: float = 0.0) -> None:
        super().__init__(auxiliary)

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """The same, or a UserError where a text is missing or the label is no number."""
        return TextPairTask.prepare(self, Regress.prepare(self, example, tally), tally)
