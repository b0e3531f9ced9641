"""The bake-off: several recipes on one file, several seeds, one leaderboard and one page.

OUT/trials/RECIPE-SEED[-foldN]/  leaderboard.json  report.html
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft import config as configuration
from weft import registry
from weft.config import Config
from weft.errors import UserError
from weft.report.facts import Facts, facts
from weft.report.leaderboard import Row, ordered, row, table
from weft.report.page import Page, render
from weft.report.trial import ERROR, SOURCES, Result, Trial, identity, write
from weft.report.words import duration, figure
from weft.run.data import Data, checked
from weft.run.split import Splits, digest, folded, with_test
from weft.train.settings import Settings

__all__ = ["Row", "compare", "table"]

Finished = list[tuple[Trial, Result]]


def compare(
    files: Sequence[str],
    output: str | Path,
    *,
    dev: str = "",
    task: str = "",
    recipes: Sequence[str] | None = None,
    seeds: int = 3,
    folds: int = 0,
    changes: Mapping[str, Any] = {},
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> list[Row]:
    """Train every recipe with every seed, and write leaderboard.json and report.html.

    A finished trial is not repeated; a recipe that fails becomes a row with its error.
    """
    _check(files, dev, seeds, folds)
    output = _folder(Path(output))
    names = list(dict.fromkeys(recipes or configuration.recipes()))
    bases = {name: configuration.recipe(name) for name in names}
    given = {
        "data.train": files[0],
        "data.test": files[1] if len(files) > 1 else "",
        "data.dev": dev,
    }
    given = {key: value for key, value in given.items() if value} | dict(changes)
    data = _data(given)
    kind = task or changes.get("task.kind", "")
    parts = folded(data, folds, numbers=kind == "regress") if folds else [with_test(data)]
    found = facts(data, parts[0], folds, numbers=kind == "regress")
    _check_rows(found, parts[0])
    if kind or found.numeric:  # typed numbers can only mean regression
        given["task.kind"] = kind or "regress"
    plan = Plan(bases, given, parts, seeds, folds, output / "trials", data)
    rows, finished = _rows(plan, device, overwrite, quiet)
    command = _command(files, output, dev, task, names, seeds, folds, changes, device)
    write(output / "leaderboard.json", _json([r.to_json() for r in rows]))
    write(output / "report.html", render(Page(rows, finished, found, command, seeds, output)))
    if rows and all(r.error is not None for r in rows):
        told = "; ".join(f"{r.recipe}: {r.error}" for r in rows[:3])
        raise UserError(f"No recipe could be trained. {told}")
    return rows


class Plan:
    """Which trials there are."""

    def __init__(
        self,
        bases: Mapping[str, Config],
        given: Mapping[str, Any],
        parts: Sequence[Splits],
        seeds: int,
        folds: int,
        folder: Path,
        data: Data,
    ):
        self.bases, self.given, self.parts, self.folder = bases, given, parts, folder
        first = given.get("train.seed", Settings().seed)
        self.seeds = range(first, first + seeds)
        self.folds = folds
        self.contents = {name: digest(path) for name in SOURCES if (path := getattr(data, name))}
        self.size = len(bases) * seeds * len(parts)

    def trials(self, recipe: str) -> Iterator[Trial]:
        """The trials of one recipe; a UserError where the changes do not fit it."""
        recipe_ = self.bases[recipe]
        # A change to a part that a recipe does not have is meant for the other recipes.
        fitting = {
            key: value
            for key, value in self.given.items()
            if key.split(".")[0] in (*recipe_.sections, "task", "data", "train")
        }
        base = recipe_.with_values(fitting, "compare")
        for seed in self.seeds:
            config = base.with_values({"train.seed": seed}, "compare")
            for i, part in enumerate(self.parts):
                fold = i + 1 if self.folds else None
                name = f"{recipe}-{seed}" + (f"-fold{fold}" if fold else "")
                known = identity(config, self.contents, fold, self.folds)
                yield Trial(recipe, seed, fold, config, part, self.folder / name, known)


def _rows(plan: Plan, device: str, overwrite: bool, quiet: bool) -> tuple[list[Row], Finished]:
    """Run what is not finished yet; the rows come best first."""
    trials: dict[str, list[Trial]] = {}
    errors: dict[str, str] = {}
    earlier: dict[Path, Result] = {}
    for recipe in plan.bases:
        try:
            trials[recipe] = list(plan.trials(recipe))
        except UserError as error:
            trials[recipe], errors[recipe] = [], str(error)
    # Before the first training, so that nobody waits an hour for this complaint.
    for trial in (trial for each in trials.values() for trial in each):
        if not overwrite and (result := trial.finished()):
            earlier[trial.folder] = result
    finished: Finished = []
    rows = []
    with _progress(plan.size, quiet) as say:
        for recipe, each in trials.items():
            results = []
            for trial in each:
                try:
                    result = earlier.get(trial.folder) or trial.run(device)
                except Exception as error:
                    # One recipe that cannot be trained must not cost the others their place.
                    errors[recipe] = _told(error, trial)
                    break
                results.append(result)
                finished.append((trial, result))
                say(1, _line(trial, result, trial.folder in earlier))
            if recipe in errors:
                rows.append(Row(recipe, error=errors[recipe]))
                say(plan.size // len(trials) - len(results), f"{recipe} failed: {errors[recipe]}")
            else:
                rows.append(row(recipe, results, plan.folds))
    return ordered(rows), finished


def _told(error: Exception, trial: Trial) -> str:
    if isinstance(error, UserError):
        return str(error)
    if trial.folder.is_dir():
        write(trial.folder / ERROR, traceback.format_exc())
    reason = " ".join(str(error).split())
    return f"{type(error).__name__}: {reason} (see {trial.folder / ERROR})"


def _line(trial: Trial, result: Result, known: bool) -> str:
    main = result.figures[result.metric]["value"]
    took = "finished earlier" if known else f"trained in {duration(result.seconds)}"
    return f"{trial.name}: {result.metric} {figure(main, result.metric)}, {took}"


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """A bar over the trials on a terminal, one line a trial otherwise."""
    if quiet:
        yield lambda done, text: None
        return
    if not sys.stderr.isatty():
        so_far = [0]

        def say(done: int, text: str) -> None:
            so_far[0] += done
            print(f"[{so_far[0]}/{total}] {text}", file=sys.stderr, flush=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        line = bar.add_task("trials", total=total)

        def advance(done: int, text: str) -> None:
            bar.console.print(text, markup=False)
            bar.advance(line, done)

        yield advance


def _check(files: Sequence[str], dev: str, seeds: int, folds: int) -> None:
    if isinstance(files, str):
        raise UserError("Give the files as a list: compare([train, test], output).")
    if not 1 <= len(files) <= 2:
        raise UserError(f"Give a training file and perhaps a test file; got {len(files)} files.")
    if "-" in (*files, dev):
        raise UserError("Standard input can be read only once; save it to a file to compare on it.")
    if seeds < 1:
        raise UserError(f"--seeds should be at least 1, got {seeds}.")
    if folds and folds < 2:
        raise UserError(f"--folds should be at least 2 (or 0 for none), got {folds}.")
    if folds and len(files) > 1:
        raise UserError(
            "With --folds every part of the one file is the test once; leave out "
            f"'{files[1]}', or leave out --folds."
        )


def _check_rows(found: Facts, parts: Splits) -> None:
    if parts.test is not None and found.rows.get("test") == 0:
        raise UserError(
            f"{found.files[0][1]}: too few rows to cut a test part from. Give a test file, or "
            "use --folds."
        )


def _folder(output: Path) -> Path:
    try:
        (output / "trials").mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{output} is a file; give a folder to -o.") from None
    except OSError as error:
        raise UserError(f"Cannot write to {output}: {error.strerror or error}.") from None
    return output


def _data(given: Mapping[str, Any]) -> Data:
    section = {key[5:]: value for key, value in given.items() if key.startswith("data.")}
    return checked(Data(**registry.check(Data, section, "[data]")))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _command(
    files: Sequence[str],
    output: Path,
    dev: str,
    task: str,
    names: Sequence[str],
    seeds: int,
    folds: int,
    changes: Mapping[str, Any],
    device: str,
) -> list[str]:
    """The command line that does the same again."""
    words = ["weft", "compare", *map(str, files), "-o", str(output)]
    options = {"--dev": dev, "--task": task, "--recipes": ",".join(names), "--seeds": str(seeds)}
    options |= {
        "--folds": str(folds) if folds else "",
        "--device": device if device != "auto" else "",
    }
    for option, value in options.items():
        words += [option, value] if value else []
    for key, value in changes.items():
        words += ["--set", f"{key}={configuration.written(value)}"]
    return words
