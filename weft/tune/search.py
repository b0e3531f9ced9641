"""Tune a configuration: plan, search, restarts, and the files of the result.

OUT/study.(db|jsonl)  trials/NNN/  restarts/{tuned,start}-SEED/  best.toml  model/  tune.json
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from weft import registry
from weft.config import Config, as_config, dumps
from weft.errors import UserError, unknown_name
from weft.jobs import Place, Resources, open_place, parse_resources
from weft.metrics.value import lower_is_better
from weft.notebook import HtmlRepr
from weft.protocols import Section
from weft.run.data import Data, labelled_only, read_mode
from weft.run.split import open_splits
from weft.run.target_tokenizer import learn_space
from weft.run.text_scores import content_digests, initial_checkpoint
from weft.run.train import infer_task_settings, resolve_config, versions
from weft.storage import copy_folder, write_text
from weft.tasks.task import build_task
from weft.text.example import Example, SkipCounter
from weft.text.location import TableName
from weft.text.tables.spool import DATA_FOLDER, spool_path, spool_table
from weft.text.tables.table import PathOrTable, name_data
from weft.tune.presets import SAMPLERS as PRESETS
from weft.tune.presets import preset as preset_space
from weft.tune.processes import run_workers
from weft.tune.restart import Restart, Restarts, Which, restarts
from weft.tune.restart import restart_dir as restarted
from weft.tune.samplers import SAMPLERS, check_sampler
from weft.tune.space import Dimension, flatten, grid, make_dimensions, value_at
from weft.tune.study import (
    STUDY_FILES,
    Limits,
    SearchSpec,
    Study,
    TrialRecord,
    import_optuna,
)
from weft.tune.trial import run_trials, trial_dir

DEFAULT_TRIALS = 20  # without --trials and --minutes
SEARCH_FILES = (
    *STUDY_FILES,
    DATA_FOLDER,
    "locks",
    "trials",
    "restarts",
    "workers",
    "model",
    "best.toml",
    "tune.json",
)

# A trial or restart that has ended, the metric, and how many trials there will be.
SearchCallback = Callable[[TrialRecord | Restart, str, int | None], None]


@dataclass(frozen=True, repr=False)
class TuneResult(HtmlRepr):
    """The result of a search."""

    folder: Path
    plan: SearchSpec
    limits: Limits
    rows: tuple[TrialRecord, ...]
    best: TrialRecord
    restarts: Restarts | None
    importance: dict[str, float]
    changes: dict[str, tuple[object, object]]  # setting -> before, after

    def __repr__(self) -> str:
        return f"TuneResult({len(self.rows)} trials; best: trial {self.best.number})"

    @property
    def metric(self) -> str:
        return self.plan.metric

    def best_first(self) -> list[TrialRecord]:
        """Return the complete trials, best first."""
        done = (row for row in self.rows if row.state == "complete")
        return sorted(done, key=self.plan.rank)

    def to_json(self) -> dict[str, object]:
        return {
            **self.plan.to_json(),
            "sampler": self.limits.sampler,
            "prune": self.limits.prune,
            "seed": self.limits.seed,
            "best": asdict(self.best),
            "changes": {key: list(pair) for key, pair in self.changes.items()},
            "importance": self.importance,
            "trials": [asdict(row) for row in self.rows],
            "restarts": _summary(self.restarts),
            "versions": versions() | {"optuna": import_optuna().__version__},
        }


def ignore_trial(news: "TrialRecord | Restart", metric: str, total: int | None) -> None:
    """Do nothing."""


def ignore_message(text: str) -> None:
    """Do nothing."""


@registry.check_types
def tune(
    config: Config | str | Path | Section,
    output: str | Path,
    *,
    train: PathOrTable = "",
    dev: PathOrTable = "",
    test: PathOrTable = "",
    changes: Mapping[str, Any] = {},
    search: Mapping[str, Any] = {},
    preset: str = "",
    sampler: str = "",
    trials: int = 0,
    minutes: float = 0.0,
    seeds: int = 3,
    prune: bool = True,
    workers: int = 0,
    on: str = "",
    needs: str = "",
    device: str = "auto",
    overwrite: bool = False,
    on_trial: SearchCallback = ignore_trial,
    trust: Sequence[str] = (),
    on_message: Callable[[str], None] = ignore_message,
) -> TuneResult:
    """Search the settings of a configuration on dev, then train the best again with new seeds.

    The configuration is a recipe's name, a .toml or .json file, a dict of sections or a Config;
    `train`, `dev` and `test` are files or data in memory, which are stored in `output`/data.
    `changes` are settings by their dotted names. `search` maps dotted names to what to try: a list
    of choices, or {"low": …, "high": …, "log": True}; `preset` names a ready-made search space.
    Called again with the same folder it goes on to `trials` in all; so may several processes.
    `on="ray"` runs the workers on a Ray cluster, `on="ray:HOST:PORT"` on that one; each of them
    `needs` for example "cpus=2,gpus=1".
    `on_trial` is called after every trial. Parts from outside Weft are imported only from packages
    in `trust`.

    The result has the `best` trial, all of them (`best_first()`), what it changed (`changes`) and
    the importance of each setting; best.toml, tune.json and model/ are in `output`.

    Examples:
        >>> found = weft.tune("cnn", "runs/tuned", train="reviews.tsv",
        ...                   search={"train.learning_rate": [1e-3, 3e-3]}, trials=10)
        >>> found.best.settings, found.best.value
        ({'train.learning_rate': 0.003}, 0.93)
    """
    config = as_config(config)
    if changes := name_data(changes, train=train, dev=dev, test=test):
        config = config.with_values(changes, "changes")
    with registry.trusting(trust, config.origin_of):
        import_optuna()
        base = _without_search(config)
        around = preset_space(preset, base) if preset else {}
        dimensions = make_dimensions(flatten(config["search"]) | around | dict(search), base)
        sampler = sampler or PRESETS.get(preset, "tpe")
        limits = _make_limits(base, dimensions, sampler, trials, minutes)
        limits = replace(limits, prune=prune, device=device, seeds=seeds)
        _check_options(base, seeds, workers)
        plan = _make_spec(base, dimensions, on_message)
        folder = _prepare_folder(Path(output), overwrite)
        tables = {k: v for k, v in plan.base["data"].items() if isinstance(v, TableName)}
        stored = {f"data.{k}": spool_path(v, folder / DATA_FOLDER) for k, v in tables.items()}
        plan = replace(plan, base=plan.base.with_values(stored, "memory")) if stored else plan
        with open_place(on) as where:
            # Which refuses other data than those of its earlier trials.
            study = Study(folder, plan, shared=where.is_remote)
            try:
                for name in tables.values():
                    spool_table(name, folder / DATA_FOLDER)
                return _run(study, limits, workers, on_trial, where, parse_resources(needs))
            finally:
                study.close()


def _run(
    study: Study,
    limits: Limits,
    workers: int,
    on_trial: SearchCallback,
    where: Place,
    needs: Resources,
) -> TuneResult:

    def report(news: TrialRecord | Restart) -> None:
        on_trial(news, study.plan.metric, limits.trials)

    if workers > 1 or where.is_remote:
        run_workers(study, limits, workers, report, where, needs)
    run_trials(study, limits, report)
    best = study.best()
    if best is None:
        reasons = [row.reason for row in study.rows() if row.state == "failed"]
        why = f" The first said: {reasons[0]}" if reasons else ""
        raise UserError(f"No trial of {study.folder} finished with a metric.{why}")
    again = None
    if limits.seeds:
        again = restarts(study, best.settings, limits, report)
    with study.lock:  # processes that search together end together
        return _write_result(study, limits, best, again)


def _write_result(
    study: Study, limits: Limits, best: TrialRecord, again: Restarts | None
) -> TuneResult:
    """Write the best configuration, its model and tune.json."""
    folder, plan = study.folder, study.plan
    tuned_config = plan.config(best.settings)
    sections = {k: v for k, v in tuned_config.sections.items() if k != "recipe"}
    write_text(folder / "best.toml", dumps(sections))
    source = trial_dir(folder, best.number)
    if again is not None:
        chosen = again.best(plan.higher_is_better)
        source = source if chosen is None else restarted(folder, "tuned", chosen.seed)
    if (source / "model").is_dir():
        copy_folder(source / "model", folder / "model")
    before = resolve_config(plan.base)
    changes = {
        key: (value_at(before, key), value)
        for key, value in best.settings.items()
        if value_at(before, key) != value
    }
    result = TuneResult(
        folder, plan, limits, tuple(study.rows()), best, again, study.importance(), changes
    )
    text = json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n"
    write_text(folder / "tune.json", text)
    return result


def _summary(groups: Restarts | None) -> dict[str, object] | None:
    if groups is None:
        return None
    means = {}
    for which in get_args(Which):
        for split in ("dev", "test"):
            if (spread := groups.spread(which, split)) is not None:
                means[f"{which}_{split}"] = asdict(spread)
                kept = groups.spread(which, split, collapsed=False)
                if kept is not None and kept != spread:
                    means[f"{which}_{split}_without_collapsed"] = asdict(kept)
    return {**asdict(groups), "spread": means}


def _make_spec(
    base: Config,
    dimensions: tuple[Dimension, ...],
    on_message: Callable[[str], None] = lambda text: None,
) -> SearchSpec:
    """Return what all trials share; the data is checked now, not after an hour."""
    full = resolve_config(base)
    data = Data(**full["data"])
    if "-" in (data.train, data.dev, data.test):
        raise UserError("Standard input can be read only once; save it to a file to tune on it.")
    manner = read_mode(full["task"])
    data, splits, lines = open_splits(data, full["task"])
    decided = {
        f"data.{name}": getattr(data, name) for name in ("text", "text_pair", "label", "second")
    }
    base = base.with_values({k: v for k, v in decided.items() if v != ""}, "weft tune")
    for line in lines:
        on_message(line)
    if splits.dev is None or not list(islice(splits.dev(), 1)):
        raise UserError(
            f"{data.dev or data.train}: no dev examples, so trials could not be compared. Give "
            "--dev FILE, or set data.dev_fraction above 0."
        )
    full["task"] |= infer_task_settings(base, splits.train)
    task = build_task(full)
    metric = full["train"]["metric"] or task.metric

    def examples() -> Iterator[Example]:
        skips = data.on_bad_row == "skip"
        return labelled_only(splits.train, data, SkipCounter(), manner) if skips else splits.train()

    metrics = task.build_metric(learn_space(task, examples)).compute(resamples=0)
    if metric not in metrics:
        raise unknown_name("metric", metric, metrics, "train.metric")
    higher = not lower_is_better(metric)
    return SearchSpec(
        base, dimensions, metric, higher, content_digests(data, initial_checkpoint(full))
    )


def _make_limits(
    base: Config, dimensions: tuple[Dimension, ...], sampler: str, trials: int, minutes: float
) -> Limits:
    if sampler not in SAMPLERS:
        raise unknown_name("sampler", sampler, SAMPLERS)
    check_sampler(sampler, dimensions)
    if trials < 0 or minutes < 0:
        raise UserError(f"--trials and --minutes should be above 0, got {trials}, {minutes:g}.")
    points = grid(dimensions)
    number: int | None = trials or (None if minutes else DEFAULT_TRIALS)
    if sampler == "grid" and not trials:
        number = len(points or ())
    if points is not None and number is not None:
        number = min(number, len(points))
    seed = resolve_config(base)["train"]["seed"]
    until = time.time() + 60 * minutes if minutes else None
    return Limits(sampler, seed, number, until)


def _check_options(base: Config, seeds: int, workers: int) -> None:
    if seeds < 0:
        raise UserError(f"--seeds should be 0 (no restarts) or more, got {seeds}.")
    if workers < 0:
        raise UserError(f"--workers should be 0 (automatic) or more, got {workers}.")
    if not seeds and base["data"].get("test"):
        raise UserError(
            "The test file is measured on the restarts only, and --seeds 0 asks for none. Leave "
            "out --test, or pass --seeds 1 or more."
        )


def _without_search(config: Config) -> Config:
    kept = {name: table for name, table in config.sections.items() if name != "search"}
    return Config(kept, config.origins)


def _prepare_folder(folder: Path, overwrite: bool) -> Path:
    """Create the folder; raise UserError if an existing one must not be touched."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file; give a folder to -o.")
        folder.mkdir(parents=True, exist_ok=True)
        present = {path.name for path in folder.iterdir()}
        if present - {"locks"} and not present & set(STUDY_FILES):
            raise UserError(f"{folder} is not empty and holds no search; choose another folder.")
        if overwrite:
            for name in {*SEARCH_FILES, "tune.html"} & present:
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        raise UserError(f"Cannot write to {folder}: {error.strerror or error}.") from None
    return folder
