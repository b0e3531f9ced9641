"""Compare recipes on one dataset: several seeds, one leaderboard, one report.

OUT/trials/RECIPE-SEED[-foldN]/  leaderboard.json  report.html  model/  split.npz  [test.*]
"""

import dataclasses
import functools
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from weft import config as configuration
from weft import registry
from weft.compare.budget import Clock
from weft.compare.dataset_stats import DatasetStats, build_gold, compute_stats, has_numeric_labels
from weft.compare.detect_task import (
    choose_task,
    describe_alternatives,
    detect_parallel_tasks,
    detect_tasks,
)
from weft.compare.leaderboard import Row, print_table, recommend
from weft.compare.plan import (
    Plan,
    build_command,
    checkpoint_kind,
    uses_checkpoint,
    with_checkpoint,
)
from weft.compare.ranking import rank
from weft.compare.scheduler import TrialScheduler, build_worker_pool, show_progress
from weft.compare.trial import RESULT, Result, SplitSpec, Trial
from weft.compare.write_test_split import write_test_split
from weft.config import Config, Sections, Settings
from weft.errors import UserError, unknown_name
from weft.report.analysis.disagreements import find_disagreements
from weft.report.analysis.generation_samples import collect_samples
from weft.report.analysis.model_analysis import analyse_model
from weft.report.pages.compare import ComparisonPage, render
from weft.run.data import Data, choose_columns, example_source, read_mode, validate
from weft.run.split import Splits, choose_holdout
from weft.run.target_tokenizer import learn_space
from weft.run.text_scores import TEXT_TASKS
from weft.run.train import infer_task_settings, resolve_config
from weft.storage import copy_folder, lock_folder, write_text
from weft.tasks.task import build_task
from weft.text.example import SkipCounter
from weft.text.formats.parallel import resolve_files
from weft.text.read import GUESSED_HEADER
from weft.train.gradients.verdict import GradientHealth

if TYPE_CHECKING:
    from weft.doctor import Diagnosis

__all__ = ["Row", "compare", "default_output", "print_summary", "print_table"]

P = ParamSpec("P")


def _one_at_a_time(run: Callable[P, list[Row]]) -> Callable[P, list[Row]]:
    """Allow one comparison at a time per folder."""

    @functools.wraps(run)
    def compare(*args: P.args, **options: P.kwargs) -> list[Row]:
        arguments = inspect.signature(run).bind(*args, **options).arguments
        files = arguments["files"]
        if isinstance(files, str) or not files:
            return run(*args, **options)  # which raises the error
        with lock_folder(
            Path(arguments.get("output") or default_output(files[0])), "comparing"
        ) as note:
            if note:
                print(f"note: {note}", file=sys.stderr, flush=True)
            return run(*args, **options)

    return compare


@registry.check_types
@registry.with_trust(lambda files: lambda name: "")
@_one_at_a_time
def compare(
    files: str | Sequence[str],
    output: str | Path = "",
    *,
    dev: str = "",
    task: str = "",
    recipes: Sequence[str] | None = None,
    pretrained: str = "",
    metric: str = "",
    seeds: int = 0,
    folds: int = 0,
    minutes: float = 30.0,
    workers: int = 0,
    changes: Sections = {},  # noqa: B006 (only read)
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    trust: Sequence[str] = (),
) -> list[Row]:
    """Train every recipe with every seed, and write leaderboard.json, report.html and model/.

    Trials run in separate processes. Finished trials are not repeated; a recipe that fails
    becomes a row with its error. `minutes` limits the whole comparison (see `budget`): recipes
    that do not fit are listed at the end as "not enough time". With `pretrained`, recipes that
    start from a checkpoint of that kind are compared too. Parts from outside Weft are imported
    only from packages in `trust`. `metric`, such as `macro_f1`, ranks the recipes and controls
    early stopping; the default is the task's main metric.
    """
    clock = Clock(minutes)
    files = [files] if isinstance(files, str) else list(files)
    seeds = seeds or (1 if folds else 3)
    _check_options(files, dev, seeds, folds, minutes)
    paths = dict(zip(("data.train", "data.test"), files, strict=False)) | {"data.dev": dev}
    settings = {key: value for key, value in paths.items() if value} | dict(changes)
    if metric:
        settings["train.metric"] = metric
    if task:
        settings["task.kind"] = task
    data = _data(settings)
    names, hint = _choose_recipes(data, settings, recipes or (), pretrained)
    data, lines = choose_columns(data, _task_section(names[0], settings))
    settings |= _column_settings(data)
    hint = "\n".join(filter(None, (*lines, hint)))
    bases = {name: with_checkpoint(name, pretrained) for name in names}
    output = _make_folder(Path(output or default_output(files[0])))
    if hint and not quiet:
        print(hint, file=sys.stderr, flush=True)
    settings |= _infer_task(data, settings, bases[names[0]])
    dataset = _prepare_data(data, settings, folds, output, bases[names[0]], hint)
    if wanted := settings.get("train.metric"):
        _check_metric(
            wanted, bases[names[0]].with_values(_task_settings(settings), "compare"), dataset
        )
    pool = build_worker_pool(device, workers, settings.get("train.threads", 0))
    settings["train.threads"] = pool.threads
    plan = Plan(
        bases, settings, dataset.split_spec, seeds, output / "trials", dataset.data, pretrained
    )
    cached = _load_finished(plan, overwrite)
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
    }
    with show_progress(len(trials), quiet) as on_progress:
        scheduler = TrialScheduler(pool, clock, on_progress)
        scheduler.run(trials, cached)
        rows, finished = rank(scheduler, plan, names, pool.devices[0], dataset.stats)
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
    return rows


