"""Random restarts of the tuned configuration and of the one it came from, with new seeds."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from weft.config import Config
from weft.metrics import Spread, paired_bootstrap, summarise_seeds
from weft.run import text_scores
from weft.run.collapse import (
    constant_baseline,
    describe_collapses,
    loss_never_decreased,
    not_above_baseline,
)
from weft.run.collapse import label_text as _plain
from weft.run.context import RunRecord
from weft.run.text_scores import SavedAnswer
from weft.run.train import resolve_config, train
from weft.storage import write_text
from weft.tasks.task import build_task
from weft.tune.space import Value
from weft.tune.study import Limits, SearchSpec, Study, file_lock, try_lock
from weft.tune.trial import error_line

RESULT = "result.json"
ANSWER_KEYS = ("text", "label", "value", "tokens")  # of an answer, for the paired test
MIN_GAIN_FRACTION = 0.5  # of the other restarts' gain; below it a restart has collapsed

Which = Literal["tuned", "start"]
Answers = Sequence[SavedAnswer]
LabelPair = tuple[Any, Any]  # gold and predicted: a label, a set of labels or a number


@dataclass(frozen=True)
class Restart:
    """One run with one seed, after the search."""

    which: Which
    seed: int
    digest: str  # of its configuration
    dev: float | None = None
    test: float | None = None
    seconds: float = 0.0
    error: str = ""
    collapsed: str = ""  # why, where it has

    def value(self, split: str) -> float | None:
        return self.test if split == "test" else self.dev


@dataclass(frozen=True)
class Restarts:
    """Both configurations over the same seeds, and the p-value of their difference."""

    tuned: tuple[Restart, ...]
    start: tuple[Restart, ...]
    split: Literal["dev", "test"]  # what they are compared on
    p: float | None  # paired bootstrap over the texts, each one's score averaged over the seeds
    n: int  # texts

    def spread(self, which: Which, split: str, collapsed: bool = True) -> Spread | None:
        """Return mean and deviation over the seeds, with or without collapsed runs."""
        group = self.tuned if which == "tuned" else self.start
        values = [r.value(split) for r in group if collapsed or not r.collapsed]
        kept = [value for value in values if value is not None]
        return summarise_seeds(kept) if kept else None

    def collapses(self, which: Which) -> str:
        """Describe which restarts collapsed, or return ""."""
        group = self.tuned if which == "tuned" else self.start
        seeds = [r.seed for r in group if r.collapsed]
        return describe_collapses(seeds, len(group), "restarts") if seeds else ""

    def best(self, higher_is_better: bool) -> Restart | None:
        """Return the tuned restart that is best on dev."""
        able = [r for r in self.tuned if r.dev is not None]
        sign = 1 if higher_is_better else -1
        return max(able, key=lambda r: sign * (r.dev or 0.0), default=None)


def restarts(
    study: Study,
    settings: Mapping[str, Value],
    limits: Limits,
    on_restart: Callable[[Restart], None] = lambda restart: None,
) -> Restarts:
    """Train the missing restarts, sharing the work with other processes, and compare."""
    configs: dict[Which, Config] = {"tuned": study.plan.config(settings), "start": study.plan.base}
    if resolve_config(configs["tuned"]) == resolve_config(configs["start"]):
        del configs["start"]  # the search led back to where it began
    # Not the seed of the search: its winner may owe its place to that very seed.
    seeds = range(limits.seed + 1, limits.seed + 1 + limits.seeds)
    units: list[tuple[Which, int]] = [(which, seed) for seed in seeds for which in configs]
    results: dict[tuple[Which, int], Restart] = {}
    for wait in (False, True):  # first what nobody does; then what others did not finish
        for which, seed in units:
            if (which, seed) not in results:
                config = configs[which].with_values({"train.seed": seed}, "restart")
                if result := _run_restart(study, which, seed, config, limits.device, wait):
                    results[which, seed] = result
                    on_restart(result)
    groups = {which: [results[which, seed] for seed in seeds] for which in configs}
    return compare_groups(study, groups["tuned"], groups.get("start", []))


def restart_dir(folder: Path, which: Which, seed: int) -> Path:
    """Return the run folder of a restart."""
    return folder / "restarts" / f"{which}-{seed}"


def compare_groups(study: Study, tuned: Sequence[Restart], start: Sequence[Restart]) -> Restarts:
    """Return both groups with collapsed runs marked, and the paired test between them."""
    split: Literal["dev", "test"] = "test" if study.plan.base["data"].get("test") else "dev"
    named, answered = [], []
    for group in (tuned, start):
        answers = [_answers(restart_dir(study.folder, r.which, r.seed)) for r in group]
        named.append(mark_collapsed(group, list(map(_pairs, answers)), split, study.plan))
        answered.append([each for each in answers if each])
    sizes = {len(each) for group in answered for each in group}
    p = None
    if all(answered) and len(sizes) == 1:  # the same texts, every time
        p = _p_value(study.plan, *answered)
    return Restarts(named[0], named[1], split, p, max(sizes, default=0))


def _p_value(plan: SearchSpec, tuned: Sequence[Answers], start: Sequence[Answers]) -> float | None:
    """Return the p-value of the difference; each text's score is the mean over the seeds."""
    full = resolve_config(plan.base)
    if full["task"].get("kind") in text_scores.TEXT_TASKS:
        comparison = text_scores.compare_systems(build_task(full), plan.metric, tuned, start)
        return None if comparison is None else comparison.p
    a, b = (np.mean([_scores(_pairs(each)) for each in group], axis=0) for group in (tuned, start))
    return paired_bootstrap(a, b)


