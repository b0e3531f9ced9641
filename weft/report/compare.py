"""The bake-off: several recipes on one file, several seeds, one leaderboard and one page.

OUT/trials/RECIPE-SEED[-foldN]/  leaderboard.json  report.html  model/  split.npz  [test.*]
"""

import dataclasses
import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from weft import config as configuration
from weft import registry
from weft.compare.budget import Clock
from weft.compare.dataset_stats import Facts, facts, looks_numeric, right
from weft.compare.detect_task import chosen, fitting, fitting_files, others
from weft.compare.leaderboard import Row, table, verdict
from weft.compare.plan import Plan, begun, command, kind_of, starts
from weft.compare.ranking import rank
from weft.compare.scheduler import Race, crew, progress
from weft.compare.trial import RESULT, Cut, Result, Trial
from weft.compare.write_test_split import write_test
from weft.config import Config
from weft.errors import UserError, unknown_name
from weft.report.analysis.disagreements import disputes
from weft.report.analysis.generation_samples import written
from weft.report.analysis.model_analysis import look
from weft.report.pages.compare import Page, render
from weft.run.data import Data, choose_columns, example_source, read_mode, validate
from weft.run.split import Splits, choose_holdout
from weft.run.text_scores import TEXT_TASKS
from weft.run.train import infer_task_settings, resolve_config
from weft.storage import copy_folder, lock_folder, write_text
from weft.tasks.task import build_task
from weft.text.example import Tally
from weft.text.formats.parallel import resolve_files
from weft.text.read import GUESSED_HEADER
from weft.train.gradient_verdict import GradientHealth

if TYPE_CHECKING:
    from weft.doctor import Diagnosis

__all__ = ["Row", "compare", "folder_for", "show", "table"]

P = ParamSpec("P")


def _alone(run: Callable[P, list[Row]]) -> Callable[P, list[Row]]:
    """Let one process at a time compare in a folder."""

    @functools.wraps(run)
    def compare(*args: P.args, **options: P.kwargs) -> list[Row]:
        given = inspect.signature(run).bind(*args, **options).arguments
        files = given["files"]
        if isinstance(files, str) or not files:
            return run(*args, **options)  # which says what is wrong with them
        with lock_folder(Path(given.get("output") or folder_for(files[0])), "comparing") as note:
            if note:
                print(f"note: {note}", file=sys.stderr, flush=True)
            return run(*args, **options)

    return compare


@registry.check_types
@registry.with_trust(lambda files: lambda name: "")
@_alone
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
    changes: Mapping[str, Any] = {},
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    trust: Sequence[str] = (),
) -> list[Row]:
    """Train every recipe with every seed, and write leaderboard.json, report.html and model/.

    Trials run in processes of their own. A finished one is not repeated; a recipe that fails
    becomes a row with its error. `minutes` is a limit for everything (see `budget`): recipes that
    it is too short for are listed below the others, as "not enough time". With `pretrained`, a
    checkpoint, recipes that start from one of its kind are compared, too. Parts from outside Weft
    are imported only from packages in `trust`. `metric` is what recipes are ranked by and early
    stopping looks at, such as `macro_f1`; by default the task's own.
    """
    clock = Clock(minutes)
    files = [files] if isinstance(files, str) else list(files)
    seeds = seeds or (1 if folds else 3)
    _check(files, dev, seeds, folds, minutes)
    paths = dict(zip(("data.train", "data.test"), files, strict=False)) | {"data.dev": dev}
    given = {key: value for key, value in paths.items() if value} | dict(changes)
    if metric:
        given["train.metric"] = metric
    if task:
        given["task.kind"] = task
    data = _data(given)
    names, hint = _recipes(data, given, recipes or (), pretrained)
    data, hint = _chosen(data, given, names[0], hint)
    bases = {name: begun(name, pretrained) for name in names}
    output = _folder(Path(output or folder_for(files[0])))
    if hint and not quiet:
        print(hint, file=sys.stderr, flush=True)
    subject = _subject(data, given, folds, output, bases[names[0]], hint)
    if wanted := given.get("train.metric"):
        _check_metric(wanted, bases[names[0]].with_values(_of_task(given), "compare"), subject)
    men = crew(device, workers, given.get("train.threads", 0))
    given["train.threads"] = men.threads
    plan = Plan(bases, given, subject.cut, seeds, output / "trials", subject.data, pretrained)
    known = _known(plan, overwrite)
    diagnosis = _diagnose(subject, quiet)
    trials = [trial for name in _by_cost(plan) for trial in plan.trials[name]]
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
    with progress(len(trials), quiet) as say:
        race = Race(men, clock, say)
        race.run(trials, known)
        rows, finished = rank(race, plan, names, men.devices[0], subject.facts)
        say(0, "writing the report")
        page = Page(
            rows=rows,
            finished=finished,
            facts=subject.facts,
            command=command(files, output, options, changes) + _trust_flags(),
            seeds=seeds,
            output=output,
            diagnosis=diagnosis,
        )
        write_text(output / "leaderboard.json", _json([r.to_json() for r in rows]))
        page = _with_model(page, subject, men.devices[0], clock.left)
        write_text(output / "report.html", render(page))
    if not any(r.status == "ranked" for r in rows):
        raise UserError(_nothing(rows, minutes))
    return rows


