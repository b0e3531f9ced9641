"""Answers found in a passage: exact match and F1 over words, as SQuAD's official scripts count."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import SentenceMetric, mean_of_column
from weft.metrics.sentence_counts import Statistic
from weft.metrics.value import MetricValue

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower case, then without punctuation, then without articles, single spaces: in that order."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, reference: str) -> float:
    """1 where both are the same once normalised."""
    return float(normalise_answer(answer) == normalise_answer(reference))


def token_f1(answer: str, reference: str, empty: bool = False) -> float:
    """F1 of the words that both have; with `empty` two answers without a word agree (2.0)."""
    ours, theirs = normalise_answer(answer).split(), normalise_answer(reference).split()
    if empty and not (ours and theirs):
        return float(ours == theirs)
    both = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * both / (len(ours) + len(theirs)) if both else 0.0


def score_answer(
    answer: str, references: Sequence[str], no_answer: bool = False
) -> tuple[float, float]:
    """EM and F1 of one answer, each with the reference that suits it best.

    With `no_answer` by the rules of version 2.0: references of articles and punctuation alone do
    not count, and where none is left the right answer is the empty one.
    """
    if no_answer:
        references = [one for one in references if normalise_answer(one)] or [""]
    best = [(exact_match(answer, one), token_f1(answer, one, no_answer)) for one in references]
    return max((em for em, _ in best), default=0.0), max((f1 for _, f1 in best), default=0.0)


class SquadMetric(SentenceMetric):
    """`em` and `f1`; where questions may have no answer, also the F1 of either kind of question."""

    def __init__(self, no_answer: bool = False) -> None:
        super().__init__(5 if no_answer else 2, no_answer)
        self.no_answer = no_answer

    def add(self, predicted: Sequence[str], gold: Sequence[Sequence[str]]) -> None:
        """Count answers, "" being none, each with all that are right."""
        for answer, references in zip(predicted, gold, strict=True):
            em, f1 = score_answer(answer, references, self.no_answer)
            some = bool(references)
            self.add_row((em, f1, some, f1 * some, f1 * (not some)) if self.no_answer else (em, f1))

    def statistics(self) -> Mapping[str, Statistic]:
        both: dict[str, Statistic] = {"em": mean_of_column(0), "f1": mean_of_column(1)}
        if not self.no_answer:
            return both
        return {
            **both,
            "has_answer_f1": lambda sums: safe_divide(sums[:, 3], sums[:, 2]),
            "no_answer_f1": lambda sums: safe_divide(sums[:, 4], sums[:, -1] - sums[:, 2]),
        }

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        """Return every metric; those of one kind of question count these questions only."""
        values = super().compute(resamples, seed, level)
        some = sum(row[2] > 0 for row in self.rows) if self.no_answer else 0
        counts = {"has_answer_f1": some, "no_answer_f1": self.n - some}
        return {
            name: replace(figure, n=counts.get(name, figure.n)) for name, figure in values.items()
        }