def default_output(path: str) -> Path:
    """Return the default output folder for a training file."""
    return Path("runs") / f"{Path(resolve_files(path)[0]).name.split('.')[0] or 'data'}-compared"


def print_summary(rows: Sequence[Row], output: Path) -> None:
    """Print the table and the paths of the model and the report."""
    print_table(rows)
    print(f"model:  {output / 'model'}")
    print(f"report: {output / 'report.html'}")


@dataclass(frozen=True)
class ComparisonData:
    """The data of a comparison: splits and statistics."""

    data: Data
    split_spec: SplitSpec
    splits: Splits  # of the first fold, with folds
    stats: DatasetStats


def _trust_flags() -> list[str]:
    """Return the --trust options for the trusted packages."""
    return [word for package in registry.trusted_packages() for word in ("--trust", package)]


def _task_settings(settings: Sections) -> Settings:
    return {key: value for key, value in settings.items() if key.startswith("task.")}


def _check_metric(metric: str, config: Config, dataset: ComparisonData) -> None:
    """Raise UserError for a metric that the task lacks, before anything is trained."""
    sections = resolve_config(config)
    sections["task"] |= infer_task_settings(config, dataset.splits.train)
    task = build_task(sections)
    metrics = task.build_metric(learn_space(task, dataset.splits.train)).compute(resamples=0)
    if metric not in metrics:
        raise unknown_name("metric", metric, metrics, "--metric")


def _data(settings: Sections) -> Data:
    section = {key[5:]: value for key, value in settings.items() if key.startswith("data.")}
    return validate(Data(**registry.check(Data, section, "[data]")))


def _choose_recipes(
    data: Data, settings: Sections, named: Sequence[str], pretrained: str
) -> tuple[list[str], str]:
    """Return the recipes to compare, and a hint about the detected task and its alternatives."""
    tasks = (*_detect_tasks(data), *(("nodes",) if data.parser else ()))
    requested = settings.get("task.kind", "")
    kind = choose_task(requested, named, tasks, data.train)
    start = checkpoint_kind(pretrained) if pretrained else ""
    available = configuration.recipes(kind, start) if start else configuration.recipes(kind)
    names = list(dict.fromkeys(named or filter(_is_comparable, available)))
    if not names:
        raise UserError(f"No recipe for the task '{kind}'. Name some with --recipes.")
    if pretrained and not any(map(uses_checkpoint, names)):
        raise UserError(
            f"--pretrained {pretrained}: no recipe starts from a checkpoint of kind '{start}': "
            f"{', '.join(names)}. Omit it, or name other recipes with --recipes."
        )
    hints = (
        _header_note(data),
        "" if requested or named else describe_alternatives(kind, tasks),
        _pseudo_perplexity_note(names),
    )
    return names, " ".join(filter(None, hints))


def _task_section(recipe: str, settings: Sections) -> Settings:
    """Return the [task] section of a recipe with these settings."""
    task = {"kind": "classify", **configuration.recipe(recipe)["task"]}
    return task | {key[5:]: value for key, value in settings.items() if key.startswith("task.")}


def _column_settings(data: Data) -> dict[str, str | int]:
    """Return the columns as settings, so that every trial reads the same ones."""
    chosen = {f"data.{key}": getattr(data, key) for key in ("text", "text_pair", "label", "second")}
    return {key: value for key, value in chosen.items() if value != ""}