def folder_for(path: str) -> Path:
    """Where a comparison goes when nobody said."""
    return Path("runs") / f"{Path(resolve_files(path)[0]).name.split('.')[0] or 'data'}-compared"


def show(rows: Sequence[Row], output: Path) -> None:
    """Print the table, and where everything is."""
    table(rows)
    print(f"model:  {output / 'model'}")
    print(f"report: {output / 'report.html'}")


@dataclass(frozen=True)
class Subject:
    """The data that everything is compared on."""

    data: Data
    cut: Cut
    splits: Splits  # of the first fold, where there are folds
    facts: Facts


def _trust_flags() -> list[str]:
    """Return the options that trust what is trusted here."""
    return [word for package in registry.trusted_packages() for word in ("--trust", package)]


def _of_task(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key.startswith("task.")}


def _check_metric(metric: str, config: Config, subject: Subject) -> None:
    """Refuse a metric that the task does not have, before anything is trained."""
    full = resolve_config(config)
    full["task"] |= infer_task_settings(config, subject.splits.train)
    task = build_task(full)
    known = task.build_metric(task.space(subject.splits.train())).compute(resamples=0)
    if metric not in known:
        raise unknown_name("metric", metric, known, "--metric")


def _data(given: Mapping[str, Any]) -> Data:
    section = {key[5:]: value for key, value in given.items() if key.startswith("data.")}
    return validate(Data(**registry.check(Data, section, "[data]")))


def _recipes(
    data: Data, given: Mapping[str, Any], named: Sequence[str], pretrained: str
) -> tuple[list[str], str]:
    """What is compared, and a sentence on what else the file is for where nobody said."""
    fits = (*_fits(data), *(("nodes",) if data.parser else ()))
    wish = given.get("task.kind", "")
    kind = chosen(wish, named, fits, data.train)
    start = kind_of(pretrained) if pretrained else ""
    known = configuration.recipes(kind, start) if start else configuration.recipes(kind)
    names = list(dict.fromkeys(named or filter(_comparable, known)))
    if not names:
        raise UserError(f"No recipe is made for the task '{kind}'. Name some with --recipes.")
    if pretrained and not any(map(starts, names)):
        raise UserError(
            f"--pretrained {pretrained}: none of the recipes starts from a checkpoint of the kind "
            f"'{start}': {', '.join(names)}. Leave it out, or name others with --recipes."
        )
    told = (_guessed(data), "" if wish or named else others(kind, fits), _apart(names))
    return names, " ".join(filter(None, told))


def _chosen(data: Data, given: dict[str, Any], name: str, hint: str) -> tuple[Data, str]:
    """Decide on the columns once; they go into `given`, and what was decided into the hint."""
    task = {"kind": "classify", **configuration.recipe(name)["task"]}
    task |= {key[5:]: value for key, value in given.items() if key.startswith("task.")}
    data, lines = choose_columns(data, task)
    chosen = {f"data.{key}": getattr(data, key) for key in ("text", "text_pair", "label", "second")}
    given |= {key: value for key, value in chosen.items() if value != ""}
    return data, "\n".join(filter(None, (*lines, hint)))


