"""A suite of tasks: its tasks on disk, the systems to train on all of them, scores and averages.

A system is one recipe for each task; every task is trained with several seeds. Scores run from 0 to
100, and the average over tasks is GLUE's (Wang et al. 2019): the metrics of a task are averaged
first.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft import config as configuration
from weft.compare.format import ONE_DECIMAL_METRICS, is_percent
from weft.compare.plan import checkpoint_kind, uses_checkpoint
from weft.compare.trial import Result
from weft.config import Config, Settings
from weft.errors import UserError, unknown_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

SUITE_FILE = "suite.toml"
SPLITS = ("train", "dev", "test")
TASK_KEYS = ("name", *SPLITS, "metrics", "set")
CORRELATIONS = {"pearson", "spearman", "matthews"}
MAX_SUITE_BYTES = 1 << 20


@dataclass(frozen=True)
class SuiteTask:
    """A task of a suite: its files, and settings that all systems share."""

    name: str
    train: str
    dev: str = ""
    test: str = ""
    metrics: tuple[str, ...] = ()  # averaged; empty: the task's main metric
    settings: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class System:
    """A list of recipes, of which every task takes the first that fits it."""

    name: str
    recipes: tuple[str, ...]
    pretrained: str = ""

    def choose_recipe(self, task: str, kinds: Sequence[str]) -> str:
        """Return the recipe for a task that may be of several kinds; UserError if none fits."""
        for kind in kinds:
            for name in self.recipes:
                if configuration.recipe(name)["task"].get("kind", "classify") == kind:
                    return name
        start = checkpoint_kind(self.pretrained) if self.pretrained else False
        known = [name for kind in kinds for name in configuration.recipes(kind, start)]
        raise UserError(
            f"{task}: no recipe of '{self.name}' fits the task '{kinds[0]}'. Add one of "
            f"{', '.join(known) or 'another suite'} to --recipes or --baseline."
        )

    def configure(self, recipe: str) -> Config:
        """Return the configuration of a recipe, with the checkpoint where it starts from one."""
        base = configuration.recipe(recipe)
        if self.pretrained and uses_checkpoint(recipe):
            return configuration.with_pretrained(base, self.pretrained)
        return base


@dataclass(frozen=True)
class Score:
    """The scores of one system on one task, one for each seed, from 0 to 100."""

    task: str
    recipe: str
    metrics: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    seconds: float = 0.0  # of training, all seeds
    collapsed: int = 0  # runs that learned nothing; they count
    error: str = ""

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Average:
    """The average over tasks, and its standard deviation over restarts of the whole suite."""

    mean: float | None
    deviation: float | None


def read_suite(folder: Path) -> list[SuiteTask]:
    """Return the tasks of suite.toml, or one for each sub-folder with a train file."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder. Pass one with a sub-folder per task.")
    listed = folder / SUITE_FILE
    tasks = _read_list(listed) if listed.is_file() else _find_tasks(folder)
    if not tasks:
        raise UserError(
            f"{folder}: no tasks. Put each into a sub-folder with train.* and test.*, or list them "
            f"in {SUITE_FILE}."
        )
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{listed}: two tasks are called '{name}'. Rename one.")
    return tasks


def _find_tasks(folder: Path) -> list[SuiteTask]:
    tasks = []
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = {split: sorted(part.glob(f"{split}.*")) for split in SPLITS}
        for split, found in files.items():
            if len(found) > 1:
                raise UserError(
                    f"{part}: {len(found)} files for {split}: "
                    f"{', '.join(path.name for path in found)}. Keep one, or list the tasks in "
                    f"{folder / SUITE_FILE}."
                )
        if files["train"]:
            train, dev, test = (str(files[split][0]) if files[split] else "" for split in SPLITS)
            tasks.append(SuiteTask(part.name, train, dev, test))
    return tasks


def _read_list(path: Path) -> list[SuiteTask]:
    if path.stat().st_size > MAX_SUITE_BYTES:
        raise UserError(f"{path}: larger than {MAX_SUITE_BYTES:,} bytes, so not a list of tasks.")
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    rows = tables.get("task")
    if set(tables) != {"task"} or not isinstance(rows, list):
        raise UserError(f"{path}: only [[task]] tables belong here, found {sorted(tables)}.")
    return [_read_task(row, path, number) for number, row in enumerate(rows, 1)]


def _read_task(row: object, path: Path, number: int) -> SuiteTask:
    where = f"{path}: task {number}"
    if not isinstance(row, dict):
        raise UserError(f"{where} is not a table. Write [[task]].")
    for key in row:
        if key not in TASK_KEYS:
            raise unknown_name("key", key, TASK_KEYS, where)
    metrics, settings = row.get("metrics", []), row.get("set", {})
    texts = [row.get(key, "") for key in ("name", *SPLITS)]
    listed = isinstance(metrics, list) and all(isinstance(one, str) for one in metrics)
    if not all(isinstance(one, str) for one in texts) or not listed:
        raise UserError(f"{where}: name, train, dev and test are texts, metrics a list of texts.")
    if not isinstance(settings, dict):
        raise UserError(f'{where}: set is a table, such as {{ "data.label" = "fine" }}.')
    name = texts[0]
    if not name or not texts[1] or "/" in name or name.startswith("."):
        raise UserError(f"{where}: needs a name without '/' and a train file.")
    train, dev, test = (_beside(path, row.get(split, "")) for split in SPLITS)
    return SuiteTask(name, train, dev, test, tuple(metrics), tuple(settings.items()))


