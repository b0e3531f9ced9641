"""weft lab list and weft lab run"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.stopping import repeatable

QUICK_SECONDS, QUICK_SEEDS = 4.0, 3  # CPU time of one seed, and seeds, of --quick


def show(json: options.Json = False) -> None:
    """List the experiments: name, claim, and the CPU time of all seeds."""
    from weft.lab.catalogue import THEMES, find_experiments
    from weft.progress import duration

    theme = ""
    for experiment in find_experiments(["all"]):
        seconds = experiment.seconds * experiment.seeds
        if json:
            _print_json(
                name=experiment.name, theme=experiment.theme, claim=experiment.claim,
                decks=list(experiment.decks), seeds=experiment.seeds, seconds=seconds,
            )  # fmt: skip
            continue
        if experiment.theme != theme:
            theme = experiment.theme
            typer.echo(f"\n{THEMES[theme]} ({theme})")
        typer.echo(f"  {experiment.name:<24} {experiment.claim} ({duration(seconds)})")


def run(
    names: Annotated[
        list[str], typer.Argument(help="Experiments, themes, or all; `weft lab list` names them.")
    ],
    *,
    output: options.Output = Path("lab"),
    seeds: Annotated[
        int, typer.Option(help="Seeds of each experiment; 0: as many as it was planned with.")
    ] = 0,
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(help="Parallel processes; 0: one per core.")] = 0,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Only experiments of a few seconds, and each claim that holds turned around: the "
            "opposite must fail.",
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run experiments, judge their claims, and write lab.html.

    Finished seeds are kept in OUTPUT/runs, so the same command goes on where it stopped.
    """
    from weft.lab.catalogue import find_experiments
    from weft.lab.page import write_page
    from weft.lab.run import find_missed, run_experiments

    experiments = find_experiments(names)
    if quick:
        experiments = [e for e in experiments if e.seconds <= QUICK_SECONDS]
        seeds = seeds or QUICK_SEEDS
    total = sum(seeds or experiment.seeds for experiment in experiments)
    with repeatable("finished runs"), _show_progress(total, quiet or json) as on_finished:
        trials = run_experiments(
            experiments, output, seeds=seeds, first_seed=first_seed, workers=workers,
            on_finished=on_finished,
        )  # fmt: skip
        page = write_page(trials, output)
    for trial in trials:
        outcome = trial.verdict.outcome if trial.verdict else "failed"
        sentence = trial.verdict.sentence if trial.verdict else trial.failure
        if json:
            _print_json(
                name=trial.experiment.name, claim=trial.experiment.claim, outcome=outcome,
                sentence=sentence, seeds=[run.seed for run in trial.runs],
                cpu_seconds=round(sum(run.cpu_seconds for run in trial.runs), 1),
            )  # fmt: skip
        elif not quiet:
            typer.echo(f"{trial.experiment.name}: {outcome}. {sentence}")
    if not (json or quiet):
        typer.echo(f"page: {page}")
    missed = find_missed(trials) if quick else []
    if quick and not (json or quiet):
        right = sum(t.verdict is not None and t.verdict.outcome == "holds" for t in trials)
        typer.echo(f"turned around, {right - len(missed)} of {right} claims that hold do not")
    if missed or any(trial.verdict is None for trial in trials):
        raise typer.Exit(1)


@contextmanager
def _show_progress(total: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Yield a function to call with the experiment and seed of every finished run."""
    if quiet:
        yield lambda name, seed: None
        return
    from weft.progress import following

    done = 0

    def report(name: str, seed: int) -> None:
        nonlocal done
        done += 1
        follow(f"{done} of {total} runs, {name} seed {seed}", done / max(total, 1))

    with following("experiments") as follow:
        yield report


def _print_json(**values: object) -> None:
    import json

    typer.echo(json.dumps(values, ensure_ascii=False))
