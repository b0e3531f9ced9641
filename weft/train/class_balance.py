"""Uneven classes in a run: what cannot be balanced, the metric that selects, and the log."""

from collections.abc import Mapping, Sequence

import numpy as np

from weft import registry
from weft.config import FilledSections
from weft.errors import UserError
from weft.protocols import LabelSpace
from weft.tasks.task import AnyTask
from weft.text.class_balance import Balance, is_uneven

UNEVEN_METRIC = "macro_f1"  # by which models are selected where classes are uneven


def check_balance(full: FilledSections, task: AnyTask) -> None:
    """Raise a UserError if the model cannot be trained with `train.balance`."""
    way = full["train"]["balance"]
    if way == "none":
        return
    if not task.has_classes:
        raise UserError(
            f"train.balance = '{way}' is for tasks with classes (classify, pair-classify, tag, "
            f"nodes); the task '{full['task']['kind']}' has none. Remove it."
        )
    section = "classic" if "classic" in full else "head"
    kind = full[section]["kind"]
    known = registry.find(section, kind).balances
    if way not in known:
        fix = "--recipe tagger-bilstm" if task.is_structured else "a neural recipe"
        reason = (
            "CRFsuite learns without weights"
            if way == "weights"
            else "its solver has no focal loss"
        )
        if section == "head" and task.is_structured:
            reason = "the focal loss is of independent decisions, and a CRF scores whole sequences"
            fix = "head.kind=tags"
        raise UserError(
            f"{section} '{kind}' cannot be trained with train.balance = '{way}': {reason}. Set "
            f"train.balance to {' or '.join(map(repr, known))}, or use {fix}."
        )
    if way == "focal":
        for name, found, default in (
            ("loss", task.loss_kind, "cross-entropy"),
            ("label_smoothing", task.smoothing, 0.0),
        ):
            if found != default:
                raise UserError(
                    f"train.balance = 'focal' replaces the cross-entropy, so it cannot be combined "
                    f"with task.{name} = {found!r}. Remove one, or set train.balance to 'weights'."
                )


def choose_metric(metric: str, task: AnyTask, space: LabelSpace) -> tuple[str, str]:
    """Return the metric that selects the model, "" for the task's, and why it is another.

    An explicit metric stays. Of texts with uneven classes it is macro-F1, to which every class
    counts alike; tags keep theirs, which for spans is an F1 that leaves out O.
    """
    counts = space.class_counts
    if metric or not is_uneven(counts, sum(counts)):
        return metric, ""
    if UNEVEN_METRIC not in task.build_metric(space).compute(resamples=0):
        return metric, ""
    named = dict(zip(map(str, space.entries), counts, strict=True))
    return UNEVEN_METRIC, (
        f"{describe_uneven(named)}: the model is selected by {UNEVEN_METRIC}; "
        f"train.metric={task.metric} selects it by {task.metric}"
    )


def describe_uneven(counts: Mapping[str, int]) -> str:
    """Return the largest and the smallest class in words."""
    present = {name: count for name, count in counts.items() if count}
    frequent, rare = (choose(present, key=present.__getitem__) for choose in (max, min))
    return (
        f"the classes are uneven ('{frequent}' has {present[frequent]:,} examples, '{rare}' "
        f"{present[rare]:,})"
    )


def describe_balance(
    balance: Balance, weights: Sequence[np.ndarray], groups: Sequence[np.ndarray], space: LabelSpace
) -> str:
    """Return a line for the log."""
    if balance.kind == "focal":
        return f"balance: focal loss, gamma {balance.gamma:g}"
    if balance.kind == "sampling":
        sizes = sorted(map(len, groups))
        return (
            f"balance: every epoch draws as many rows of each of {len(groups):,} classes, which "
            f"have {sizes[0]:,} to {sizes[-1]:,}"
        )
    first = weights[0]
    names = space.entries if isinstance(space.size, int) else space.entries[0]
    low, high = int(first.argmin()), int(first.argmax())
    return (
        f"balance: classes weigh {first[low]:.3g} ('{names[low]}') to {first[high]:.3g} "
        f"('{names[high]}') in the loss"
    )