def _beside(path: Path, files: str) -> str:
    """Return one or more files, joined by commas, as seen from the folder of `path`."""
    return ",".join(str(path.parent / file) for file in files.split(",")) if files else ""


def task_settings(task: SuiteTask) -> Settings:
    """Return the files and settings of a task as settings by their dotted names."""
    files = {"data.train": task.train, "data.dev": task.dev, "data.test": task.test}
    return {key: path for key, path in files.items() if path} | dict(task.settings)


def build_systems(
    recipes: Sequence[str], baseline: Sequence[str], pretrained: str
) -> tuple[System, ...]:
    """Return the baseline, if any, and the system; without recipes, those of the checkpoint."""
    known = configuration.recipes(None)
    for name in (*recipes, *baseline):
        if name not in known:
            raise unknown_name("recipe", name, known)
    if not recipes and not pretrained:
        raise UserError("Name the recipes with --recipes, or a checkpoint with --pretrained.")
    if not recipes:
        start = checkpoint_kind(pretrained)
        # From deep to simple: fine-tuning before frozen features.
        recipes = [name for name in reversed(known) if _checkpoint_kind_of(name) == start]
    if pretrained and not any(map(uses_checkpoint, recipes)):
        raise UserError(
            f"--pretrained {pretrained}: none of {', '.join(recipes)} starts from a checkpoint."
        )
    name = Path(pretrained).name if pretrained else "recipes"
    system = System(name, tuple(recipes), pretrained)
    return (System("baseline", tuple(baseline)), system) if baseline else (system,)


def _checkpoint_kind_of(recipe: str) -> str:
    kind: str = configuration.recipe(recipe)["recipe"].get("pretrained", "")
    return kind


def score_task(task: SuiteTask, recipe: str, results: Sequence[Result], error: str = "") -> Score:
    """Return the scores of a task from its finished trials."""
    if not results:
        return Score(task.name, recipe, error=error or "no run finished")
    metrics = task.metrics or (results[0].metric,)
    for metric in metrics:
        if metric not in results[0].figures:
            raise unknown_name("metric", metric, results[0].figures, f"{SUITE_FILE}: {task.name}")
    values = tuple(
        statistics.fmean(to_points(result.figures[name]["value"], name) for name in metrics)
        for result in results
    )
    return Score(
        task.name,
        recipe,
        metrics,
        values,
        sum(result.seconds for result in results),
        sum(bool(result.collapsed) for result in results),
    )


def to_points(value: float, metric: str) -> float:
    """Return a metric on the scale from 0 to 100; UserError for one that has no such scale."""
    if is_percent(metric) or metric in CORRELATIONS:
        return 100 * value
    if metric in ONE_DECIMAL_METRICS:
        return value
    raise UserError(
        f"'{metric}' does not run from 0 to 100 and cannot be averaged. Set other metrics in "
        f"{SUITE_FILE}."
    )


def average_scores(scores: Sequence[Score]) -> Average:
    """Average the tasks; of restart k, the k-th run of every task is one run of the suite."""
    means = [score.mean for score in scores]
    if not means or None in means:
        return Average(None, None)
    mean = statistics.fmean(value for value in means if value is not None)
    # A model without a seed has one run, which belongs to every restart.
    restarts = max(len(score.values) for score in scores)
    if restarts < 2 or any(len(score.values) not in (1, restarts) for score in scores):
        return Average(mean, None)
    runs = [
        statistics.fmean(score.values[k % len(score.values)] for score in scores)
        for k in range(restarts)
    ]
    return Average(mean, statistics.stdev(runs))


def reduce_error(before: float, after: float) -> float:
    """Return the relative error reduction: the part of what was missing to 100 that is gained."""
    return (after - before) / (100 - before) if before < 100 else 0.0


def to_json(systems: Sequence[System], scores: Mapping[str, Sequence[Score]]) -> dict[str, object]:
    """Return the results as written to suite.json."""
    out: list[object] = []
    for system in systems:
        average = average_scores(scores[system.name])
        rows = [
            {
                "task": score.task,
                "recipe": score.recipe,
                "metrics": list(score.metrics),
                "mean": score.mean,
                "deviation": score.deviation,
                "values": list(score.values),
                "seconds": score.seconds,
                "collapsed": score.collapsed,
                "error": score.error,
            }
            for score in scores[system.name]
        ]
        out.append(
            {
                "system": system.name,
                "pretrained": system.pretrained,
                "average": average.mean,
                "deviation": average.deviation,
                "tasks": rows,
            }
        )
    return {"systems": out}
