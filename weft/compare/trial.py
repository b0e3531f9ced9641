"""One trial: a recipe trained with one seed on one split, evaluated and cached."""

import dataclasses
import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.compare.sentence_scores import UNITS, label_names
from weft.config import Config, from_sections
from weft.errors import UserError
from weft.metrics.bootstrap import bootstrap_interval
from weft.metrics.calibration import risk_coverage
from weft.metrics.value import MetricValue, lower_is_better
from weft.protocols import ReadMode, Saved
from weft.run.collapse import loss_never_decreased, not_above_baseline
from weft.run.context import RunRecord
from weft.run.data import Data, Source, example_source
from weft.run.split import (
    TEST_FRACTION,
    Holdout,
    Splits,
    apply_holdout,
    cross_validation_splits,
    from_files,
)
from weft.run.text_scores import CHECKPOINT, TEXT_TASKS, SavedAnswer, initial_checkpoint
from weft.run.train import resolve_config
from weft.storage import write_text
from weft.tasks.annotation import Annotation
from weft.tasks.task import AnyTask
from weft.text.example import Example
from weft.train.logger import PROGRESS_FILE

if TYPE_CHECKING:
    from weft.run import RunResult

RESULT, TIMING, ERROR = "result.json", "timing.json", "error.txt"
TRIAL_FILES = (
    "config.toml",
    "log.txt",
    RESULT,
    ERROR,
)  # any of them marks a trial folder
COVERAGE_RESAMPLES = 200  # of a figure whose interval is not ranked by
DATA_SPLITS = ("train", "dev", "test")
COLLAPSE_FRACTION = 0.99  # of predictions that are the same: a collapsed run
# A run stopped by the time limit before this fraction of its epochs is not ranked.
MIN_COMPLETED = 0.5


@dataclass(frozen=True)
class Result:
    """The cached result of a finished trial."""

    digest: str
    metric: str
    higher_is_better: bool
    figures: dict[str, dict[str, float]]  # on test: metric -> value, low, high, n
    dev: float | None  # the dev metric, by which the seed to keep is chosen
    seconds: float
    memory_bytes: int  # peak of host and device together
    size_bytes: int
    parameters: int
    notes: list[str]
    versions: dict[str, str]
    collapsed: str = ""  # the reason, if the run learned nothing
    clipped: str = ""  # a note, if the time limit stopped the run
    completed: float = 1.0  # fraction of the configured epochs; 1 unless stopped
    rising: str = ""  # a note, if dev was still improving at the end

    @property
    def rankable(self) -> bool:
        """True if the run got far enough to be ranked with complete ones."""
        return self.completed >= MIN_COMPLETED


@dataclass(frozen=True)
class Timing:
    """Latency and peak memory of the saved model."""

    p50_ms: float
    p95_ms: float
    texts_per_second: float
    memory_bytes: int
    token_ms: float | None = None  # of generation, per token


@dataclass(frozen=True)
class TrialProgress:
    """The progress of a running trial, read from its progress file."""

    done: float  # fraction of the configured epochs
    since: float  # the same, after the first update
    seconds: float  # from the first update until now

    @property
    def pace(self) -> float:
        """Fraction of the training completed per second."""
        return (self.done - self.since) / self.seconds


@dataclass(frozen=True)
class SplitSpec:
    """The data split: into folds, or by a saved holdout."""

    holdout: str  # path of the saved Holdout
    folds: int = 0
    numbers: bool = False
    manner: ReadMode = "labelled"  # labelled examples or running text

    def splits(self, data: Data, fold: int | None) -> Splits:
        if self.manner != "labelled":
            return _sequential_splits(data, self.manner)
        if fold is not None:
            return cross_validation_splits(data, self.folds, numbers=self.numbers)[fold - 1]
        return apply_holdout(data, Holdout.load(Path(self.holdout)))


def _sequential_splits(data: Data, mode: ReadMode) -> Splits:
    """Split running text in order: nearby text is similar, so dev and test are its end."""
    if data.test:
        return from_files(data, mode=mode)
    texts = example_source(data, data.train, mode=mode)
    rows = sum(1 for _ in texts())
    ends = rows - round(TEST_FRACTION * rows)
    first = ends if data.dev else ends - round(data.dev_fraction * rows)
    dev = example_source(data, data.dev, mode=mode) if data.dev else _slice(texts, first, ends)
    return Splits(_slice(texts, 0, first), dev, _slice(texts, ends, rows))


def _slice(texts: Source, start: int, end: int) -> Source:
    return lambda: islice(texts(), start, end)


