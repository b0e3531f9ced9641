"""weft tune"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.cli.stopping import repeatable
from weft.errors import UserError
from weft.progress import open_bar, print_line

if TYPE_CHECKING:
    from weft.config import Config
    from weft.tune.restart import Restart
    from weft.tune.study import TrialRecord

    ProgressCallback = Callable[[TrialRecord | Restart | str, str, int | None], None]


def tune(
    config: Annotated[Path | None, typer.Argument(help="A .toml or .json configuration.")] = None,
    *,
    output: options.Output,
    recipe: Annotated[str, typer.Option(help="Name of a built-in recipe.")] = "",
    train: Annotated[
        str,
        typer.Option(
            help="Training file or folder; SOURCE,TARGET: parallel files; hf:NAME: a dataset."
        ),
    ] = "",
    dev: Annotated[str, typer.Option(help="Dev file on which trials are compared.")] = "",
    test: Annotated[str, typer.Option(help="Test file, used only for the restarts.")] = "",
    text: options.Text = "",
    text_pair: options.TextPair = "",
    label: options.Label = "",
    target: options.Target = "",
    names: options.Names = "",
    task: options.Task = "",
    on_bad_row: options.OnBadRow = "",
    pretrained: options.Pretrained = "",
    searches: Annotated[
        list[str],
        typer.Option(
            "--search",
            help="Search space: 'train.learning_rate=1e-4..1e-2 log', 'encoder.hidden=64,128', "
            "'head.dropout=0..0.5 step 0.1'. Adds to [search] of the configuration.",
        ),
    ] = [],  # noqa: B006
    preset: Annotated[str, typer.Option(help="Predefined search space: bert or small.")] = "",
    sampler: Annotated[
        str, typer.Option(help="tpe, random or grid; default: the preset's, else tpe.")
    ] = "",
    trials: Annotated[
        int, typer.Option(help="Total trials, finished ones included; 0: 20, or the whole grid.")
    ] = 0,
    minutes: Annotated[
        float, typer.Option(help="Start no trial after this many minutes; running ones finish.")
    ] = 0.0,
    seeds: Annotated[
        int, typer.Option(help="Restarts of the best configuration with new seeds.")
    ] = 3,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Stop trials that fall behind the median.")
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = "auto",
    workers: Annotated[
        int,
        typer.Option(
            help="Worker processes, at most one per CPU core; 0: one, or with --on as many as fit."
        ),
    ] = 0,
    on: options.On = "",
    needs: options.Needs = "",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Search settings on the dev set, then retrain the best with new seeds."""
    flags = {
        "data.train": ("--train", train),
        "data.dev": ("--dev", dev),
        "data.test": ("--test", test),
        "data.text": ("--text", options.column(text)),
        "data.text_pair": ("--text-pair", options.column(text_pair)),
        "data.label": ("--label", options.column(label)),
        "data.target": ("--target", target),
        "data.names": ("--names", options.label_names(names)),
        "data.on_bad_row": ("--on-bad-row", on_bad_row),
        "task.kind": ("--task", task),
        "train.seed": ("--seed", seed),
    }
    if preset == "bert" and not (config or recipe):
        recipe = "bert"
    base = options.apply(_base(config, recipe, pretrained), flags, sets)
    from weft.report.pages import tune as report
    from weft.tune import parse
    from weft.tune import tune as run

    with repeatable("finished trials"), _progress(quiet) as on_trial:
        found = run(
            base,
            output,
            search=parse(searches),
            preset=preset,
            sampler=sampler,
            trials=trials,
            minutes=minutes,
            seeds=seeds,
            prune=prune,
            workers=workers,
            on=on,
            needs=needs,
            device=device,
            overwrite=overwrite,
            on_trial=on_trial,
            on_message=lambda text: on_trial(text, "", None),
        )
    command = ["weft", *(word for word in sys.argv[1:] if word != "--overwrite")]
    page = report.write(found, command)
    report.print_table(found)
    typer.echo(f"best configuration: {output / 'best.toml'}  model: {output / 'model'}")
    typer.echo(f"report: {page}")


def _base(config: Path | None, recipe: str, pretrained: str) -> "Config":
    from weft import config as configuration

    if bool(config) == bool(recipe):
        raise UserError(
            "Nothing to tune: pass a configuration file or --recipe NAME (see `weft list`)."
        )
    base = configuration.load(config) if config else configuration.recipe(recipe)
    return configuration.with_pretrained(base, pretrained) if pretrained else base


@contextlib.contextmanager
def _progress(
    quiet: bool,
) -> Iterator["ProgressCallback"]:
    """Show a progress bar over the trials on a terminal, otherwise a line per trial."""
    from weft.report.pages.tune import describe_progress

    if quiet:
        yield lambda news, metric, total: None
        return
    bar = open_bar("trials", 0)
    if bar is None:
        yield lambda news, metric, total: print_line(describe_progress(news, metric))
        return
    with contextlib.closing(bar):

        def advance(news: "TrialRecord | Restart | str", metric: str, total: int | None) -> None:
            bar.say(describe_progress(news, metric))
            number = getattr(news, "number", None)
            if number is not None:
                bar.update(done=number, total=total)

        yield advance
