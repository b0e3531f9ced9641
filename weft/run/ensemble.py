"""Train several seeds of one configuration as the members of an ensemble.

RUN/members/0/ members/1/ …, a run each  config.toml  log.txt  predictions.jsonl  model/
"""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft import config as configuration
from weft import jsonio, registry
from weft.config import Config, FilledSections
from weft.errors import UserError
from weft.predict.ensemble import check_members
from weft.predict.join_models import join_members
from weft.predict.members import MEMBERS
from weft.predict.predictor import load
from weft.protocols import Saved
from weft.run.context import EvalCallback, RunContext, TrainingRecord
from weft.run.folder import clear_folder, explain_failures
from weft.run.split import Splits
from weft.run.train import (
    RunResult,
    check_same_model,
    evaluate_and_save,
    prepare_run,
    resolve_config,
    train,
)
from weft.storage import write_text
from weft.train.logger import RunLogger, restore_on_failure
from weft.train.settings import Settings

SPEED_SETTINGS = ("threads", "minutes")  # that leave the result as it is, or shorten it


def train_members(
    config: Config,
    full: FilledSections,
    folder: Path,
    splits: Splits | None,
    device: str,
    resume: bool,
    quiet: bool,
    on_evaluate: EvalCallback | None,
    notes: Sequence[str],
) -> RunResult:
    """Train one seed after the other, then evaluate and save their ensemble.

    A resumed run goes on with the member that was not finished.
    """
    started = time.perf_counter()
    _check_seeded(full)
    ready = prepare_run(config, full, folder, splits, device, quiet)
    settings = Settings(**full["train"])
    if resume:
        check_same_model(folder, full)
    clear_folder(folder, resume)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(restore_on_failure(folder / "config.toml", resume))
        with explain_failures(folder, "training", "Train fewer members."):
            write_text(path, configuration.dumps(full))
            logger = RunLogger(folder, quiet=quiet)
            stack.enter_context(logger)
            context = ready.context(settings, folder, logger, started, on_evaluate, notes)
            for number in range(settings.ensemble):
                place = folder / MEMBERS / str(number)
                own = _member_config(config, settings, number)
                if resume and _is_finished(place, own):
                    logger.info(f"member {number} is trained")
                else:
                    logger.info(f"member {number}: seed {own['train']['seed']}")
                    again = resume and (place / "config.toml").is_file()
                    train(own, place, splits=splits, device=device, resume=again, quiet=quiet,
                          on_evaluate=on_evaluate)  # fmt: skip
        folders = [folder / MEMBERS / str(i) / "model" for i in range(settings.ensemble)]
        return _join(folders, context, device)


def join_runs(
    config: Config, folder: Path, members: Sequence[Path], *, splits: Splits, device: str
) -> RunResult:
    """Join the models of finished runs, and evaluate and save the ensemble in a run folder.

    The data and the task are those of `config`; `members` are model folders.
    """
    started = time.perf_counter()
    full = resolve_config(config)
    ready = prepare_run(config, full, folder, splits, device, quiet=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.toml", configuration.dumps(full))
    logger = RunLogger(folder, quiet=True)
    with contextlib.closing(logger):
        settings = Settings(**full["train"])
        context = ready.context(settings, folder, logger, started, None, [])
        return _join(members, context, device)


def _join(folders: Sequence[Path], run: RunContext, device: str) -> RunResult:
    """Evaluate and save the ensemble of model folders; its training took as long as theirs."""
    with explain_failures(run.folder, "measuring the model", "Give smaller dev and test files."):
        records = [jsonio.read(place / "record.json") for place in folders]
        members = [load(place, device=device, replay=False) for place in folders]
        check_members(members, [str(place) for place in folders])
        joined = join_members(members, [1.0] * len(members), folders)
        seconds = round(sum(record["seconds"] for record in records), 3)
        training: TrainingRecord = {**_summarise(records), "seconds": seconds}
        result = evaluate_and_save(joined, run, training, [record["figures"] for record in records])
        _log_members(run.logger, result, records, joined.task.metric)
        return result


def _check_seeded(full: FilledSections) -> None:
    """Raise a UserError for a model that is the same with every seed."""
    if "classic" in full and not registry.build("classic", full["classic"]).is_seeded:
        raise UserError(
            f"train.ensemble: a '{full['classic']['kind']}' model is the same with every seed. "
            "Join models of other kinds: `weft ensemble MODEL MODEL -o FOLDER`."
        )


def _member_config(config: Config, settings: Settings, number: int) -> Config:
    """Return the configuration of one member; a time limit is divided among all."""
    changes: dict[str, object] = {"train.ensemble": 1, "train.seed": settings.seed + number}
    if settings.minutes:
        changes["train.minutes"] = settings.minutes / settings.ensemble
    return config.with_values(changes, "train.ensemble")


def _is_finished(folder: Path, config: Config) -> bool:
    """Return True if a member was saved with these training settings."""
    if not (folder / "model" / "record.json").is_file():
        return False
    saved, now = (
        {key: value for key, value in section.items() if key not in SPEED_SETTINGS}
        for section in (
            resolve_config(configuration.load(folder / "config.toml"))["train"],
            resolve_config(config)["train"],
        )
    )
    now["metric"] = now["metric"] or saved["metric"]  # the run chose one for uneven classes
    # As they are written: a file has lists where a default is a tuple.
    return configuration.dumps({"train": saved}) == configuration.dumps({"train": now})


def _summarise(records: Sequence[Saved]) -> TrainingRecord:
    """Return what the record of an ensemble says of the training of its members."""
    first = next((record for record in records if record["stopped"]), records[0])
    return {
        "stopped": first["stopped"],
        "completed": min(record["completed"] for record in records),
        "rising": next((record["rising"] for record in records if record["rising"]), ""),
        "device_bytes": max(record["device_bytes"] for record in records),
    }


def _log_members(
    logger: RunLogger, result: RunResult, records: Sequence[Saved], metric: str
) -> None:
    """Log the metric of the ensemble beside those of its members."""
    for split, figures in result.figures.items():
        shown = [_value(record["figures"], split, metric) for record in records]
        own = dataclasses.asdict(figures[metric])["value"]
        listed = ", ".join(f"{value:.4f}" for value in shown)
        mean = sum(shown) / len(shown)
        logger.info(f"{split} {metric}: members {listed} (mean {mean:.4f}), ensemble {own:.4f}")


def _value(figures: Mapping[str, Saved], split: str, metric: str) -> float:
    value: float = figures[split][metric]["value"]
    return value
