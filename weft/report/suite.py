"""Train one system, or a system and a baseline, on every task of a suite; one table and average.

OUT/trials/TASK/SYSTEM/RECIPE-SEED/  suite.json  report.html
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from weft import registry
from weft.compare.budget import Clock
from weft.compare.detect_task import PAIR_TASKS
from weft.compare.plan import Plan
from weft.compare.prepare import (
    column_settings,
    find_tasks,
    infer_task,
    load_finished,
    make_folder,
    parse_data,
    prepare_data,
    task_section,
)
from weft.compare.scheduler import TrialScheduler, build_worker_pool, show_progress
from weft.compare.suite import (
    Score,
    SuiteTask,
    System,
    average_scores,
    build_systems,
    read_suite,
    reduce_error,
    score_task,
    task_settings,
    to_json,
)
from weft.compare.trial import Result, Trial
from weft.config import Sections, Settings
from weft.errors import UserError
from weft.report.pages.suite import SuitePage, build_command, render
from weft.run.data import choose_columns
from weft.storage import lock_folder, write_text
from weft.terminal import Terminal

# Tasks of numbers share the recipes of the classifying ones.
RECIPE_KINDS = {"regress": "classify", "pair-score": "pair-classify"}


@dataclass(frozen=True)
class SystemOnTask:
    """The trials of one system on one task."""

    system: System
    task: SuiteTask
    recipe: str
    plan: Plan

    @property
    def key(self) -> str:
        """The name under which the scheduler counts its trials."""
        return trial_group(self.task, self.system, self.recipe)


def trial_group(task: SuiteTask, system: System, recipe: str) -> str:
    """Return the name of the trials of a system on a task, which is also their folder."""
    return f"{task.name}/{system.name}/{recipe}"


@registry.check_types
@registry.with_trust(lambda folder: lambda name: "")
def suite(
    folder: str | Path,
    output: str | Path = "",
    *,
    recipes: Sequence[str] = (),
    baseline: Sequence[str] = (),
    pretrained: str = "",
    seeds: int = 3,
    minutes: float = 0.0,
    workers: int = 0,
    changes: Sections = {},  # noqa: B006 (only read)
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    trust: Sequence[str] = (),
) -> SuitePage:
    """Train the first fitting recipe on every task with every seed; write suite.json, report.html.

    Finished trials are not repeated. `baseline` names the recipes of a second system, which the
    table compares with. A task that fails is a row with its error; the average then is missing.
    """
    clock = Clock(minutes)
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}.")
    tasks = read_suite(Path(folder))
    systems = build_systems(recipes, baseline, pretrained)
    output = make_folder(Path(output or Path("runs") / f"{Path(folder).name}-suite"))
    pool = build_worker_pool(device, workers, 0)
    with lock_folder(output, "running a suite") as note:
        if note:
            print(f"note: {note}", file=sys.stderr, flush=True)
        fixed = dict(changes) | {"train.threads": pool.threads}
        jobs = [job for task in tasks for job in _prepare(task, systems, fixed, seeds, output)]
        cached: dict[Path, Result] = {}
        for job in jobs:
            cached |= load_finished(job.plan.all_trials(), overwrite)
        trials = _interleave(jobs)
        with show_progress(len(trials), quiet) as on_progress:
            scheduler = TrialScheduler(pool, clock, on_progress)
            scheduler.run(trials, cached)
        scores = {
            system.name: [_score(job, scheduler) for job in jobs if job.system is system]
            for system in systems
        }
        options = {"--recipes": recipes, "--baseline": baseline, "--pretrained": pretrained}
        command = build_command(folder, output, {**options, "--seeds": seeds}, changes)
        page = SuitePage(systems, scores, command, seeds, output)
        write_text(output / "suite.json", json.dumps(to_json(systems, scores), indent=1) + "\n")
        write_text(output / "report.html", render(page))
    return page


def _prepare(
    task: SuiteTask, systems: Sequence[System], changes: Settings, seeds: int, output: Path
) -> list[SystemOnTask]:
    """Choose columns and recipes, split the data once for all systems, and plan the trials."""
    settings = task_settings(task) | changes
    data = parse_data(settings)
    requested: str = settings.get("task.kind", "")
    kinds = [
        RECIPE_KINDS.get(kind, kind) for kind in ([requested] if requested else find_tasks(data))
    ]
    kinds.sort(key=lambda kind: kind not in PAIR_TASKS)  # rows of two texts are pairs first
    chosen = [system.choose_recipe(task.name, kinds) for system in systems]
    data, _ = choose_columns(data, task_section(chosen[0], settings))
    settings |= column_settings(data)
    bases = [system.configure(name) for system, name in zip(systems, chosen, strict=True)]
    settings |= infer_task(data, settings, bases[0])
    folder = output / "trials" / task.name
    folder.mkdir(parents=True, exist_ok=True)
    spec = prepare_data(data, settings, 0, folder, bases[0], "").split_spec
    jobs = []
    for system, name, base in zip(systems, chosen, bases, strict=True):
        key = trial_group(task, system, name)
        plan = Plan({key: base}, settings, spec, seeds, output / "trials", data, system.pretrained)
        if plan.errors:
            raise UserError(f"{task.name}, {name}: {plan.errors[key]}")
        jobs.append(SystemOnTask(system, task, name, plan))
    return jobs


def _interleave(jobs: Sequence[SystemOnTask]) -> list[Trial]:
    """Return the first trial of every job, then the second ones, and so on."""
    lists = [job.plan.trials[job.key] for job in jobs]
    longest = max((len(trials) for trials in lists), default=0)
    return [trials[k] for k in range(longest) for trials in lists if k < len(trials)]


def _score(job: SystemOnTask, scheduler: TrialScheduler) -> Score:
    results = [result for _, result in scheduler.results.get(job.key, ())]
    error = scheduler.errors.get(job.key, "")
    if not results and job.key in scheduler.shortened:
        error = "not enough time"
    return score_task(job.task, job.recipe, results, error)


def print_table(page: SuitePage) -> None:
    """Print one line per task and the average; with two systems, the gain."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task")
    table.add_column("metric")
    for system in page.systems:
        table.add_column(system.name, justify="right")
    if len(page.systems) == 2:
        table.add_column("gain", justify="right")
        table.add_column("error", justify="right")
    for row in zip(*(page.scores[system.name] for system in page.systems), strict=True):
        table.add_row(row[0].task, "+".join(row[-1].metrics), *(_cell(score) for score in row),
                      *_gain([score.mean for score in row]))  # fmt: skip
    averages = [average_scores(page.scores[system.name]) for system in page.systems]
    cells = [format_points(one.mean, one.deviation) for one in averages]
    table.add_row("average", "", *cells, *_gain([one.mean for one in averages]), style="bold")
    Terminal().print(table)
    for score in (score for scores in page.scores.values() for score in scores if score.error):
        print(f"{score.task}, {score.recipe}: {score.error}", file=sys.stderr)
    print(f"report: {page.output / 'report.html'}")


def _cell(score: Score) -> str:
    return "failed" if score.error else format_points(score.mean, score.deviation)


def format_points(mean: float | None, deviation: float | None) -> str:
    """Format a score from 0 to 100 with its deviation."""
    if mean is None:
        return "–"
    return f"{mean:.1f}" + (f" ± {deviation:.1f}" if deviation is not None else "")


def _gain(means: Sequence[float | None]) -> list[str]:
    if len(means) < 2:
        return []
    before, after = means
    if before is None or after is None:
        return ["–", "–"]
    return [f"{after - before:+.1f}", f"{-100 * reduce_error(before, after):+.0f} %"]
