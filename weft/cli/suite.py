"""weft suite"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.stopping import repeatable


def suite(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder with a sub-folder per task (train.*, test.*), or suite.toml."),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Output folder; default: runs/NAME-suite."),
    ] = None,
    recipes: Annotated[
        str,
        typer.Option(
            help="Comma-separated recipes; each task takes the first that fits. Default with "
            "--pretrained: those that fine-tune it."
        ),
    ] = "",
    pretrained: options.Pretrained = "",
    baseline: Annotated[
        str, typer.Option(help="Comma-separated recipes of a second system to compare with.")
    ] = "",
    seeds: Annotated[int, typer.Option(help="Restarts per task.")] = 3,
    minutes: Annotated[float, typer.Option(help="Time limit in minutes; 0 for none.")] = 0,
    workers: Annotated[int, typer.Option(help="Parallel runs; 0: as many as fit.")] = 0,
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Train on every task of a suite and average the scores, as GLUE does."""
    from weft.config import overrides
    from weft.report.suite import print_table
    from weft.report.suite import suite as run

    with repeatable("finished runs"):
        page = run(
            folder,
            output or "",
            recipes=options.split_names(recipes),
            baseline=options.split_names(baseline),
            pretrained=pretrained,
            seeds=seeds,
            minutes=minutes,
            workers=workers,
            changes=overrides(sets),
            device=device,
            overwrite=overwrite,
            quiet=quiet,
        )
    print_table(page)
