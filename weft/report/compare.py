"""Compare recipes on one dataset: several seeds, one leaderboard, one report.

OUT/trials/RECIPE-SEED[-foldN]/  leaderboard.json  report.html  model/  split.npz  [test.*]
"""

import dataclasses
import functools
import inspect
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from weft import config as configuration
from weft import registry
from weft.compare.balancing import add_balanced, uneven_note
from weft.compare.budget import Clock
from weft.compare.ensembles import add_ensembles
from weft.compare.leaderboard import Leaderboard, Row, print_table, recommend, sort_rows
from weft.compare.plan import Plan, build_command, with_checkpoint
from weft.compare.prepare import (
    ComparisonData,
    check_metric,
    choose_recipes,
    column_settings,
    infer_task,
    load_finished,
    make_folder,
    parse_data,
    prepare_data,
    shared_data_settings,
    task_section,
    task_settings,
)
from weft.compare.ranking import rank
from weft.compare.scheduler import TrialScheduler, build_worker_pool, show_progress
from weft.compare.trial import RESULT, Result, Trial
from weft.compare.write_test_split import write_test_split
from weft.config import Sections
from weft.errors import UserError
from weft.jobs import open_place, parse_resources
from weft.predict.model_card import Comparison, write_card
from weft.progress import print_line
from weft.report.analysis.disagreements import find_disagreements
from weft.report.analysis.generation_samples import collect_samples
from weft.report.analysis.model_analysis import analyse_model
from weft.report.pages.compare import ComparisonPage, render
from weft.run.data import choose_columns, example_source
from weft.storage import copy_folder, lock_folder, write_text
from weft.text.formats.parallel import resolve_files
from weft.text.location import HUB_PREFIX, TableName, is_table
from weft.text.tables.spool import DATA_FOLDER, spool_table
from weft.text.tables.table import PathOrTable, list_sources, name_sources
from weft.train.class_balance import UNEVEN_METRIC
from weft.train.gradients.verdict import GradientHealth

if TYPE_CHECKING:
    from weft.doctor import Diagnosis

__all__ = ["Row", "compare", "default_output", "print_summary", "print_table"]

P = ParamSpec("P")


def _one_at_a_time(run: Callable[P, Leaderboard]) -> Callable[P, Leaderboard]:
    """Allow one comparison at a time per folder; store data from memory in it."""

    @functools.wraps(run)
    def compare(*args: P.args, **options: P.kwargs) -> Leaderboard:
        bound = inspect.signature(run).bind(*args, **options)
        arguments = bound.arguments
        files = name_sources(list_sources(arguments["files"]), ("train", "test"))
        if not files:
            return run(*args, **options)  # which raises the error
        folder = Path(arguments.get("output") or default_output(files[0]))
        with lock_folder(folder, "comparing") as note:
            if note:
                print_line(f"note: {note}")
            finished = next((folder / "trials").glob(f"*/{RESULT}"), None) is not None
            files += name_sources([arguments.get("dev", "")], ("dev",))
            *arguments["files"], arguments["dev"] = [
                spool_table(
                    file,
                    folder / DATA_FOLDER,
                    overwrite=arguments.get("overwrite", False) or not finished,
                )
                for file in files
            ]
            arguments["output"] = folder
            return run(*bound.args, **bound.kwargs)

    return compare


