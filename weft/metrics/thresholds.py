"""Decision thresholds chosen on held-out probabilities: the best F1, or a recall or precision.

n decisions
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from weft.errors import UserError

GOALS = ("f1", "recall=0.9", "precision=0.9")  # as examples in messages


@dataclass(frozen=True)
class Goal:
    """The purpose of a threshold: the best F1, or at least some recall or precision."""

    metric: Literal["f1", "recall", "precision"] = "f1"
    least: float = 0.0

    def __str__(self) -> str:
        return self.metric if self.metric == "f1" else f"{self.metric}={self.least:g}"


@dataclass(frozen=True)
class Threshold:
    """A threshold, and what it led to on the decisions that it was chosen on."""

    value: float
    precision: float
    recall: float
    n: int  # decisions that should be positive

    def reaches(self, goal: Goal) -> bool:
        """Return True if the goal was reached."""
        return goal.metric == "f1" or getattr(self, goal.metric) >= goal.least


def load_threshold(saved: Mapping[str, object]) -> Threshold:
    """Return a threshold from its JSON; raise KeyError, TypeError or ValueError for another."""
    value, precision, recall = (float(str(saved[k])) for k in ("value", "precision", "recall"))
    return Threshold(value, precision, recall, int(str(saved["n"])))


def parse_goal(text: str, where: str) -> Goal:
    """Return the goal of "f1", "recall=0.9" or "precision=0.9", or raise a UserError."""
    found = re.fullmatch(r"\s*(?:(f1)|(recall|precision)\s*=\s*(\S+))\s*", text)
    if found and found[1]:
        return Goal()
    try:
        least = float(found[3]) if found else math.nan
    except ValueError:
        least = math.nan
    if not found or not 0 < least <= 1:
        raise UserError(
            f"{where}: '{text}' is no goal of a threshold. Known: f1, recall=NUMBER and "
            f"precision=NUMBER, above 0 and at most 1, such as {GOALS[1]}."
        )
    return Goal("recall" if found[2] == "recall" else "precision", least)


def choose_threshold(probs: np.ndarray, right: np.ndarray, goal: Goal) -> Threshold:
    """Return the cut of probabilities (n,) that serves the goal best; `right` (n,) has positives.

    For F1, the cut with the highest; of equally good ones that nearest 0.5. For a recall, the cut
    with the highest precision among those that reach it, and the other way round; a precision that
    no cut reaches gives the cut with the highest. A cut is half-way between two neighbouring
    probabilities; one sort tries every distinct one.
    """
    order = np.argsort(-probs, kind="stable")
    probs, right = probs[order], right[order]
    last = np.append(probs[1:] < probs[:-1], True)  # a cut cannot fall between equals
    hits, count = np.cumsum(right)[last], np.arange(1, len(right) + 1)[last]
    n = int(right.sum())
    precision, recall = hits / count, hits / max(n, 1)
    upper = probs[last]
    lower = np.append(upper[1:], 0.0)
    cuts = (upper + lower) / 2
    cuts = np.where(cuts > lower, cuts, upper)  # neighbouring floats have no middle
    if goal.metric == "f1":
        f1 = 2 * hits / (count + n)
        best = np.flatnonzero(f1 == f1.max())
        chosen = int(best[np.abs(cuts[best] - 0.5).argmin()])
    else:
        wanted, other = (recall, precision) if goal.metric == "recall" else (precision, recall)
        reached = wanted >= goal.least
        if not reached.any():
            reached = wanted == wanted.max()
        best = np.flatnonzero(reached)
        # Of equally good cuts, the one that gives more of what was asked for.
        chosen = int(best[np.lexsort((wanted[best], other[best]))[-1]])
    return Threshold(float(cuts[chosen]), float(precision[chosen]), float(recall[chosen]), n)
