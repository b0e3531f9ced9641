"""Metrics of dialogue: joint goal accuracy, F1 of slots, diversity and ranking of responses.

n contexts, each with its response
"""

from collections.abc import Mapping, Sequence

import numpy as np

from weft.errors import UserError
from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import SentenceMetric, as_reference_lists, mean_of_column
from weft.metrics.sentence_counts import Statistic
from weft.text.formats.dialogue.views import parse_state

Gold = Sequence[str | Sequence[str]]  # of each answer its reference, or several
MAX_ORDER = 2  # of the n-grams that are told apart


class StateAccuracy(SentenceMetric):
    """Joint goal accuracy, the share of turns with every slot right, and F1 of slots with values.

    States are written as `area = south ; food = thai`; case and spaces do not count.
    """

    def __init__(self) -> None:
        super().__init__(4)  # turns that are right, slots that are right, predicted slots, gold

    def add(self, predicted: Sequence[str], gold: Gold) -> None:
        """Count the states of turns."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            predicted_slots, gold_slots = _slots(answer), _slots(right[0])
            self.add_row(
                [
                    predicted_slots == gold_slots,
                    len(predicted_slots & gold_slots),
                    len(predicted_slots),
                    len(gold_slots),
                ]
            )

    def statistics(self) -> Mapping[str, Statistic]:
        return {
            "joint_goal_accuracy": mean_of_column(0),
            "slot_precision": lambda sums: safe_divide(sums[:, 1], sums[:, 2]),
            "slot_recall": lambda sums: safe_divide(sums[:, 1], sums[:, 3]),
            "slot_f1": lambda sums: safe_divide(2 * sums[:, 1], sums[:, 2] + sums[:, 3]),
        }


class Distinct(SentenceMetric):
    """Distinct-1 and distinct-2: the share of different n-grams in all answers (Li et al. 2016).

    An n-gram counts where it first occurs. The intervals resample answers with these counts.
    """

    def __init__(self) -> None:
        super().__init__(2 * MAX_ORDER)
        self.answers: list[str] = []

    def add(self, predicted: Sequence[str], gold: Gold) -> None:
        """Keep answers; there is nothing to compare them with."""
        self.answers.extend(predicted)

    def merge(self, other: "Distinct") -> None:
        self.answers.extend(other.answers)

    @property
    def n(self) -> int:
        return len(self.answers)

    def table(self) -> np.ndarray:
        """(n, 4) n-grams that no answer before has, and all n-grams, of each order."""
        seen: set[tuple[str, ...]] = set()
        rows = []
        for answer in self.answers:
            words, row = answer.lower().split(), []
            for order in range(1, MAX_ORDER + 1):
                ngrams = [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]
                row += [len(set(ngrams) - seen), len(ngrams)]
                seen.update(ngrams)
            rows.append(row)
        return np.array(rows, dtype=float).reshape(-1, self.width)

    def statistics(self) -> Mapping[str, Statistic]:
        return {
            "distinct1": lambda sums: safe_divide(sums[:, 0], sums[:, 1]),
            "distinct2": lambda sums: safe_divide(sums[:, 2], sums[:, 3]),
        }


class ResponseRecall(SentenceMetric):
    """Recall@1: the share of contexts whose own response beats those drawn from other dialogues.

    Each context is compared with `candidates` responses, its own included. A tie is no success.
    """

    def __init__(self, candidates: int = 10, seed: int = 0) -> None:
        super().__init__(1, candidates, seed)
        self.candidates = candidates
        self.draw = np.random.default_rng(seed)

    def add(self, predicted: np.ndarray, gold: Sequence[int]) -> None:
        """Count similarities (n, n) of contexts to responses; `gold` numbers their dialogues."""
        groups = np.asarray(gold)
        for i, row in enumerate(np.asarray(predicted)):
            others = np.flatnonzero(groups != groups[i])
            if len(others) < self.candidates - 1:
                raise UserError(
                    f"Recall of {self.candidates} needs {self.candidates - 1} responses of other "
                    f"dialogues; there are {len(others)}."
                )
            chosen = self.draw.choice(others, self.candidates - 1, replace=False)
            self.add_row([float(row[i] > row[chosen].max())])

    def statistics(self) -> Mapping[str, Statistic]:
        return {"recall_at_1": mean_of_column(0)}


def _slots(text: str) -> set[tuple[str, str]]:
    return set(parse_state(text.lower()).items())
