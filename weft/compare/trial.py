"""One trial: one recipe, one seed, one split; trained, measured, and not repeated."""

import dataclasses
import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from weft.compare.sentence_scores import UNITS, names
from weft.config import Config, from_sections
from weft.errors import UserError
from weft.metrics.value import lower_is_better
from weft.run.collapse import loss_never_decreased, not_above_baseline
from weft.run.data import Data, ReadMode, Source, example_source
from weft.run.split import (
    TEST_FRACTION,
    Holdout,
    Splits,
    apply_holdout,
    cross_validation_splits,
    from_files,
)
from weft.run.text_scores import CHECKPOINT, TEXT_TASKS, initial_checkpoint
from weft.run.train import resolve_config
from weft.storage import write_text
from weft.tasks.annotation import Annotation
from weft.text.example import Example
from weft.train.logger import PROGRESS_FILE

RESULT, TIMING, ERROR = "result.json", "timing.json", "error.txt"
SIGNS = ("config.toml", "log.txt", RESULT, ERROR)  # what makes a folder recognisable as a trial
SOURCES = ("train", "dev", "test")
SAME = 0.99  # share of one answer from which a training has collapsed
# The fraction of the configured epochs below which a training that the time limit ended says too
# little about its recipe to be ranked.
MIN_COMPLETED = 0.5


@dataclass(frozen=True)
class Result:
    """What is remembered of a finished trial."""

    digest: str
    metric: str
    higher_is_better: bool
    figures: dict[str, dict[str, Any]]  # on test: metric -> value, low, high, n
    dev: float | None  # the metric on dev, by which one of several seeds is chosen
    seconds: float
    memory_bytes: int  # the most that was held at once, on host and device together
    size_bytes: int
    parameters: int
    notes: list[str]
    versions: dict[str, str]
    collapsed: str = ""  # in words, when it learned nothing
    clipped: str = ""  # in words, when the clock stopped the training
    completed: float = 1.0  # fraction of the configured epochs; 1 when it ended by itself
    rising: str = ""  # in words, when it ended while it was still getting better

    @property
    def rankable(self) -> bool:
        """Whether the training came far enough to be ranked beside complete ones."""
        return self.completed >= MIN_COMPLETED


@dataclass(frozen=True)
class Timing:
    """How long the saved model takes to answer, and what it holds while it does."""

    p50_ms: float
    p95_ms: float
    texts_per_second: float
    memory_bytes: int
    token_ms: float | None = None  # of an answer that is written, for each of its tokens


@dataclass(frozen=True)
class Progress:
    """How far a running training is, as it writes it itself."""

    done: float  # fraction of the configured epochs
    since: float  # the same after the first update
    seconds: float  # from the first update until now

    @property
    def pace(self) -> float:
        """The fraction of the training that is done in a second."""
        return (self.done - self.since) / self.seconds


@dataclass(frozen=True)
class Cut:
    """How the data is cut: into folds, or as a saved holdout says."""

    holdout: str  # path of the saved Holdout
    folds: int = 0
    numbers: bool = False
    manner: ReadMode = "labelled"  # how the file is read: with labels, or as running text

    def splits(self, data: Data, fold: int | None) -> Splits:
        if self.manner != "labelled":
            return _in_order(data, self.manner)
        if fold is not None:
            return cross_validation_splits(data, self.folds, numbers=self.numbers)[fold - 1]
        return apply_holdout(data, Holdout.load(Path(self.holdout)))


def _in_order(data: Data, mode: ReadMode) -> Splits:
    """Texts in their order: what is near in a text is alike, so test and dev are its end."""
    if data.test:
        return from_files(data, mode=mode)
    texts = example_source(data, data.train, mode=mode)
    rows = sum(1 for _ in texts())
    ends = rows - round(TEST_FRACTION * rows)
    first = ends if data.dev else ends - round(data.dev_fraction * rows)
    dev = example_source(data, data.dev, mode=mode) if data.dev else _part(texts, first, ends)
    return Splits(_part(texts, 0, first), dev, _part(texts, ends, rows))


def _part(texts: Source, start: int, end: int) -> Source:
    return lambda: islice(texts(), start, end)


