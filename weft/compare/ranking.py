"""The rows of a comparison: which trainings count, how fast the models are, how sure the order is.

Trainings that the time limit cut too short are left out of every figure; a recipe that has no other
gets a row below the ranked ones that says so.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.compare.budget import START_UP
from weft.compare.dataset_stats import Facts
from weft.compare.format import duration
from weft.compare.leaderboard import CLASSES, Row, ordered, row
from weft.compare.plan import Plan
from weft.compare.scheduler import Race, timing
from weft.compare.significance import chances, pooled
from weft.compare.trial import Result, Timing, Trial
from weft.errors import UserError
from weft.metrics.classify import UNSEEN, ClassificationMetric

Pairs = list[tuple[Trial, Result]]


def rank(
    race: Race, plan: Plan, names: Sequence[str], device: str, facts: Facts
) -> tuple[list[Row], Pairs]:
    """Return every recipe as a row, best first, and the trials that the rows rest on."""
    counted = {name: _counted(race.results.get(name, []), plan.cut.folds) for name in names}
    rows = []
    for name in names:
        error = plan.errors.get(name) or race.errors.get(name)
        if error:
            rows.append(Row(name, error=error))
        elif not counted[name]:
            rows.append(Row(name, short=_shortage(race, name)))
        else:
            rows.append(_row(name, counted[name], plan))
    rows = _timed(ordered(rows), counted, race, plan, device)
    able = [r.recipe for r in rows if r.status == "ranked"]
    if len(able) > 1:
        trials = {name: [trial for trial, _ in counted[name]] for name in able}
        found = chances(trials, able[0], rows[0].metric)
        rows = [dataclasses.replace(r, p=found.get(r.recipe)) for r in rows]
    if able and (baseline := majority(facts, counted[able[0]], rows[0].metric)):
        rows = ordered([*rows, baseline])
    return rows, [pair for name in names if name in able for pair in counted[name]]


def majority(facts: Facts, pairs: Pairs, metric: str) -> Row | None:
    """Return the row of the most frequent training label as the answer to every test text.

    None where answers are not one label a text.
    """
    seed = pairs[0][0].seed
    answers = [a for trial, _ in pairs if trial.seed == seed for a in trial.answers()]
    gold = [answer.get("label") for answer in answers]
    if facts.numeric or facts.writes or facts.kind or not all(isinstance(g, str) for g in gold):
        return None
    split = next(iter(facts.rows))
    known = {label: counts.get(split, 0) for label, counts in facts.labels.items()}
    places = {label: i for i, label in enumerate(known)}
    most = max(known, key=known.__getitem__)
    measure = ClassificationMetric(len(places))
    true = np.array([places.get(str(g), UNSEEN) for g in gold])
    measure.add(np.full(len(gold), places[most]), true)
    figures = measure.compute()
    if metric not in figures:
        return None
    main = figures[metric]
    others = {name: figures[name].value for name in CLASSES if name in figures and name != metric}
    return Row(
        "majority", metric, main.value, None, main.low, main.high, (main.value,), others=others,
        baseline=True,
    )  # fmt: skip


def _counted(pairs: Pairs, folds: int) -> Pairs:
    """Leave out a seed that lacks some of its folds: other folds are other test texts."""
    if not folds:
        return pairs
    whole = Counter(trial.seed for trial, _ in pairs)
    return [pair for pair in pairs if whole[pair[0].seed] == folds]


def _row(name: str, pairs: Pairs, plan: Plan, timed: Timing | None = None) -> Row:
    seeds = [f"{t.seed}{f' fold {t.fold}' if t.fold else ''}" for t, _ in pairs]
    late = len(plan.trials[name]) - len(pairs)
    found = row(name, [result for _, result in pairs], timed, plan.cut.folds, late, seeds)
    if found.folds and found.pooled is None:
        whole = pooled([trial for trial, _ in pairs], found.metric)
        found = dataclasses.replace(found, pooled=whole)
    return found


def _timed(
    rows: list[Row], counted: dict[str, Pairs], race: Race, plan: Plan, device: str
) -> list[Row]:
    """Time the models, the best recipe first; what there is no time for stays without figures."""
    able = [r.recipe for r in rows if r.status == "ranked"]
    clock, out, took = race.clock, [], START_UP / 2
    for found in rows:
        if found.recipe not in able:
            out.append(found)
            continue
        place = able.index(found.recipe)
        limit = clock.left - clock.report
        trial = counted[found.recipe][0][0]
        timed, error = trial.timing(), ""
        if timed is None and limit > took:
            race.say(0, f"timing {found.recipe} ({place + 1} of {len(able)})")
            began = clock.now()
            try:
                seconds = clock.latency(len(able))
                timed = timing(trial, device, seconds, limit if clock.minutes else None)
            except UserError as problem:
                error = str(problem)
            took = clock.now() - began
        if error:
            out.append(Row(found.recipe, error=error))
        else:
            out.append(_row(found.recipe, counted[found.recipe], plan, timed))
    return ordered(out)


def _shortage(race: Race, name: str) -> str:
    """Say how far a recipe came that had not enough time, and how much it needs."""
    done = [result.completed for _, result in race.short.get(name, [])]
    told = f"stopped after {max(done):.0%} of its epochs" if done else "no training could end"
    needs = race.took.get(name) or race.needs.get(name)
    return f"{told}; one takes about {duration(needs)}" if needs else told