@dataclass(frozen=True)
class Trial:
    """A recipe, seed and fold to train, and the output folder."""

    recipe: str
    seed: int
    fold: int | None
    config: Config
    split_spec: SplitSpec
    folder: Path
    digest: str

    @property
    def name(self) -> str:
        where = "" if self.fold is None else f" fold {self.fold}"
        return f"{self.recipe} seed {self.seed}{where}"

    @property
    def writes(self) -> str:
        """The task if it is generation or language modelling, else ""."""
        kind = self.config["task"].get("kind", "") if "task" in self.config else ""
        return kind if kind in TEXT_TASKS else ""

    @property
    def classic(self) -> bool:
        """True for a classical model, which the time limit cannot shorten."""
        return "classic" in self.config

    def progress(self) -> "TrialProgress | None":
        """Return the progress of a running trial; None before its second update."""
        try:
            return TrialProgress(**json.loads((self.folder / PROGRESS_FILE).read_text("utf-8")))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def to_json(self) -> dict[str, object]:
        """Return everything another process needs to run the trial."""
        plain = {"config": dict(self.config.sections), "folder": str(self.folder)}
        return {**dataclasses.asdict(dataclasses.replace(self, config=Config({}))), **plain}

    @classmethod
    def from_json(cls, saved: Saved) -> "Trial":
        config = from_sections(saved["config"], "compare")
        parsed = {
            "config": config,
            "split_spec": SplitSpec(**saved["split_spec"]),
            "folder": Path(saved["folder"]),
        }
        return cls(**{**saved, **parsed})

    def load_result(self) -> Result | None:
        """Return the cached result; raise UserError if the folder holds a different trial."""
        path = self.folder / RESULT
        try:
            result = Result(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (json.JSONDecodeError, TypeError, UnicodeDecodeError):
            raise UserError(
                f"{path}: damaged. Pass --overwrite to retrain, or choose another folder."
            ) from None
        if result.digest != self.digest:
            raise UserError(
                f"{self.folder} holds a trial with different settings or data. "
                "Pass --overwrite to replace it, or choose another folder."
            )
        return result

    def load_timing(self) -> Timing | None:
        """Return the cached timing of the model, if any."""
        try:
            return Timing(**json.loads((self.folder / TIMING).read_text("utf-8")))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def run(self, device: str, minutes: float = 0.0) -> Result:
        """Train from scratch, and write the result last."""
        from weft import run

        clear_folder(self.folder)
        config = self.config
        if minutes:
            config = config.with_values({"train.minutes": minutes}, "--minutes")
        data = Data(**resolve_config(config)["data"])
        splits = self.split_spec.splits(data, self.fold)
        outcome = run.train(config, self.folder, splits=splits, device=device, quiet=True)
        return self._write_result(outcome)

    def join(self, members: Sequence[Path], device: str) -> Result:
        """Evaluate the ensemble of other trials' models, and write the result last."""
        from weft.run.ensemble import join_runs

        clear_folder(self.folder)
        data = Data(**resolve_config(self.config)["data"])
        splits = self.split_spec.splits(data, self.fold)
        outcome = join_runs(self.config, self.folder, members, splits=splits, device=device)
        return self._write_result(outcome)

    def _write_result(self, outcome: "RunResult") -> Result:
        """Write and return the result of a run in the trial's folder."""
        if "test" not in outcome.figures:
            raise UserError("No test examples to compare on.")
        task, record = outcome.predictor.task, outcome.record
        metric = outcome.predictor.config["train"]["metric"] or task.metric
        dev = outcome.figures.get("dev", {}).get(metric)
        model = self.folder / "model"
        figures = {n: dataclasses.asdict(f) for n, f in outcome.figures["test"].items()}
        if task.has_confidence:
            figures["coverage_at_95"] = dataclasses.asdict(self._coverage_at(0.95))
        result = Result(
            digest=self.digest,
            metric=metric,
            higher_is_better=not lower_is_better(metric),
            figures=figures,
            dev=None if dev is None else dev.value,
            seconds=record["seconds"],
            memory_bytes=host_memory() + record["device_bytes"],
            size_bytes=sum(p.stat().st_size for p in model.rglob("*") if p.is_file()),
            parameters=record["parameters"],
            notes=list(record["notes"]),
            versions=dict(record["versions"]),
            collapsed=self._collapse_note(task, outcome.figures["test"][task.metric].value, record),
            clipped=record["stopped"],
            completed=record["completed"],
            rising=record["rising"],
        )
        # Last, and atomically: a trial is finished only when everything else is on disk.
        write_text(self.folder / RESULT, json.dumps(dataclasses.asdict(result), indent=1) + "\n")
        return result

    def _coverage_at(self, accuracy: float) -> MetricValue:
        """Return the fraction of test texts, most confident first, answered at an accuracy."""
        rows = [
            (row["score"], _same(row["value"], row["label"])) for row in self.read_predictions()
        ]
        scores, right = np.array(rows, dtype=np.float64).reshape(-1, 2).T

        def coverage(scores: np.ndarray, right: np.ndarray) -> float:
            return risk_coverage(scores, right > 0).coverage_at(accuracy)

        return bootstrap_interval(coverage, scores, right, resamples=COVERAGE_RESAMPLES)

    def _collapse_note(self, task: AnyTask, value: float, record: RunRecord) -> str:
        """Return why a complete run learned nothing, else ""; shortened runs are not checked."""
        if record["completed"] < 1:
            return ""
        if reason := _same_answer_note(self.read_predictions()):
            return reason
        rows = [a for a in self.read_predictions() if "structure" not in a]
        pairs = [(row["label"], row["value"]) for row in rows]
        higher = not lower_is_better(task.metric)
        reason = not_above_baseline(pairs, task.metric, higher, value, "test")
        # Generation learns slowly, and may start from a good checkpoint.
        return reason or ("" if self.writes or record["members"] else loss_never_decreased(record))

    def measure_latency(self, device: str, seconds: float) -> Timing:
        """Load the saved model as a user would, and time it on the test texts."""
        from weft.compare.latency import BATCH_TEXTS, measure_latency
        from weft.predict import load

        rows = list(islice(self.read_predictions(), BATCH_TEXTS))
        predictor = load(self.folder / "model", device=device)
        inputs = [build_input(row) for row in rows]
        if predictor.engine.input_kind == "vectors":  # texts name files next to that of the data
            data = predictor.config["data"]
            file = data["test"] or data["train"]
            inputs = [Example(str(row["text"]), file=file) for row in rows]
        timed = measure_latency(predictor, inputs, seconds)
        timing = Timing(**dataclasses.asdict(timed), memory_bytes=host_memory())
        write_text(self.folder / TIMING, json.dumps(dataclasses.asdict(timing), indent=1) + "\n")
        return timing

    def read_predictions(self) -> Iterator[SavedAnswer]:
        """Yield the prediction for each test text, with its gold label."""
        with open(self.folder / "predictions.jsonl", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """Return (epochs, dev metric) at every evaluation; empty for a model without epochs."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return []
        events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        seen = [e for e in events if e["event"] == "evaluation" and f"dev_{metric}" in e]
        if not seen:
            return []
        # The first evaluation with the highest epoch count marks the end of the last epoch.
        whole = max(event["epoch"] for event in seen)
        length = next(e["step"] for e in seen if e["epoch"] == whole) / max(whole, 1)
        return [(event["step"] / length, event[f"dev_{metric}"]) for event in seen]


def trial_hash(config: Config, data: Mapping[str, str], fold: int | None, folds: int) -> str:
    """Hash everything that determines a trial: the full settings and the file contents."""
    full = resolve_config(config)
    for name in ("threads", "minutes"):  # speed only: another machine may continue
        del full["train"][name]
    full["data"] = {**full["data"], **{name: data.get(name, "") for name in DATA_SPLITS}}
    del full["data"]["token_cache"]
    start = [data[CHECKPOINT]] if CHECKPOINT in data and initial_checkpoint(full) else []
    content = json.dumps(
        [full, fold, folds, *start], sort_keys=True, ensure_ascii=False, default=str
    )
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def clear_folder(folder: Path) -> None:
    """Remove an earlier trial; raise UserError for a folder that is not a trial."""
    if not folder.exists():
        return
    if not folder.is_dir() or not any((folder / name).exists() for name in TRIAL_FILES):
        raise UserError(f"{folder} exists and is not a trial. Move it, or change -o.")
    shutil.rmtree(folder)


def host_memory() -> int:
    """Return the peak memory of this process in bytes; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def build_input(row: SavedAnswer) -> str | Example:
    """Return the model input to time: the text, the text pair or, for node labels, the tree."""
    if "other" in row:
        return Example(row["text"], other=row["other"])
    if row.get("gold", {}).get("kind") != "nodes":
        return str(row["text"])
    gold = Annotation.from_json(row["gold"])
    return Example(row["text"], words=gold.words, places=gold.places, tree=gold.tree)


def _same(value: object, label: object) -> bool:
    """Return True if a prediction is right: one label, or the same set of labels."""
    if isinstance(value, list):
        labels = label if isinstance(label, list) else [label]
        return sorted(map(str, value)) == sorted(map(str, labels))
    return str(value) == str(label)


def _same_answer_note(answers: Iterator[SavedAnswer]) -> str:
    """Return a note if (nearly) all predictions are the same though the labels differ, else ""."""
    predicted: Counter[str] = Counter()
    gold: Counter[str] = Counter()
    unit = "texts"
    for answer in answers:
        if "structure" in answer:
            sides = (Annotation.from_json(answer[side]) for side in ("structure", "gold"))
            labels, gold_labels = map(label_names, sides)
            predicted.update(labels)
            gold.update(gold_labels)
            unit = UNITS[answer["structure"]["kind"]][0]
            continue
        value, label = answer["value"], answer["label"]
        predicted[f"{value:.3g}" if isinstance(value, float) else str(value)] += 1
        gold[str(label)] += 1
    if not predicted:
        return f"it found none of the {gold.total()} {unit}" if gold else ""
    (value, count), total = predicted.most_common(1)[0], predicted.total()
    if len(gold) < 2 or count < COLLAPSE_FRACTION * total or gold[value] > 0.95 * total:
        return ""
    value = value if len(value) <= 60 else f"{value[:59]}…"
    return f"it predicted {value!r} for {count / total:.0%} of the test {unit}"