@dataclass(frozen=True)
class Trial:
    """What is to be trained, on what, and where it goes."""

    recipe: str
    seed: int
    fold: int | None
    config: Config
    cut: Cut
    folder: Path
    digest: str

    @property
    def name(self) -> str:
        where = "" if self.fold is None else f" fold {self.fold}"
        return f"{self.recipe} seed {self.seed}{where}"

    @property
    def writes(self) -> str:
        """The task, where its answers are texts or what texts cost; else nothing."""
        kind = self.config["task"].get("kind", "") if "task" in self.config else ""
        return kind if kind in TEXT_TASKS else ""

    @property
    def classic(self) -> bool:
        """Whether it fits a classic model, which no time limit can shorten."""
        return "classic" in self.config

    def progress(self) -> "Progress | None":
        """How far a running training is; None before its second update."""
        try:
            return Progress(**json.loads((self.folder / PROGRESS_FILE).read_text("utf-8")))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def to_json(self) -> dict[str, Any]:
        """Everything another process needs to run it."""
        plain = {"config": dict(self.config.sections), "folder": str(self.folder)}
        return {**dataclasses.asdict(dataclasses.replace(self, config=Config({}))), **plain}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Trial":
        config = from_sections(saved["config"], "compare")
        made = {"config": config, "cut": Cut(**saved["cut"]), "folder": Path(saved["folder"])}
        return cls(**{**saved, **made})

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

    def timing(self) -> Timing | None:
        """How fast the model answered when it was timed, if it was."""
        try:
            return Timing(**json.loads((self.folder / TIMING).read_text("utf-8")))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def run(self, device: str, minutes: float = 0.0) -> Result:
        """Train from the start, and write the result last."""
        from weft import run

        clear(self.folder)
        config = self.config
        if minutes:
            config = config.with_values({"train.minutes": minutes}, "--minutes")
        data = Data(**resolve_config(config)["data"])
        splits = self.cut.splits(data, self.fold)
        outcome = run.train(config, self.folder, splits=splits, device=device, quiet=True)
        if "test" not in outcome.figures:
            raise UserError("There are no test examples to compare on.")
        task, record = outcome.predictor.task, outcome.record
        metric = outcome.predictor.config["train"]["metric"] or task.metric
        dev = outcome.figures.get("dev", {}).get(metric)
        model = self.folder / "model"
        result = Result(
            digest=self.digest,
            metric=metric,
            higher_is_better=not lower_is_better(metric),
            figures={n: dataclasses.asdict(f) for n, f in outcome.figures["test"].items()},
            dev=None if dev is None else dev.value,
            seconds=record["seconds"],
            memory_bytes=host_memory() + record["device_bytes"],
            size_bytes=sum(p.stat().st_size for p in model.rglob("*") if p.is_file()),
            parameters=record["parameters"],
            notes=list(record["notes"]),
            versions=dict(record["versions"]),
            collapsed=self._collapsed(task, outcome.figures["test"][task.metric].value, record),
            clipped=record["stopped"],
            completed=record["completed"],
            rising=record["rising"],
        )
        # Last, and at once: a trial counts as finished only when everything else is on disk.
        write_text(self.folder / RESULT, json.dumps(dataclasses.asdict(result), indent=1) + "\n")
        return result

    def _collapsed(self, task: Any, value: float, record: dict[str, Any]) -> str:
        """Why it has learned nothing, where it has not; of a shortened training nobody knows."""
        if record["completed"] < 1:
            return ""
        if reason := _collapsed(self.answers()):
            return reason
        rows = [a for a in self.answers() if "structure" not in a]
        pairs = [(row["label"], row["value"]) for row in rows]
        higher = not lower_is_better(task.metric)
        reason = not_above_baseline(pairs, task.metric, higher, value, "test")
        # Text itself is learned slowly, and may be known from the start.
        return reason or ("" if self.writes else loss_never_decreased(record))

    def time(self, device: str, seconds: float) -> Timing:
        """Load the saved model as a user would, and time it on the test texts."""
        from weft.compare.latency import TOGETHER, latency
        from weft.predict import load

        rows = list(islice(self.answers(), TOGETHER))
        inputs = [example_of(row) for row in rows]
        timed = latency(load(self.folder / "model", device=device), inputs, seconds)
        timing = Timing(**dataclasses.asdict(timed), memory_bytes=host_memory())
        write_text(self.folder / TIMING, json.dumps(dataclasses.asdict(timing), indent=1) + "\n")
        return timing

    def answers(self) -> Iterator[dict[str, Any]]:
        """What the model said of each test text, beside the right label."""
        with open(self.folder / "predictions.jsonl", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

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
    full = resolve_config(config)
    for name in ("threads", "minutes"):  # how fast, not what: another machine may go on with it
        del full["train"][name]
    full["data"] = {**full["data"], **{name: data.get(name, "") for name in SOURCES}}
    start = [data[CHECKPOINT]] if CHECKPOINT in data and initial_checkpoint(full) else []
    known = json.dumps([full, fold, folds, *start], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()


def clear(folder: Path) -> None:
    """Remove what an earlier trial left; a folder that was never a trial is left alone."""
    if not folder.exists():
        return
    if not folder.is_dir() or not any((folder / name).exists() for name in SIGNS):
        raise UserError(f"{folder} is in the way and holds no trial. Move it, or change -o.")
    shutil.rmtree(folder)


def host_memory() -> int:
    """The most bytes this process has held so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def example_of(row: Mapping[str, Any]) -> str | Example:
    """What a model is asked when it is timed: the text or, where trees are given, the tree."""
    if "other" in row:
        return Example(row["text"], other=row["other"])
    if row.get("gold", {}).get("kind") != "nodes":
        return row["text"]
    gold = Annotation.from_json(row["gold"])
    return Example(row["text"], words=gold.words, places=gold.places, tree=gold.tree)


def _collapsed(answers: Iterator[dict[str, Any]]) -> str:
    """A sentence when (nearly) every text got the same answer though the labels differ."""
    given: Counter[str] = Counter()
    right: Counter[str] = Counter()
    what = "texts"
    for answer in answers:
        if "structure" in answer:
            sides = (Annotation.from_json(answer[side]) for side in ("structure", "gold"))
            said, gold = map(names, sides)
            given.update(said)
            right.update(gold)
            what = UNITS[answer["structure"]["kind"]][0]
            continue
        value, label = answer["value"], answer["label"]
        given[f"{value:.3g}" if isinstance(value, float) else str(value)] += 1
        right[str(label)] += 1
    if not given:
        return f"it found none of the {right.total()} {what}" if right else ""
    (value, count), total = given.most_common(1)[0], given.total()
    if len(right) < 2 or count < SAME * total or right[value] > 0.95 * total:
        return ""
    value = value if len(value) <= 60 else f"{value[:59]}…"
    return f"it answered {value!r} for {count / total:.0%} of the test {what}"