def _apart(names: Sequence[str]) -> str:
    """What to say of models in one table whose figures are of two kinds."""
    kinds = {name: configuration.recipe(name)["decoder"].get("kind") for name in names}
    both = [name for name, kind in kinds.items() if kind == "bidirectional-lm"]
    if not both or len(both) == len(names):
        return ""
    return (
        f"{', '.join(both)}: sees both sides of a word, so its figure is a pseudo-perplexity, not "
        "to be ranked with the others."
    )


def _fits(data: Data) -> tuple[str, ...]:
    files = resolve_files(data.train, data.target)
    if len(files) > 1 and not data.target:
        return fitting_files(files)
    return ("seq2seq",) if len(files) > 1 else fitting(example_source(data, data.train)())


def _guessed(data: Data) -> str:
    """What to say of a training file whose first line was taken for a header, by what is below."""
    seen = Tally()
    next(example_source(data, data.train, seen)(), None)
    return (
        f"{data.train}:1: the first line is taken for a header."
        if GUESSED_HEADER in seen.counts
        else ""
    )


def _comparable(name: str) -> bool:
    """Whether a recipe is for texts, and foretells them from what came before; others are named.

    What sees both sides of a word has a pseudo-perplexity, lower than any perplexity.
    """
    parts = configuration.recipe(name)
    tables = [parts[s] for s in ("embedder", "decoder") if s in parts]
    listed = [one for table in tables for one in (table if isinstance(table, list) else [table])]
    return not {"vectors", "bidirectional-lm"} & {one.get("kind") for one in listed}


def _subject(
    data: Data, given: dict[str, Any], folds: int, output: Path, base: Config, hint: str
) -> Subject:
    """Find out what the data is for, and cut it; the kind of task goes into `given`."""
    kind = given.get("task.kind", base["task"].get("kind", ""))
    writes = kind if kind in TEXT_TASKS else ""
    if not kind and looks_numeric(example_source(data, data.train)()):
        given["task.kind"] = "regress"
    if kind == "pair-classify" and looks_numeric(example_source(data, data.train)()):
        given["task.kind"] = "pair-score"
    config = base.with_values(_of_task(given), "compare")
    manner = read_mode({"kind": "classify", **config["task"]})
    if folds and manner != "labelled":
        raise UserError("A running text cannot be cut into folds. Give a test file instead.")
    numbers = given.get("task.kind") in ("regress", "pair-score")
    cut = Cut(str(output / "split.npz"), folds, numbers, manner)
    kept = ""
    if not folds and manner == "labelled":
        picked = choose_holdout(data, cut.numbers, bool(writes))
        picked.save(Path(cut.holdout))
        kept = picked.note
    splits = cut.splits(data, 1 if folds else None)
    found = facts(data, splits, folds, cut.numbers, right(config, data), writes)
    found = dataclasses.replace(found, notes=(*filter(None, [hint, kept]), *found.notes))
    if splits.test is not None and found.rows.get("test") == 0:
        raise UserError(
            f"{data.train}: too few rows to cut a test part from. Give a test file, or use --folds."
        )
    return Subject(data, cut, splits, found)


def _nothing(rows: Sequence[Row], minutes: float) -> str:
    """Say why no recipe can be recommended."""
    if short := [r for r in rows if r.status == "not enough time"]:
        told = "; ".join(f"{r.recipe}: {r.short}" for r in short[:3])
        return f"No recipe had enough time in {minutes:g} minutes. {told}. Give more --minutes."
    return f"No recipe could be trained. {'; '.join(f'{r.recipe}: {r.error}' for r in rows[:3])}"


def _by_cost(plan: Plan) -> list[str]:
    """The recipes that can be trained, cheapest first as far as can be known before."""

    def key(name: str) -> tuple[bool, int]:
        about = configuration.recipe(name)["recipe"]
        cheap = plan.trials[name][0].classic and not about.get("pretrained")
        return not cheap, about.get("order", 99)

    return sorted(plan.trials, key=key)


def _known(plan: Plan, overwrite: bool) -> dict[Path, Result]:
    """Results of earlier trials; a complaint comes before the first training, not an hour later."""
    out = {}
    for trial in (trial for each in plan.trials.values() for trial in each):
        if overwrite:
            (trial.folder / RESULT).unlink(missing_ok=True)
        elif result := trial.finished():
            out[trial.folder] = result
    return out