def mark_collapsed(
    group: Sequence[Restart],
    answers: Sequence[Sequence[LabelPair]],
    split: str,
    plan: SearchSpec,
) -> tuple[Restart, ...]:
    """Return the group with a reason at each run that learned nothing."""
    sign = 1 if plan.higher_is_better else -1
    floors = [constant_baseline(each, plan.metric) for each in answers]
    gains = [
        None if (value := r.value(split)) is None or least is None else sign * (value - least)
        for r, least in zip(group, floors, strict=True)
    ]
    out = []
    for i, (restart, each) in enumerate(zip(group, answers, strict=True)):
        others = [g for j, g in enumerate(gains) if j != i and g is not None]
        gain, reason = gains[i], ""
        predictions = {_plain(answer) for _, answer in each}
        gold = {_plain(label) for label, _ in each}
        if len(each) > 1 and len(predictions) == 1 and len(gold) > 1:
            reason = (
                f"it answers {predictions.pop()[:80] or 'nothing'} to all {len(each)} {split} texts"
            )
        elif gain is not None and others and gain < MIN_GAIN_FRACTION * median(others):
            reason = (
                f"its {plan.metric} of {restart.value(split):.3f} on {split} gains {gain:.3f} over "
                f"one answer for all ({floors[i]:.3f}), the others {median(others):.3f}"
            )
        value = restart.value(split)
        reason = reason or not_above_baseline(
            each, plan.metric, plan.higher_is_better, value, split
        )
        reason = reason or restart.collapsed  # what its training loss said
        out.append(replace(restart, collapsed=reason))
    return tuple(out)


def _run_restart(
    study: Study, which: Which, seed: int, config: Config, device: str, wait: bool
) -> Restart | None:
    """Return the restart, trained now or earlier; None while another process trains it."""
    folder = restart_dir(study.folder, which, seed)
    digest = _digest(config, study.plan)
    lock = file_lock(study.folder, f"{which}-{seed}")
    if wait:
        with lock:
            return _load_result(folder, digest) or _train(
                study.plan, which, seed, config, device, folder
            )
    with try_lock(lock) as mine:
        if not mine:
            return None
        return _load_result(folder, digest) or _train(
            study.plan, which, seed, config, device, folder
        )


def _train(
    plan: SearchSpec, which: Which, seed: int, config: Config, device: str, folder: Path
) -> Restart:
    shutil.rmtree(folder, ignore_errors=True)
    restart = Restart(which, seed, _digest(config, plan))
    try:
        outcome = train(config, folder, device=device, quiet=True)
        values = {split: figures[plan.metric].value for split, figures in outcome.figures.items()}
        restart = replace(
            restart,
            dev=values.get("dev"),
            test=values.get("test"),
            seconds=outcome.record["seconds"],
            collapsed=_collapse_note(plan, outcome.record),
        )
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    except Exception as error:
        restart = replace(restart, error=error_line(error, folder))
        folder.mkdir(parents=True, exist_ok=True)
    # Last: with this file the restart counts as finished.
    write_text(folder / RESULT, json.dumps(asdict(restart), ensure_ascii=False))
    return restart


def _collapse_note(plan: SearchSpec, record: RunRecord) -> str:
    """Return a reason if the loss never decreased; language models learn slowly and are exempt."""
    kind = plan.base["task"].get("kind", "classify")
    return "" if kind in (*text_scores.TEXT_TASKS, "masked") else loss_never_decreased(record)


def _load_result(folder: Path, digest: str) -> Restart | None:
    try:
        known = Restart(**json.loads((folder / RESULT).read_text("utf-8")))
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None
    return known if known.digest == digest else None


def _digest(config: Config, plan: SearchSpec) -> str:
    text = json.dumps([resolve_config(config), dict(plan.contents)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _answers(folder: Path) -> Answers:
    """Return the predictions of a restart with their labels."""
    path = folder / "predictions.jsonl"
    return list(_lines(path)) if path.is_file() and (folder / RESULT).is_file() else []


def _lines(path: Path) -> Iterator[SavedAnswer]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            yield {name: row[name] for name in ANSWER_KEYS if name in row}


def _pairs(answers: Answers) -> list[LabelPair]:
    """Return (label, prediction) of each text."""
    return [(answer["label"], answer["value"]) for answer in answers]


def _scores(answers: Sequence[LabelPair]) -> np.ndarray:
    """Return the score of each text: 1 or 0, or minus the squared error of a number."""
    return np.array(
        [
            -((float(gold) - value) ** 2)
            if _number(value)
            else float(_plain(gold) == _plain(value))
            for gold, value in answers
        ]
    )


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
