"""Ensembles of a comparison: the seeds of the best recipe, and one run of each of the best recipes.

Recipes and runs are chosen by dev, so that the test metrics stay unbiased.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from weft.compare.plan import Plan
from weft.compare.scheduler import TrialScheduler, join_models
from weft.compare.trial import Result, Trial
from weft.errors import UserError

TOP_RECIPES = 3  # joined into one ensemble
TrialResults = Sequence[tuple[Trial, Result]]


def add_ensembles(
    scheduler: TrialScheduler, plan: Plan, names: Sequence[str], device: str
) -> list[str]:
    """Evaluate the ensembles of a comparison as further trials; return their names.

    They appear in the results of the scheduler and in the plan, as if they were recipes.
    """
    out = []
    for name, groups in _choose_ensembles(scheduler, names).items():
        trials = [_ensemble_trial(name, group, plan) for group in groups]
        plan.trials[name] = trials
        out.append(name)
        for trial, group in zip(trials, groups, strict=True):
            scheduler.on_progress(0, f"joining {trial.name}")
            limit = scheduler.seconds_left if scheduler.clock.minutes else None
            try:
                result = join_models(trial, group, device, limit)
            except UserError as error:
                plan.errors[name] = str(error)
                break
            if result is not None:
                scheduler.results.setdefault(name, []).append((trial, result))
    return out


def _choose_ensembles(
    scheduler: TrialScheduler, names: Sequence[str]
) -> dict[str, list[list[Trial]]]:
    """Return the ensembles by name: the members of each, fold by fold."""
    ranked = sorted(
        (name for name in names if scheduler.results.get(name)),
        key=scheduler.dev_score,
        reverse=True,
    )
    out: dict[str, list[list[Trial]]] = {}
    best = next((name for name in ranked if len(_by_fold(scheduler.results[name])[0]) > 1), None)
    if best is not None:
        groups = [[trial for trial, _ in pairs] for pairs in _by_fold(scheduler.results[best])]
        out[f"ensemble of {len(groups[0])} {best}"] = groups
    top = ranked[:TOP_RECIPES]
    if len(top) > 1:
        folds = zip(*(_by_fold(scheduler.results[name]) for name in top), strict=False)
        groups = [[_best_on_dev(pairs) for pairs in fold] for fold in folds]
        out[f"ensemble of {', '.join(top)}"] = groups
    return out


def _by_fold(pairs: TrialResults) -> list[list[tuple[Trial, Result]]]:
    """Return the trials of each fold; all together without folds."""
    folds: dict[int, list[tuple[Trial, Result]]] = {}
    for trial, result in pairs:
        folds.setdefault(trial.fold or 0, []).append((trial, result))
    return [folds[fold] for fold in sorted(folds)]


def _best_on_dev(pairs: TrialResults) -> Trial:
    sign = 1 if pairs[0][1].higher_is_better else -1
    return max(pairs, key=lambda pair: (sign * (pair[1].dev or 0.0), -pair[0].seed))[0]


def _ensemble_trial(name: str, members: Sequence[Trial], plan: Plan) -> Trial:
    """Return the trial that evaluates an ensemble, on the data of its first member."""
    first = members[0]
    digest = hashlib.sha256("".join(member.digest for member in members).encode()).hexdigest()
    where = "" if first.fold is None else f"-fold{first.fold}"
    folder = plan.folder / (name.replace(", ", "-").replace(" ", "-") + where)
    return replace(first, recipe=name, folder=folder, digest=digest)