@registry.check_types
@registry.with_trust(lambda files: lambda name: "")
@_one_at_a_time
def compare(
    files: PathOrTable | Sequence[PathOrTable],
    output: str | Path = "",
    *,
    dev: PathOrTable = "",
    task: str = "",
    recipes: Sequence[str] | None = None,
    pretrained: str = "",
    metric: str = "",
    seeds: int = 0,
    folds: int = 0,
    minutes: float = 30.0,
    workers: int = 0,
    on: str = "",
    needs: str = "",
    ensemble: bool = False,
    changes: Sections = {},  # noqa: B006 (only read)
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    trust: Sequence[str] = (),
) -> Leaderboard:
    """Train every recipe with every seed, and write leaderboard.json, report.html and model/.

    Trials run in separate processes. Finished trials are not repeated; a recipe that fails
    becomes a row with its error. `minutes` limits the whole comparison (see `budget`): recipes
    that do not fit are listed at the end as "not enough time". With `pretrained`, recipes that
    start from a checkpoint of that kind are compared too. Parts from outside Weft are imported
    only from packages in `trust`. `metric`, such as `macro_f1`, ranks the recipes and controls
    early stopping; the default is the task's main metric. If classes are uneven, it is macro-F1,
    and the two best recipes are also trained with balanced classes. With `ensemble`, the seeds of
    the best recipe and the best recipes are also ranked as ensembles. `on="ray"` runs the trials
    on a Ray cluster, `on="ray:HOST:PORT"` on that one; each of them `needs` for example
    "cpus=2,gpus=0.5". All nodes must see the files and the output folder at the same path.
    """
    clock = Clock(minutes)
    files, dev = name_sources(list_sources(files), ("train", "test")), os.fspath(dev)
    seeds = seeds or (1 if folds else 3)
    _check_options(files, dev, seeds, folds, minutes)
    paths = dict(zip(("data.train", "data.test"), files, strict=False)) | {"data.dev": dev}
    settings = {key: value for key, value in paths.items() if value} | dict(changes)
    if metric:
        settings["train.metric"] = metric
    if task:
        settings["task.kind"] = task
    settings |= shared_data_settings(recipes or (), settings)
    with open_place(on) as where:
        data = parse_data(settings)
        names, hint = choose_recipes(data, settings, recipes or (), pretrained)
        data, lines = choose_columns(data, task_section(names[0], settings))
        settings |= column_settings(data)
        hint = "\n".join(filter(None, (*lines, hint)))
        bases = {name: with_checkpoint(name, pretrained) for name in names}
        output = make_folder(Path(output or default_output(files[0])))
        if hint and not quiet:
            print_line(hint)
        settings |= infer_task(data, settings, bases[names[0]])
        dataset = prepare_data(data, settings, folds, output, bases[names[0]], hint)
        uneven = "" if settings.get("train.balance") else uneven_note(dataset.stats)
        if uneven and not metric and "train.metric" not in settings:
            settings["train.metric"] = UNEVEN_METRIC
            notes = (*dataset.stats.notes, uneven)
            dataset = dataclasses.replace(
                dataset, stats=dataclasses.replace(dataset.stats, notes=notes)
            )
            if not quiet:
                print_line(f"note: {uneven}")
        if wanted := settings.get("train.metric"):
            check_metric(
                wanted, bases[names[0]].with_values(task_settings(settings), "compare"), dataset
            )
        threads = settings.get("train.threads", 0)
        pool = build_worker_pool(device, workers, threads, where, parse_resources(needs))
        settings["train.threads"] = pool.threads
        plan = Plan(
            bases, settings, dataset.split_spec, seeds, output / "trials", dataset.data, pretrained
        )
        cached = load_finished(plan.all_trials(), overwrite)
        diagnosis = _diagnose(dataset, quiet)
        trials = [trial for name in _cheapest_first(plan) for trial in plan.trials[name]]
        options = {
            "--dev": dev,
            "--task": task,
            "--recipes": ",".join(recipes or ()),
            "--pretrained": pretrained,
            "--metric": metric,
            "--seeds": seeds,
            "--folds": folds,
            "--minutes": f"{minutes:g}" if minutes else "",
            "--device": device if device != "auto" else "",
            "--on": on,
            "--needs": needs,
            "--ensemble": ensemble,
        }
        with show_progress(len(trials), quiet) as on_progress:
            scheduler = TrialScheduler(pool, clock, on_progress)
            scheduler.run(trials, cached)
            balanced = add_balanced(scheduler, plan, names, overwrite) if uneven else {}
            joined = add_ensembles(scheduler, plan, names, pool.devices[0]) if ensemble else []
            listed = [*names, *balanced, *joined]
            rows, finished = rank(
                scheduler, plan, listed, pool.devices[0], dataset.stats, joined, balanced
            )
            on_progress(0, "writing the report")
            page = ComparisonPage(
                rows=rows,
                finished=finished,
                stats=dataset.stats,
                command=build_command(files, output, options, changes) + _trust_flags(),
                seeds=seeds,
                output=output,
                diagnosis=diagnosis,
            )
            write_text(output / "leaderboard.json", _json([r.to_json() for r in rows]))
            page = _analyse_choice(page, dataset, pool.devices[0], clock.left)
            write_text(output / "report.html", render(page))
    if not any(r.status == "ranked" for r in rows):
        raise UserError(_no_result_message(rows, minutes))
    return Leaderboard(rows, output)


def default_output(path: str) -> Path:
    """Return the default output folder for a training file."""
    if isinstance(path, TableName):
        path = path.label
    path = path.removeprefix(HUB_PREFIX).partition(":")[0] if is_table(path) else path
    return Path("runs") / f"{Path(resolve_files(path)[0]).name.split('.')[0] or 'data'}-compared"


def print_summary(rows: Sequence[Row], output: Path) -> None:
    """Print the table and the paths of the model and the report."""
    print_table(rows)
    print(f"model:  {output / 'model'}")
    print(f"report: {output / 'report.html'}")


def _trust_flags() -> list[str]:
    """Return the --trust options for the trusted packages."""
    return [word for package in registry.trusted_packages() for word in ("--trust", package)]


def _no_result_message(rows: Sequence[Row], minutes: float) -> str:
    """Return the reason why no recipe can be recommended."""
    if short := [r for r in rows if r.status == "not enough time"]:
        reasons = "; ".join(f"{r.recipe}: {r.short}" for r in short[:3])
        return f"No recipe finished in {minutes:g} minutes. {reasons}. Increase --minutes."
    return f"No recipe could be trained. {'; '.join(f'{r.recipe}: {r.error}' for r in rows[:3])}"


