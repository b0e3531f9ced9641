"""Is the best really better? Paired tests on the same test texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.measure.bootstrap import paired
from weft.report.trial import Trial


def chances(trials: Mapping[str, Sequence[Trial]], best: str) -> dict[str, float]:
    """For each other recipe, how likely so large a gap to the best is by chance (two-sided).

    A text's score is its mean over seeds, so that a lucky seed does not decide; folds add up to
    all texts. Recipes whose answers cannot be paired are left out.
    """
    scores = {name: _scores(found) for name, found in trials.items()}
    first = scores.pop(best)
    return {
        name: paired(found, first) for name, found in scores.items() if len(found) == len(first)
    }


def _scores(trials: Sequence[Trial]) -> np.ndarray:
    """One number a test text: the mean over seeds."""
    by_fold: dict[int | None, list[np.ndarray]] = {}
    for trial in trials:
        rows = np.array([score(a["value"], a["label"]) for a in trial.answers()])
        by_fold.setdefault(trial.fold, []).append(rows)
    if any(len({len(rows) for rows in seeds}) > 1 for seeds in by_fold.values()):
        return np.zeros(0)
    folds = sorted(by_fold.items(), key=lambda item: item[0] or 0)
    return np.concatenate([np.mean(seeds, axis=0) for _, seeds in folds])


def score(value: Any, label: Any) -> float:
    """How good one answer is: right or not; of sets their overlap; of numbers the squared error."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return -((value - float(label)) ** 2)
    if isinstance(value, (list, tuple)):
        mine, right = set(value), set(label if isinstance(label, (list, tuple)) else [label])
        return len(mine & right) / max(1, len(mine | right))
    return float(value == label)
