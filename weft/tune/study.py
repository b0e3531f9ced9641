"""The study of one folder: trials shared by processes, which survives any of them being killed.

Every decision is taken under one file lock, and each trial holds a lock of its own as long as its
process lives. A running trial whose lock is free has lost its process and is queued again.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weft.config import Config, Settings, from_sections
from weft.errors import UserError
from weft.protocols import Saved, Section
from weft.tune.samplers import Sampler, distributions, propose
from weft.tune.space import (
    Dimension,
    Point,
    base_point,
    flatten,
    make_dimensions,
    to_settings,
)

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from optuna.trial import FrozenTrial, Trial

RETRIES = 2  # of a trial whose process was killed; perhaps it is the trial that kills it
PRUNER_STARTUP_TRIALS = 5  # finished trials before any is pruned
PRUNER_WARMUP_EVALUATIONS = 3  # evaluations of a trial before it may be pruned
SQLITE_TIMEOUT = 60  # seconds that SQLite waits for another process
DATABASE, JOURNAL = STUDY_FILES = ("study.db", "study.jsonl")

State = Literal["complete", "pruned", "failed", "killed", "running", "waiting"]


# Optuna's names of states -> ours; a failed trial needs a closer look.
KNOWN_STATES: dict[str, State] = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "RUNNING": "running",
}


@dataclass(frozen=True)
class TrialRecord:
    """The record of one trial."""

    number: int  # from 1
    state: State
    value: float | None  # on dev; of a pruned trial the last one seen
    settings: Settings
    seconds: float | None = None
    reason: str = ""
    curve: tuple[tuple[int, float], ...] = ()  # (evaluation, value)

    @property
    def over(self) -> bool:
        return self.state in ("complete", "pruned", "failed")


@dataclass(frozen=True)
class SearchSpec:
    """The settings shared by all trials of a folder; saved and compared on resuming."""

    base: Config
    dimensions: tuple[Dimension, ...]
    metric: str
    higher_is_better: bool
    contents: Mapping[str, str]  # digests of the data files

    def to_json(self) -> dict[str, object]:
        return {
            "base": dict(self.base.sections),
            "search": {d.key: d.to_config() for d in self.dimensions},
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "contents": dict(self.contents),
        }

    @classmethod
    def from_json(cls, saved: Saved) -> "SearchSpec":
        base = from_sections(saved["base"], "study")
        rest = (saved["metric"], saved["higher_is_better"], saved["contents"])
        return cls(base, make_dimensions(flatten(saved["search"]), base), *rest)

    def config(self, settings: Section) -> Config:
        """Return the configuration of one trial."""
        return self.base.with_values(settings, "search")

    def rank(self, row: "TrialRecord") -> tuple[float, int]:
        """Return a sort key: finished trials best first, ties by number."""
        return (-1 if self.higher_is_better else 1) * (row.value or 0.0), row.number


@dataclass(frozen=True)
class Limits:
    """The limits and options of one command; another may resume with others."""

    sampler: Sampler = "tpe"
    seed: int = 1
    trials: int | None = None  # in all, those of other processes included; None: until time is up
    until: float | None = None  # when the last trial may begin, in seconds of time.time()
    prune: bool = True
    device: str = "auto"
    seeds: int = 0


@dataclass(frozen=True)
class ClaimedTrial:
    """A trial that this process has claimed."""

    trial: "Trial"
    lock: "BaseFileLock"
    settings: Settings

    @property
    def number(self) -> int:
        return self.trial.number + 1


class Study:
    """A handle on FOLDER/study.db, or study.jsonl if several machines share it."""

    def __init__(self, folder: Path, plan: SearchSpec | None = None, shared: bool = False):
        optuna = import_optuna()
        self.folder = folder
        (folder / "locks").mkdir(exist_ok=True)
        self.lock = file_lock(folder, "study")
        with self.lock:
            self.storage = self._open_storage(shared)
            direction = "maximize" if plan is None or plan.higher_is_better else "minimize"
            self.study = optuna.create_study(
                storage=self.storage, study_name="weft", direction=direction, load_if_exists=True
            )
            saved = self.study.user_attrs.get("plan")
            if saved is None:
                assert plan is not None, "a study begins with a plan"
                self.study.set_user_attr("plan", plan.to_json())
            elif plan is not None:
                check_same(folder, saved, json.loads(json.dumps(plan.to_json())))
        self.plan = plan or SearchSpec.from_json(saved)
        self.first: Point | None = base_point(self.plan.base, self.plan.dimensions)

    def close(self) -> None:
        self.storage.remove_session()
        if (engine := getattr(self.storage, "engine", None)) is not None:
            engine.dispose()

    def rows(self) -> list[TrialRecord]:
        """Return all trials, in starting order."""
        return [self._row(trial) for trial in self._trials()]

    def claim(self, limits: Limits) -> ClaimedTrial | None:
        """Claim the next trial for this process; None if enough were started or all were tried."""
        optuna = import_optuna()
        self.study.pruner = (
            optuna.pruners.MedianPruner(
                n_startup_trials=PRUNER_STARTUP_TRIALS, n_warmup_steps=PRUNER_WARMUP_EVALUATIONS
            )
            if limits.prune
            else optuna.pruners.NopPruner()
        )
        with self.lock:
            self._requeue_lost()
            kept = [t for t in self._trials() if self._row(t).state != "killed"]
            if not any(self._row(t).state == "waiting" for t in kept):
                if limits.trials is not None and len(kept) >= limits.trials:
                    return None
                point = propose(
                    self.plan.dimensions,
                    limits.sampler,
                    limits.seed,
                    kept,
                    self.first,
                    self.plan.higher_is_better,
                )
                if point is None:
                    return None
                keys = [dimension.key for dimension in self.plan.dimensions]
                self.study.enqueue_trial(dict(zip(keys, point, strict=True)))
            trial = self.study.ask(distributions(self.plan.dimensions))
            lock = self._trial_lock(trial.number + 1)
            lock.acquire()
            return ClaimedTrial(trial, lock, to_settings(trial.params, self.plan.dimensions))

    def finish(
        self, taken: ClaimedTrial, value: float | None, reason: str = "", failed: bool = False
    ) -> None:
        """Record the end of a trial: with a value, pruned, or failed for a reason."""
        from optuna.trial import TrialState

        with self.lock:
            if reason:
                taken.trial.set_user_attr("reason", reason)
            state = TrialState.PRUNED if value is None else None
            self.study.tell(taken.trial, value, state=TrialState.FAIL if failed else state)
        taken.lock.release()

    def wait(self) -> bool:
        """Wait for the trials of other processes; return True if one was left unfinished."""
        for row in self.rows():
            if row.state == "running":
                with self._trial_lock(row.number):
                    pass
        return any(row.state in ("running", "waiting") for row in self.rows())

    def best(self) -> TrialRecord | None:
        """Return the finished trial with the best value; of equals the first."""
        done = [row for row in self.rows() if row.state == "complete"]
        return min(done, key=self.plan.rank, default=None)

    def importance(self) -> dict[str, float]:
        """Return the fraction of variance each setting explains (fANOVA; Hutter et al. 2014)."""
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances

        done = [row for row in self.rows() if row.state == "complete"]
        if len(done) < 10 or len({row.value for row in done}) < 2:
            return {}  # too few points for a forest
        fractions = get_param_importances(self.study, evaluator=FanovaImportanceEvaluator(seed=0))
        return {key: float(fraction) for key, fraction in fractions.items()}

    def _trials(self) -> "Sequence[FrozenTrial]":
        trials: Sequence[FrozenTrial] = self.study.get_trials(deepcopy=False)
        return trials

    def _open_storage(self, shared: bool) -> Any:
        """Return Optuna's storage: a database, or a journal, which a network disk can hold."""
        optuna = import_optuna()
        journal = self.folder / JOURNAL
        if shared and (self.folder / DATABASE).exists():
            raise UserError(
                f"{self.folder} holds a search in {DATABASE}, which machines cannot share. "
                "Continue it without --on, or choose another folder."
            )
        if shared or journal.exists():
            from weft.tune.journal import open_journal

            return open_journal(journal, file_lock(self.folder, "journal"))
        # Opened here: in an address, a folder called 'why?' would lose its end.
        return optuna.storages.RDBStorage(
            "sqlite:///study.db", engine_kwargs={"creator": self._connect}
        )

    def _connect(self) -> sqlite3.Connection:
        path = self.folder / DATABASE
        return sqlite3.connect(path, timeout=SQLITE_TIMEOUT, check_same_thread=False)

    def _trial_lock(self, number: int) -> "BaseFileLock":
        """Return the lock that a trial holds while its process lives."""
        return file_lock(self.folder, f"trial-{number:03d}")

    def _requeue_lost(self) -> None:
        """Queue the trials of dead processes again; called under the lock."""
        from optuna.trial import TrialState

        for trial in self._trials():
            if trial.state != TrialState.RUNNING:
                continue
            with try_lock(self._trial_lock(trial.number + 1)) as gone:
                if not gone:
                    continue
                self.study.tell(trial.number, state=TrialState.FAIL)
                again = trial.user_attrs.get("again", 0) + 1
                complete = all(d.key in trial.params for d in self.plan.dimensions)
                if again <= RETRIES and complete:
                    self.study.enqueue_trial(trial.params, user_attrs={"again": again})

    def _row(self, trial: "FrozenTrial") -> TrialRecord:
        reason = trial.user_attrs.get("reason", "")
        state: State = KNOWN_STATES.get(trial.state.name, "waiting")
        if trial.state.name == "FAIL":
            often = trial.user_attrs.get("again", 0)
            state = "failed" if reason or often >= RETRIES else "killed"
            times = f", {often + 1} times" if often else ""
            reason = reason or f"its process ended before the trial did{times}"
        known_all = all(d.key in trial.params for d in self.plan.dimensions)
        return TrialRecord(
            trial.number + 1,
            state,
            trial.value if state in ("complete", "pruned") else None,
            to_settings(trial.params, self.plan.dimensions) if known_all else {},
            trial.duration.total_seconds() if trial.duration else None,
            reason,
            tuple(sorted(trial.intermediate_values.items())),
        )


def check_same(folder: Path, saved: Saved, now: Saved) -> None:
    """Raise UserError unless a resumed search is the one that was started."""
    advice = "Choose another folder with -o, or pass --overwrite to begin anew."
    before, after = saved["search"], now["search"]
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            was, is_ = (f"{s[key]}" if key in s else "not searched" for s in (before, after))
            raise UserError(
                f"{folder} holds another search: '{key}' was {was}, now {is_}. {advice}"
            )
    names = {"base": "another configuration", "contents": "other data", "metric": "another metric"}
    for part, name in names.items():
        if saved[part] != now[part]:
            raise UserError(f"{folder} holds a search with {name}. {advice}")


def import_optuna() -> Any:
    """Return the optuna module, with logging off."""
    try:
        import optuna
    except ImportError:
        raise UserError("weft tune needs the optuna package: pip install 'weft[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def file_lock(folder: Path, name: str) -> "BaseFileLock":
    """Return an inter-process lock that is released when its owner dies."""
    from filelock import FileLock  # comes with torch

    return FileLock(folder / "locks" / f"{name}.lock")


@contextlib.contextmanager
def try_lock(lock: "BaseFileLock") -> Iterator[bool]:
    """Yield True with the lock held, or False if another process holds it."""
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
