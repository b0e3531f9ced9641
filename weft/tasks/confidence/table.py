"""Confidences of held-out texts: when to abstain, and which labels to list.

n held-out texts   K thresholds   C labels
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.protocols import Saved

FORMAT = 1  # of the saved table
DELTA = 0.05  # probability, over the held-out texts, that a promised accuracy is not kept
# Thresholds that answer 1/K, 2/K, … of the held-out texts; the fewer, the more can be promised.
MIN_STEPS, MAX_STEPS, TEXTS_PER_STEP = 5, 20, 60
MAX_QUANTILES = 500  # stored non-conformity scores
ANSWER_ALL = -1.0  # threshold below every confidence


@dataclass(frozen=True)
class ConfidenceTable:
    """Errors by confidence threshold, and quantiles of non-conformity, on held-out texts.

    Small, and enough for every accuracy and every coverage that a caller may want.
    """

    n: int
    thresholds: tuple[float, ...]  # falling; a text is answered above one of them
    answered: tuple[int, ...]  # held-out texts above each
    errors: tuple[int, ...]  # wrong answers among them
    # 1 − p(gold) at evenly spaced ranks, rising; all of them up to MAX_QUANTILES, () if an answer
    # is a set of labels.
    nonconformity: tuple[float, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "format": FORMAT, "n": self.n, "thresholds": list(self.thresholds),
            "answered": list(self.answered), "errors": list(self.errors),
            "nonconformity": list(self.nonconformity),
        }  # fmt: skip

    def abstention_threshold(self, accuracy: float, option: str = "abstain_at") -> float:
        """Return the lowest confidence threshold that keeps a promise of accuracy.

        With probability ≥ 1 − DELTA over the held-out texts, at least `accuracy` of the texts that
        are answered above the threshold are answered correctly. This is selection with guaranteed
        risk (SGR, Geifman and El-Yaniv 2017) over a fixed set of thresholds: the k-th largest
        held-out confidence is a threshold for k given in advance, so the errors above it are
        binomial, and Clopper and Pearson's bound at DELTA / K holds for all K of them at once
        (Bonferroni).
        """
        if not 0 < accuracy < 1:
            raise UserError(f"{option} is an accuracy above 0 and below 1, got {accuracy}.")
        threshold = self._threshold(accuracy)
        if threshold is not None:
            return threshold
        needed = _texts_needed(accuracy, 1)
        if self.n < needed:
            raise UserError(
                f"{option} {accuracy:g} cannot be promised from {self.n} dev texts; it takes at "
                f"least {needed}. Train with more dev texts, or ask for less."
            )
        possible = (step / 100 for step in range(99, 0, -1))
        best = next((a for a in possible if self._threshold(a) is not None), None)
        fix = (
            f"The highest that can is {best:g}."
            if best
            else "No accuracy can: the model is hardly ever right on dev."
        )
        raise UserError(
            f"{option} {accuracy:g} cannot be promised: on the {self.n} dev texts, the most "
            f"confident answers have too many errors at every threshold. {fix}"
        )

    def coverage_at(self, accuracy: float) -> float:
        """Return the fraction of held-out texts answered under a promise; 0 if it cannot be made"""
        threshold = self._threshold(accuracy)
        if threshold is None:
            return 0.0
        return self.answered[self.thresholds.index(threshold)] / max(self.n, 1)

    def _threshold(self, accuracy: float) -> float | None:
        from scipy.special import bdtr  # cumulative binomial distribution

        tests = _count_tests(self.n, accuracy)
        steps = len(self.thresholds)
        for i in range(steps - 1, steps - 1 - tests, -1):  # the most answers first
            # P(at most so many errors), if the risk were just too high: the exact p-value.
            p_value = float(bdtr(self.errors[i], self.answered[i], 1 - accuracy))
            if self.answered[i] and p_value <= DELTA / tests:
                return self.thresholds[i]
        return None

    def label_set_quantile(self, coverage: float, option: str = "label_sets") -> float:
        """Return the largest non-conformity 1 − p of a label in a set.

        Split conformal prediction with the LAC score (Sadinle, Lei and Wasserman 2019): the sets of
        texts like the held-out ones contain the gold label with probability ≥ `coverage`.
        """
        if not 0 < coverage < 1:
            raise UserError(f"{option} is a coverage above 0 and below 1, got {coverage}.")
        if not self.nonconformity:
            raise UserError(f"{option}: this model answers with sets of labels already.")
        rank = math.ceil((self.n + 1) * coverage - 1e-9)
        if rank > self.n:
            least = math.ceil(coverage / (1 - coverage) - 1e-9)
            raise UserError(
                f"{option} {coverage:g} cannot be promised from {self.n} dev texts; it takes at "
                f"least {least}. Train with more dev texts, or ask for less."
            )
        ranks = _quantile_ranks(self.n)
        return self.nonconformity[next(i for i, own in enumerate(ranks) if own >= rank)]


def build_table(
    confidences: np.ndarray, right: np.ndarray, nonconformity: np.ndarray | None = None
) -> ConfidenceTable:
    """Return the table of held-out confidences (n,), correctness (n,) and 1 − p(gold) (n,)."""
    n = len(confidences)
    falling = -np.sort(-confidences)
    thresholds, answered, errors = [], [], []
    for count in _counts(n):
        threshold = float(falling[count]) if count < n else ANSWER_ALL
        above = confidences > threshold
        thresholds.append(threshold)
        answered.append(int(above.sum()))
        errors.append(int((above & ~right).sum()))
    quantiles: tuple[float, ...] = ()
    if nonconformity is not None and n:
        ranks = np.array(_quantile_ranks(n))
        quantiles = tuple(np.sort(nonconformity)[ranks - 1].tolist())
    return ConfidenceTable(n, tuple(thresholds), tuple(answered), tuple(errors), quantiles)


def load_table(saved: Saved) -> ConfidenceTable:
    """Restore what `to_json` wrote, or raise a UserError if it is damaged."""
    number = saved.get("format") if isinstance(saved, dict) else None
    if type(number) is int and number > FORMAT:
        raise UserError(
            f"The confidence table has format {number}, this Weft reads {FORMAT}. Upgrade Weft."
        )
    try:
        if number != FORMAT:
            raise ValueError(f"format {number!r}")
        n = _whole_numbers([saved["n"]], 0, 2**53)[0]
        steps, ranks = len(_counts(n)), len(_quantile_ranks(n))
        thresholds = _numbers(saved["thresholds"], ANSWER_ALL, 1.0, (steps,))
        answered = _whole_numbers(saved["answered"], 0, n, (steps,))
        errors = _whole_numbers(saved["errors"], 0, n, (steps,))
        nonconformity = _numbers(saved["nonconformity"], 0.0, 1.0, (0, ranks))
        if any(a < b for a, b in pairwise(thresholds)):
            raise ValueError("thresholds that do not fall")
        for rising in (answered, errors, nonconformity):
            if any(a > b for a, b in pairwise(rising)):
                raise ValueError("counts or quantiles that fall")
        if any(wrong > count for wrong, count in zip(errors, answered, strict=True)):
            raise ValueError("more errors than answers")
        if any(count > most for count, most in zip(answered, _counts(n), strict=True)):
            raise ValueError("more answers than texts")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"The confidence table is damaged: {error}. Train again.") from None
    return ConfidenceTable(n, thresholds, answered, errors, nonconformity)


def _counts(n: int) -> list[int]:
    """Return how many of n texts are above each threshold if no two are equally confident."""
    steps = min(MAX_STEPS, max(MIN_STEPS, n // TEXTS_PER_STEP))
    return [n * step // steps for step in range(1, steps + 1)] if n else []


def _quantile_ranks(n: int) -> list[int]:
    """Return the ranks, from 1, of the stored non-conformity scores."""
    stored = min(n, MAX_QUANTILES)
    return [-(-n * i // stored) for i in range(1, stored + 1)]


def _texts_needed(accuracy: float, tests: int) -> int:
    """Return how many texts without an error prove an accuracy in one of several tests."""
    return math.ceil(math.log(DELTA / tests) / math.log(accuracy))


def _count_tests(n: int, accuracy: float) -> int:
    """Return how many of the lowest thresholds are tested: those that n texts could prove.

    It depends on no answer, so testing fewer makes the bound of the others tighter for nothing.
    """
    counts = _counts(n)
    possible = range(len(counts), 0, -1)
    return next((k for k in possible if counts[-k] >= _texts_needed(accuracy, k)), 0)


def _numbers(
    saved: object, low: float, high: float, lengths: Sequence[int] = (1,)
) -> tuple[float, ...]:
    if not isinstance(saved, list) or len(saved) not in lengths:
        raise ValueError(f"a list of {lengths[-1]} numbers expected")
    if any(type(one) not in (int, float) or not low <= one <= high for one in saved):
        raise ValueError(f"numbers from {low:g} to {high:g} expected")
    return tuple(float(one) for one in saved)


def _whole_numbers(
    saved: object, low: int, high: int, lengths: Sequence[int] = (1,)
) -> tuple[int, ...]:
    if not isinstance(saved, list) or len(saved) not in lengths:
        raise ValueError(f"a list of {lengths[-1]} whole numbers expected")
    if any(type(one) is not int or not low <= one <= high for one in saved):
        raise ValueError(f"whole numbers from {low} to {high} expected")
    return tuple(saved)
