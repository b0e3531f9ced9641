"""Detect collapsed runs: one answer for all texts, or no better than that."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.metrics.value import lower_is_better
from weft.run.context import RunRecord

MIN_TEXTS = 30  # with fewer, luck decides

Pairs = Sequence[tuple[Any, Any]]  # gold and predicted: a label, a set of labels or a number


def constant_baseline(answers: Pairs, metric: str) -> float | None:
    """Return the metric of the best constant answer; None if there is no such baseline."""
    if not answers:
        return 0.0
    if metric == "mse":
        return float(np.var([float(gold) for gold, _ in answers]))
    if metric == "accuracy":
        return Counter(label_text(gold) for gold, _ in answers).most_common(1)[0][1] / len(answers)
    return None if lower_is_better(metric) else 0.0


def not_above_baseline(
    answers: Pairs, metric: str, higher: bool, value: float | None, split: str
) -> str:
    """Return a reason if the metric is not better than a constant answer, else ""."""
    least = constant_baseline(answers, metric)
    if value is None or least is None or len(answers) < MIN_TEXTS:
        return ""
    if value > least if higher else value < least:
        return ""
    return (
        f"its {metric} of {value:.3f} on {split} is no better than that of one answer for all "
        f"({least:.3f})"
    )


def loss_never_decreased(record: RunRecord) -> str:
    """Return a reason if the training loss never decreased, by the record of a run, else ""."""
    losses = record.get("losses")
    if not losses or losses[1] < 0.9 * losses[0]:
        return ""
    return (
        f"its training loss never fell by a tenth: {losses[0]:.3f} at the start, {losses[1]:.3f} "
        "at best"
    )


def describe_collapses(seeds: Sequence[int | str], of: int, what: str) -> str:
    """Describe which of so many runs collapsed."""
    named = ", ".join(map(str, seeds))
    return f"{len(seeds)} of {of} {what} collapsed (seed{'s' if len(seeds) > 1 else ''} {named})"


def label_text(value: object) -> str:
    """Return a label as text; a set of labels in sorted order."""
    if isinstance(value, list):
        return ", ".join(sorted(map(str, value))) or "nothing"
    return str(value)