def _cheapest_first(plan: Plan) -> list[str]:
    """Return the trainable recipes, cheapest first by their declared order."""

    def key(name: str) -> tuple[bool, int]:
        about = configuration.recipe(name)["recipe"]
        cheap = plan.trials[name][0].classic and not about.get("pretrained")
        return not cheap, about.get("order", 99)

    return sorted(plan.trials, key=key)


def _analyse_choice(
    page: ComparisonPage, dataset: ComparisonData, device: str, seconds: float
) -> ComparisonPage:
    """Save the recommended model, and analyse it for the report within `seconds`."""
    recommendation = recommend(page.rows)
    if recommendation is None:
        return page
    pairs = [pair for pair in page.finished if pair[0].recipe == recommendation.choice.recipe]
    sign = 1 if recommendation.best.higher_is_better else -1
    # By dev: choosing the seed by its test metric would bias that metric.
    trial, _ = max(pairs, key=lambda pair: (sign * (pair[1].dev or 0.0), -pair[0].seed))
    model = _copy_model(trial, page.output)
    write_card(model, _describe_place(page, recommendation.choice, device))
    test = dataset.data.test or _test_file(dataset, page.output)
    if trial.writes:
        order = [recommendation.choice.recipe, *(row.recipe for row in page.rows)]
        samples = collect_samples(page.finished, list(dict.fromkeys(order)))
        gradient_health = _gradient_health(page.finished)
        return dataclasses.replace(
            page, model=str(model), test=test, samples=samples, gradient_health=gradient_health
        )
    analysis = analyse_model(trial, device, seconds=seconds)
    return dataclasses.replace(
        page,
        model=str(model),
        test=test,
        analysis=analysis,
        gradient_health=_gradient_health(page.finished),
        disagreements=find_disagreements(
            page.finished, [one.label for one in analysis.predictions.classes]
        ),
    )


def _gradient_health(finished: Sequence[tuple[Trial, Result]]) -> dict[str, GradientHealth]:
    """Return the gradient health of each neural recipe at the end of its first run."""
    out: dict[str, GradientHealth] = {}
    for trial, _ in finished:
        path = trial.folder / "health.json"
        if trial.recipe not in out and path.is_file():
            out[trial.recipe] = GradientHealth.from_json(json.loads(path.read_text("utf-8")))
    return out


def _copy_model(trial: Trial, output: Path) -> Path:
    """Copy a trial's model to OUT/model atomically."""
    return copy_folder(trial.folder / "model", output / "model")


def _describe_place(page: ComparisonPage, choice: Row, device: str) -> Comparison:
    """Return what the card of the recommended model says of the comparison."""
    ranked = [row for row in sort_rows(page.rows) if row.status == "ranked"]
    assert choice.quality is not None
    return Comparison(
        place=ranked.index(choice) + 1,
        recipes=len(ranked),
        metric=choice.metric,
        quality=choice.quality,
        spread=choice.spread,
        trials=len(choice.values),
        command=page.command,
        p50_ms=choice.p50_ms,
        p95_ms=choice.p95_ms,
        texts_per_second=choice.texts_per_second,
        device=device,
    )


def _test_file(dataset: ComparisonData, output: Path) -> str:
    """Write the test split taken from train for later evaluation, and return its path."""
    if dataset.split_spec.folds or dataset.splits.test is None:
        return ""
    return write_test_split(dataset.data, dataset.splits.test, output)


def _diagnose(dataset: ComparisonData, quiet: bool) -> "Diagnosis":
    """Run the data check, and print its errors and warnings at once."""
    from weft.doctor import examine

    splits, rows = dataset.splits, sum(dataset.stats.rows.values())
    sources = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    if dataset.split_spec.folds:
        sources = {"all": example_source(dataset.data, dataset.data.train)}
    if not quiet:
        print_line(f"checking {rows:,} rows")
    present = {name: examples for name, examples in sources.items() if examples}
    pairs = dataset.stats.writes == "seq2seq"
    diagnosis = examine(present, dict(dataset.stats.files), pairs=pairs)
    if not quiet:
        for finding in diagnosis.findings:
            if finding.level != "note":
                print_line(f"{finding.level}: {finding.title}")
    return diagnosis


def _check_options(files: Sequence[str], dev: str, seeds: int, folds: int, minutes: float) -> None:
    if not 1 <= len(files) <= 2:
        raise UserError(f"Give a training file and optionally a test file; got {len(files)} files.")
    if "-" in (*files, dev):
        raise UserError("Standard input can be read only once; save it to a file first.")
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}.")
    if not minutes >= 0:
        raise UserError(f"--minutes must be 0 (no limit) or more, got {minutes:g}.")
    if folds and folds < 2:
        raise UserError(f"--folds must be at least 2 (or 0 for none), got {folds}.")
    if folds and len(files) > 1:
        raise UserError(
            "With --folds every part of the file is the test set once; omit "
            f"'{files[1]}' or --folds."
        )


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
