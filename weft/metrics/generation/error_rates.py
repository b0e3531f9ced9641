"""Word and character error rates: edits per token of the reference."""

from collections.abc import Mapping, Sequence

import numpy as np

from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import SentenceMetric, as_reference_lists
from weft.metrics.sentence_counts import Statistic


def count_edits(predicted: Sequence[object], gold: Sequence[object]) -> int:
    """Return the Levenshtein distance of two sequences."""
    ids: dict[object, int] = {}
    first = [ids.setdefault(one, len(ids)) for one in predicted]
    second = np.array([ids.setdefault(one, len(ids)) for one in gold], np.int64)
    steps = np.arange(len(second) + 1)
    row = steps
    for i, one in enumerate(first, 1):
        kept = np.minimum(row[:-1] + (second != one), row[1:] + 1)
        # A run of insertions: the minimum over k <= j of cost[k] + (j - k).
        row = np.minimum.accumulate(np.append(i, kept) - steps) + steps
    return int(row[-1])


class WordErrors(SentenceMetric):
    """Word error rate: substitutions, insertions and deletions per word of the references.

    It can exceed 1. Of several references the one with the fewest errors per word counts.
    """

    name = "wer"

    def __init__(self) -> None:
        super().__init__(2)  # edits, tokens of the reference

    def tokens(self, text: str) -> Sequence[str]:
        return text.split()

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count answers, each with its references."""
        for answer, references in zip(predicted, as_reference_lists(gold), strict=True):
            tokens = self.tokens(answer)
            rows = [(count_edits(tokens, self.tokens(r)), len(self.tokens(r))) for r in references]
            self.add_row(min(rows, key=lambda row: row[0] / max(row[1], 1)))

    def statistics(self) -> Mapping[str, Statistic]:
        return {self.name: lambda sums: safe_divide(sums[:, 0], sums[:, 1])}


class CharacterErrors(WordErrors):
    """Character error rate; runs of white space count as one space."""

    name = "cer"

    def tokens(self, text: str) -> Sequence[str]:
        return " ".join(text.split())
