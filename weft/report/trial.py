"""One trial: one recipe, one seed, one split; trained, measured, timed, and not repeated."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from weft import predict, run
from weft.config import Config
from weft.errors import UserError
from weft.report.latency import TOGETHER, latency
from weft.run import Splits
from weft.run.train import filled

RESULT, ERROR = "result.json", "error.txt"
SIGNS = ("config.toml", "log.txt", RESULT, ERROR)  # what makes a folder recognisable as a trial
SOURCES = ("train", "dev", "test")


@dataclass(frozen=True)
class Result:
    """What is remembered of a finished trial."""

    digest: str
    metric: str
    higher_is_better: bool
    figures: dict[str, dict[str, Any]]  # on test: metric -> value, low, high, n
    seconds: float
    p50_ms: float
    p95_ms: float
    texts_per_second: float
    size_bytes: int
    parameters: int
    notes: list[str]
    versions: dict[str, str]


@dataclass(frozen=True)
class Trial:
    """What is to be trained, on what, and where it goes."""

    recipe: str
    seed: int
    fold: int | None
    config: Config
    splits: Splits
    folder: Path
    digest: str

    @property
    def name(self) -> str:
        where = "" if self.fold is None else f" fold {self.fold}"
        return f"{self.recipe} seed {self.seed}{where}"

    def finished(self) -> Result | None:
        """The result of an earlier, equal trial; a UserError where the folder holds another one."""
        path = self.folder / RESULT
        try:
            result = Result(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (json.JSONDecodeError, TypeError, UnicodeDecodeError):
            raise UserError(
                f"{path}: damaged. Pass --overwrite to train again, or choose another folder."
            ) from None
        if result.digest != self.digest:
            raise UserError(
                f"{self.folder} holds a trial with other settings or other data. "
                "Pass --overwrite to replace it, or choose another folder."
            )
        return result

    def run(self, device: str) -> Result:
        """Train from the start, then time the saved model as a user would load it."""
        clear(self.folder)
        outcome = run.train(self.config, self.folder, splits=self.splits, device=device, quiet=True)
        if "test" not in outcome.figures:
            raise UserError("There are no test examples to compare on.")
        model = self.folder / "model"
        assert self.splits.test is not None
        texts = [example.text for example in islice(self.splits.test(), TOGETHER)]
        timed = latency(predict.load(model, device=device), texts)
        task, record = outcome.predictor.task, outcome.record
        figures = outcome.figures["test"]
        result = Result(
            digest=self.digest,
            metric=task.metric,
            higher_is_better=task.higher_is_better,
            figures={name: dataclasses.asdict(figure) for name, figure in figures.items()},
            seconds=record["seconds"],
            **dataclasses.asdict(timed),
            size_bytes=sum(p.stat().st_size for p in model.rglob("*") if p.is_file()),
            parameters=record["parameters"],
            notes=list(record["notes"]),
            versions=dict(record["versions"]),
        )
        # Last, and at once: a trial counts as finished only when everything else is on disk.
        write(self.folder / RESULT, json.dumps(dataclasses.asdict(result), indent=1) + "\n")
        return result

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """(epochs, metric on dev) at every evaluation; empty for a model without epochs."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return []
        events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        seen = [e for e in events if e["event"] == "evaluation" and f"dev_{metric}" in e]
        if not seen:
            return []
        # The first evaluation that counts the most epochs stands at the end of the last of them.
        whole = max(event["epoch"] for event in seen)
        length = next(e["step"] for e in seen if e["epoch"] == whole) / max(whole, 1)
        return [(event["step"] / length, event[f"dev_{metric}"]) for event in seen]


def identity(config: Config, data: Mapping[str, str], fold: int | None, folds: int) -> str:
    """A hash of everything that decides a trial: filled settings and the contents of the files."""
    full = filled(config)
    full["data"] = {**full["data"], **{name: data.get(name, "") for name in SOURCES}}
    known = json.dumps([full, fold, folds], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()


def clear(folder: Path) -> None:
    """Remove what an earlier trial left; a folder that was never a trial is left alone."""
    if not folder.exists():
        return
    if not folder.is_dir() or not any((folder / name).exists() for name in SIGNS):
        raise UserError(f"{folder} is in the way and holds no trial. Move it, or change -o.")
    shutil.rmtree(folder)


def write(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, "utf-8")
        os.replace(part, path)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror or error}.") from None
