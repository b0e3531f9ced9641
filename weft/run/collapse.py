"""Whether a training has collapsed: it answers all texts alike, or no better than that would be."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.metrics.value import lower_is_better

MIN_TEXTS = 30  # texts; of fewer nobody can tell what luck has decided

Pairs = Sequence[tuple[Any, Any]]  # (right, said) of each text


def constant_baseline(answers: Pairs, metric: str) -> float | None:
    """What one answer for every text would reach; None where there is no such thing."""
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
    """A reason where a figure is not above that of one answer for all; else nothing."""
    least = constant_baseline(answers, metric)
    if value is None or least is None or len(answers) < MIN_TEXTS:
        return ""
    if value > least if higher else value < least:
        return ""
    return (
        f"its {metric} of {value:.3f} on {split} is no better than that of one answer for all "
        f"({least:.3f})"
    )


def loss_never_decreased(record: dict[str, Any]) -> str:
    """A reason where the training loss stayed where it began, by the record of a run."""
    losses = record.get("losses")
    if not losses or losses[1] < 0.9 * losses[0]:
        return ""
    return (
        f"its training loss never fell by a tenth: {losses[0]:.3f} at the start, {losses[1]:.3f} "
        "at best"
    )


def describe_collapses(seeds: Sequence[Any], of: int, what: str) -> str:
    """Which of so many trainings collapsed, in words."""
    named = ", ".join(map(str, seeds))
    return f"{len(seeds)} of {of} {what} collapsed (seed{'s' if len(seeds) > 1 else ''} {named})"


def label_text(value: Any) -> str:
    """A label as a text; a set of labels whatever its order."""
    if isinstance(value, list):
        return ", ".join(sorted(map(str, value))) or "nothing"
    return str(value)
