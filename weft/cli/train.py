"""weft train"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.stopping import resumable
from weft.errors import UserError


def train(
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
    dev: Annotated[str, typer.Option(help="Held-out file for early stopping.")] = "",
    test: Annotated[str, typer.Option(help="Test file for the final model.")] = "",
    text: options.Text = "",
    text_pair: options.TextPair = "",
    label: options.Label = "",
    weight: options.Weight = "",
    target: options.Target = "",
    names: options.Names = "",
    task: options.Task = "",
    on_bad_row: options.OnBadRow = "",
    pretrained: options.Pretrained = "",
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    ensemble: Annotated[
        int | None, typer.Option(help="Train this many seeds as one model, an ensemble.")
    ] = None,
    threshold_for: Annotated[
        str,
        typer.Option(
            help="Goal of the decision threshold on dev: f1, recall=NUMBER or precision=NUMBER."
        ),
    ] = "",
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the output folder.")
    ] = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that train the model together, one per GPU.")
    ] = 1,
    max_restarts: Annotated[
        int,
        typer.Option(min=0, help="Restarts from the last checkpoint if a process fails."),
    ] = 0,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Train one model on your data."""
    from weft import config as configuration
    from weft.machine import launched_rank

    if processes > 1 and launched_rank()[1] == 1:
        _launch(processes, max_restarts, output, device)
        return

    earlier = output / "config.toml"
    if config and recipe:
        raise UserError("Pass a configuration file or --recipe, not both.")
    if config:
        base = configuration.load(config)
    elif recipe:
        base = configuration.recipe(recipe)
    elif resume and earlier.is_file():
        base = configuration.load(earlier)
    elif resume:
        raise UserError(f"{output}: nothing to resume: no config.toml in this folder.")
    else:
        raise UserError(
            "Nothing to train: pass a configuration file or --recipe NAME (see `weft list`)."
        )
    if pretrained:
        base = configuration.with_pretrained(base, pretrained)
    flags = {
        "data.train": ("--train", train),
        "data.dev": ("--dev", dev),
        "data.test": ("--test", test),
        "data.text": ("--text", options.column(text)),
        "data.text_pair": ("--text-pair", options.column(text_pair)),
        "data.label": ("--label", options.column(label)),
        "data.weight": ("--weight", options.column(weight)),
        "data.target": ("--target", target),
        "data.names": ("--names", options.label_names(names)),
        "data.on_bad_row": ("--on-bad-row", on_bad_row),
        "task.kind": ("--task", task),
        "train.seed": ("--seed", seed),
        "train.ensemble": ("--ensemble", ensemble),
        "task.threshold_for": ("--threshold-for", threshold_for),
    }
    from weft.run import train as run
    from weft.run.folder import resume_hint

    with resumable(lambda: resume_hint(output, device), output / "log.txt"):
        run(
            options.apply(base, flags, sets),
            output,
            device=device,
            resume=resume,
            overwrite=overwrite,
            quiet=quiet,
        )


def _launch(processes: int, max_restarts: int, output: Path, device: str) -> None:
    """Run this command in several processes."""
    from weft.run.folder import resume_hint
    from weft.runtime import launch

    with resumable(lambda: resume_hint(output, device)):
        launch("weft", sys.argv[1:], processes, max_restarts)
