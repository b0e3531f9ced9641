"""Uneven classes in a comparison: the best recipes are trained again with balanced classes."""

from collections.abc import Sequence

from weft.compare.dataset_stats import DatasetStats
from weft.compare.plan import Plan
from weft.compare.prepare import load_finished
from weft.compare.scheduler import TrialScheduler
from weft.errors import UserError
from weft.text.class_balance import is_uneven
from weft.train.class_balance import UNEVEN_METRIC, describe_uneven

BALANCED_RECIPES = 2  # the best ones, which are tried with balanced classes
WAY = "weights"  # of train.balance: every recipe for texts has it, and it costs no more time


def uneven_note(stats: DatasetStats) -> str:
    """Return a note if the labels of texts are uneven, so that macro-F1 ranks; else ""."""
    if stats.numeric or stats.writes or stats.kind:
        return ""
    split = next(iter(stats.rows))
    counts = {name: found.get(split, 0) for name, found in stats.labels.items()}
    if not is_uneven(counts.values(), sum(counts.values())):
        return ""
    return (
        f"{describe_uneven(counts)}: recipes are ranked by {UNEVEN_METRIC} and the best "
        f"{BALANCED_RECIPES} are also trained with train.balance={WAY}. --metric accuracy ranks "
        "by accuracy."
    )


def add_balanced(
    scheduler: TrialScheduler, plan: Plan, names: Sequence[str], overwrite: bool
) -> dict[str, str]:
    """Train the best recipes with balanced classes; return the recipe behind each new name.

    The recipes are chosen by dev, so that the test metrics stay unbiased.
    """
    ranked = sorted(
        (name for name in names if scheduler.results.get(name)),
        key=scheduler.dev_score,
        reverse=True,
    )
    out = {f"{name}+{WAY}": name for name in ranked[:BALANCED_RECIPES]}
    for balanced, name in out.items():
        try:
            plan.add(balanced, plan.bases[name].with_values({"train.balance": WAY}, "compare"))
        except UserError as error:
            plan.errors[balanced] = str(error)
    trials = [trial for balanced in out for trial in plan.trials.get(balanced, ())]
    report = scheduler.on_progress
    scheduler.on_progress = lambda done, text: report(0, text)  # they were not in the total
    try:
        scheduler.run(trials, load_finished(trials, overwrite))
    finally:
        scheduler.on_progress = report
    return out