def _infer_task(data: Data, settings: Sections, base: Config) -> dict[str, str]:
    """Return the kind of task as a setting, if numeric labels make it regression."""
    kind = settings.get("task.kind", base["task"].get("kind", ""))
    numeric = {"": "regress", "pair-classify": "pair-score"}.get(kind)
    if numeric and has_numeric_labels(example_source(data, data.train)()):
        return {"task.kind": numeric}
    return {}


def _pseudo_perplexity_note(names: Sequence[str]) -> str:
    """Return a warning if pseudo-perplexities would be ranked with perplexities, else ""."""
    kinds = {name: configuration.recipe(name)["decoder"].get("kind") for name in names}
    bidirectional = [name for name, kind in kinds.items() if kind == "bidirectional-lm"]
    if not bidirectional or len(bidirectional) == len(names):
        return ""
    return (
        f"{', '.join(bidirectional)}: bidirectional, so its metric is a pseudo-perplexity, which "
        "cannot be compared with the perplexities of the others."
    )


def _detect_tasks(data: Data) -> tuple[str, ...]:
    files = resolve_files(data.train, data.target)
    if len(files) > 1 and not data.target:
        return detect_parallel_tasks(files)
    return ("seq2seq",) if len(files) > 1 else detect_tasks(example_source(data, data.train)())


def _header_note(data: Data) -> str:
    """Return a note if the first line of the training file was read as a header, else ""."""
    tally = SkipCounter()
    next(example_source(data, data.train, tally)(), None)
    return (
        f"{data.train}:1: the first line is read as a header."
        if GUESSED_HEADER in tally.counts
        else ""
    )


def _is_comparable(name: str) -> bool:
    """Return True if a recipe is compared by default: it reads texts, and only left to right.

    Bidirectional language models have a pseudo-perplexity, lower than any perplexity.
    """
    parts = configuration.recipe(name)
    tables = [parts[s] for s in ("embedder", "decoder") if s in parts]
    listed = [one for table in tables for one in (table if isinstance(table, list) else [table])]
    return not {"vectors", "bidirectional-lm"} & {one.get("kind") for one in listed}


def _prepare_data(
    data: Data, settings: Sections, folds: int, output: Path, base: Config, hint: str
) -> ComparisonData:
    """Split the data and compute its statistics."""
    kind = settings.get("task.kind", base["task"].get("kind", ""))
    writes = kind if kind in TEXT_TASKS else ""
    config = base.with_values(_task_settings(settings), "compare")
    manner = read_mode({"kind": "classify", **config["task"]})
    if folds and manner != "labelled":
        raise UserError("Running text cannot be split into folds. Give a test file instead.")
    numbers = settings.get("task.kind") in ("regress", "pair-score")
    spec = SplitSpec(str(output / "split.npz"), folds, numbers, manner)
    note = ""
    if not folds and manner == "labelled":
        held_out = choose_holdout(data, spec.numbers, bool(writes))
        held_out.save(Path(spec.holdout))
        note = held_out.note
    splits = spec.splits(data, 1 if folds else None)
    stats = compute_stats(data, splits, folds, spec.numbers, build_gold(config, data), writes)
    stats = dataclasses.replace(stats, notes=(*filter(None, [hint, note]), *stats.notes))
    if splits.test is not None and stats.rows.get("test") == 0:
        raise UserError(
            f"{data.train}: too few rows for a test split. Give a test file, or use --folds."
        )
    return ComparisonData(data, spec, splits, stats)


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


def _load_finished(plan: Plan, overwrite: bool) -> dict[Path, Result]:
    """Return cached results; errors in them are raised before training starts."""
    out = {}
    for trial in (trial for each in plan.trials.values() for trial in each):
        if overwrite:
            (trial.folder / RESULT).unlink(missing_ok=True)
        elif result := trial.load_result():
            out[trial.folder] = result
    return out


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
        print(f"checking {rows:,} rows", file=sys.stderr, flush=True)
    present = {name: examples for name, examples in sources.items() if examples}
    pairs = dataset.stats.writes == "seq2seq"
    diagnosis = examine(present, dict(dataset.stats.files), pairs=pairs)
    if not quiet:
        for finding in diagnosis.findings:
            if finding.level != "note":
                print(f"{finding.level}: {finding.title}", file=sys.stderr, flush=True)
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


def _make_folder(output: Path) -> Path:
    try:
        (output / "trials").mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{output} is a file; -o must be a folder.") from None
    except OSError as error:
        raise UserError(f"Cannot write to {output}: {error.strerror or error}.") from None
    return output


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