def _with_model(page: Page, subject: Subject, device: str, seconds: float) -> Page:
    """Save the model that the verdict names, and look at it for the page, in so many seconds."""
    found = verdict(page.rows)
    if found is None:
        return page
    pairs = [pair for pair in page.finished if pair[0].recipe == found.choice.recipe]
    sign = 1 if found.best.higher_is_better else -1
    # By dev: choosing the seed by its test figure would make that figure too good.
    trial, _ = max(pairs, key=lambda pair: (sign * (pair[1].dev or 0.0), -pair[0].seed))
    model = _save(trial, page.output)
    test = subject.data.test or _test_file(subject, page.output)
    if trial.writes:
        order = [found.choice.recipe, *(row.recipe for row in page.rows)]
        texts = written(page.finished, list(dict.fromkeys(order)))
        healths = _healths(page.finished)
        return dataclasses.replace(
            page, model=str(model), test=test, written=texts, healths=healths
        )
    seen = look(trial, device, seconds=seconds)
    return dataclasses.replace(
        page,
        model=str(model),
        test=test,
        look=seen,
        healths=_healths(page.finished),
        disputes=disputes(page.finished, [one.label for one in seen.answers.classes]),
    )


def _healths(finished: Sequence[tuple[Trial, Result]]) -> dict[str, GradientHealth]:
    """The gradient health of each neural recipe, as its first training ended."""
    out: dict[str, GradientHealth] = {}
    for trial, _ in finished:
        path = trial.folder / "health.json"
        if trial.recipe not in out and path.is_file():
            out[trial.recipe] = GradientHealth.from_json(json.loads(path.read_text("utf-8")))
    return out


def _save(trial: Trial, output: Path) -> Path:
    """Copy a trial's model to OUT/model, whole or not at all."""
    return copy_folder(trial.folder / "model", output / "model")


def _test_file(subject: Subject, output: Path) -> str:
    """Write the test part that was cut from train, so that anybody can measure on it."""
    if subject.cut.folds or subject.splits.test is None:
        return ""
    return write_test(subject.data, subject.splits.test, output)


def _diagnose(subject: Subject, quiet: bool) -> "Diagnosis":
    """The data doctor's findings, the grave ones said at once."""
    from weft.doctor import examine

    splits, rows = subject.splits, sum(subject.facts.rows.values())
    sources = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    if subject.cut.folds:
        sources = {"all": example_source(subject.data, subject.data.train)}
    if not quiet:
        print(f"looking at {rows:,} rows", file=sys.stderr, flush=True)
    given = {name: examples for name, examples in sources.items() if examples}
    pairs = subject.facts.writes == "seq2seq"
    diagnosis = examine(given, dict(subject.facts.files), pairs=pairs)
    if not quiet:
        for finding in diagnosis.findings:
            if finding.level != "note":
                print(f"{finding.level}: {finding.title}", file=sys.stderr, flush=True)
    return diagnosis


def _check(files: Sequence[str], dev: str, seeds: int, folds: int, minutes: float) -> None:
    if not 1 <= len(files) <= 2:
        raise UserError(f"Give a training file and perhaps a test file; got {len(files)} files.")
    if "-" in (*files, dev):
        raise UserError("Standard input can be read only once; save it to a file to compare on it.")
    if seeds < 1:
        raise UserError(f"--seeds should be at least 1, got {seeds}.")
    if not minutes >= 0:
        raise UserError(f"--minutes should be 0 (no limit) or more, got {minutes:g}.")
    if folds and folds < 2:
        raise UserError(f"--folds should be at least 2 (or 0 for none), got {folds}.")
    if folds and len(files) > 1:
        raise UserError(
            "With --folds every part of the one file is the test once; leave out "
            f"'{files[1]}', or leave out --folds."
        )


def _folder(output: Path) -> Path:
    try:
        (output / "trials").mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{output} is a file; give a folder to -o.") from None
    except OSError as error:
        raise UserError(f"Cannot write to {output}: {error.strerror or error}.") from None
    return output


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
