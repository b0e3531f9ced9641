"""The rows of the leaderboard: which runs count, latency, and significance of the ranking.

Runs that the time limit cut too short are left out of every metric; a recipe without other runs
gets an unranked row with the reason.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compare.budget import START_UP_SECONDS
from weft.compare.dataset_stats import DatasetStats
from weft.compare.format import format_duration
from weft.compare.gain import paired_gain
from weft.compare.leaderboard import CLASS_METRICS, Row, sort_rows, summarise_trials
from weft.compare.plan import Plan
from weft.compare.scheduler import TrialScheduler, time_model
from weft.compare.significance import p_values, pooled_metric
from weft.compare.trial import Result, Timing, Trial
from weft.errors import UserError
from weft.metrics.classify import UNSEEN, ClassificationMetric

TrialResults = list[tuple[Trial, Result]]


def rank(
    scheduler: TrialScheduler,
    plan: Plan,
    names: Sequence[str],
    device: str,
    stats: DatasetStats,
    ensembles: Sequence[str] = (),
    balanced: Mapping[str, str] = {},
) -> tuple[list[Row], TrialResults]:
    """Return one row per recipe, best first, and the trials behind the rows.

    Of `names`, the `ensembles` get their gain over the best recipe, those with `balanced` classes
    over the recipe without.
    """
    by_recipe = {
        name: _drop_incomplete_seeds(scheduler.results.get(name, []), plan.split_spec.folds)
        for name in names
    }
    rows = []
    for name in names:
        error = plan.errors.get(name) or scheduler.errors.get(name)
        if error:
            rows.append(Row(name, error=error))
        elif not by_recipe[name]:
            rows.append(Row(name, short=_describe_shortage(scheduler, name)))
        else:
            rows.append(_build_row(name, by_recipe[name], plan))
    rows = _time_models(sort_rows(rows), by_recipe, scheduler, plan, device)
    ranked = [r.recipe for r in rows if r.status == "ranked"]
    if len(ranked) > 1:
        trials = {name: [trial for trial, _ in by_recipe[name]] for name in ranked}
        p_by_recipe = p_values(trials, ranked[0], rows[0].metric)
        rows = [dataclasses.replace(r, p=p_by_recipe.get(r.recipe)) for r in rows]
    rows = _with_gains(rows, ensembles, balanced, by_recipe)
    if ranked and (baseline := build_majority_row(stats, by_recipe[ranked[0]], rows[0].metric)):
        rows = sort_rows([*rows, baseline])
    return rows, [pair for name in names if name in ranked for pair in by_recipe[name]]


def _with_gains(
    rows: list[Row],
    ensembles: Sequence[str],
    balanced: Mapping[str, str],
    by_recipe: dict[str, TrialResults],
) -> list[Row]:
    """Add the gain of each ensemble over the best recipe that is none, and that of balancing."""
    ranked = [row.recipe for row in rows if row.status == "ranked"]
    single = next((name for name in ranked if name not in ensembles), None)
    over = dict.fromkeys(ensembles, single) | dict(balanced)
    out = []
    for row in rows:
        other = over.get(row.recipe)
        if other in ranked and row.recipe in ranked and row.quality is not None:
            ours, theirs = ([trial for trial, _ in by_recipe[name]] for name in (row.recipe, other))
            gain = paired_gain(ours, theirs, row.metric, row.quality)
            if gain is not None:
                row = dataclasses.replace(
                    row, gain=gain.value, gain_low=gain.low, gain_high=gain.high, gain_over=other
                )
        out.append(row)
    return out


def build_majority_row(stats: DatasetStats, pairs: TrialResults, metric: str) -> Row | None:
    """Return the baseline row that predicts the majority training label for every test text.

    None unless the task predicts one label per text.
    """
    seed = pairs[0][0].seed
    predictions = [a for trial, _ in pairs if trial.seed == seed for a in trial.read_predictions()]
    gold = [answer.get("label") for answer in predictions]
    if stats.numeric or stats.writes or stats.kind or not all(isinstance(g, str) for g in gold):
        return None
    split = next(iter(stats.rows))
    counts = {label: counts.get(split, 0) for label, counts in stats.labels.items()}
    label_ids = {label: i for i, label in enumerate(counts)}
    majority = max(counts, key=counts.__getitem__)
    metrics = ClassificationMetric(len(label_ids))
    true = np.array([label_ids.get(str(g), UNSEEN) for g in gold])
    metrics.add(np.full(len(gold), label_ids[majority]), true)
    values = metrics.compute()
    if metric not in values:
        return None
    main = values[metric]
    others = {
        name: values[name].value for name in CLASS_METRICS if name in values and name != metric
    }
    return Row(
        "majority", metric, main.value, None, main.low, main.high, (main.value,), others=others,
        baseline=True,
    )  # fmt: skip


def _drop_incomplete_seeds(pairs: TrialResults, folds: int) -> TrialResults:
    """Drop seeds with missing folds: different folds have different test texts."""
    if not folds:
        return pairs
    whole = Counter(trial.seed for trial, _ in pairs)
    return [pair for pair in pairs if whole[pair[0].seed] == folds]


def _build_row(name: str, pairs: TrialResults, plan: Plan, timing: Timing | None = None) -> Row:
    seeds = [f"{t.seed}{f' fold {t.fold}' if t.fold else ''}" for t, _ in pairs]
    late = len(plan.trials[name]) - len(pairs)
    row = summarise_trials(
        name, [result for _, result in pairs], timing, plan.split_spec.folds, late, seeds
    )
    if row.folds and row.pooled is None:
        whole = pooled_metric([trial for trial, _ in pairs], row.metric)
        row = dataclasses.replace(row, pooled=whole)
    return row


def _time_models(
    rows: list[Row],
    by_recipe: dict[str, TrialResults],
    scheduler: TrialScheduler,
    plan: Plan,
    device: str,
) -> list[Row]:
    """Time the models, best recipe first; models there is no time for keep empty latencies."""
    ranked = [r.recipe for r in rows if r.status == "ranked"]
    clock, out, last_seconds = scheduler.clock, [], START_UP_SECONDS / 2
    for row in rows:
        if row.recipe not in ranked:
            out.append(row)
            continue
        position = ranked.index(row.recipe)
        limit = clock.left - clock.report
        trial = by_recipe[row.recipe][0][0]
        timing, error = trial.load_timing(), ""
        if timing is None and limit > last_seconds:
            scheduler.on_progress(0, f"timing {row.recipe} ({position + 1} of {len(ranked)})")
            began = clock.now()
            try:
                seconds = clock.latency(len(ranked))
                timing = time_model(trial, device, seconds, limit if clock.minutes else None)
            except UserError as problem:
                error = str(problem)
            last_seconds = clock.now() - began
        if error:
            out.append(Row(row.recipe, error=error))
        else:
            out.append(_build_row(row.recipe, by_recipe[row.recipe], plan, timing))
    return sort_rows(out)


def _describe_shortage(scheduler: TrialScheduler, name: str) -> str:
    """Describe how far a recipe got in the time limit, and how much time it needs."""
    completed = [result.completed for _, result in scheduler.shortened.get(name, [])]
    progress = (
        f"stopped after {max(completed):.0%} of its epochs" if completed else "no run finished"
    )
    seconds = scheduler.longest_seconds.get(name) or scheduler.estimated_seconds.get(name)
    return f"{progress}; one run takes about {format_duration(seconds)}" if seconds else progress
