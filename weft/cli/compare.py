"""weft compare"""

from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli import options
from weft.cli.stopping import repeatable


def compare(
    files: Annotated[
        list[str],
        typer.Argument(help="Training file, then test file if there is one; each may be a pair."),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder to write to; default runs/NAME-compared."),
    ] = None,
    dev: Annotated[str, typer.Option(help="Held-out file for early stopping.")] = "",
    text: options.Text = "",
    other: options.Other = "",
    label: options.Label = "",
    target: options.Target = "",
    names: options.Names = "",
    task: Annotated[
        str,
        typer.Option(
            help="classify, regress, pair-classify, pair-score, span, tag, parse, constituency, "
            "nodes, seq2seq or language; found out where possible."
        ),
    ] = "",
    problems: options.Problems = "",
    recipes: Annotated[str, typer.Option(help="Names, separated by commas; default all.")] = "",
    pretrained: Annotated[
        str,
        typer.Option(
            help="A checkpoint (a folder, or a model of `weft convert`): recipes that start from "
            "one are compared, too."
        ),
    ] = "",
    metric: Annotated[
        str,
        typer.Option(help="Metric to rank by and to stop early on, such as macro_f1."),
    ] = "",
    seeds: Annotated[int, typer.Option(help="Trainings of each; 0: 3, or 1 with folds.")] = 0,
    folds: Annotated[int, typer.Option(help="Cross-validation instead of a test file.")] = 0,
    minutes: Annotated[float, typer.Option(help="Be done by then; 0: take all the time.")] = 30,
    workers: Annotated[int, typer.Option(help="Trainings at once; 0: as many as fit.")] = 0,
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Train several architectures on your file and show them in one table."""
    from weft.config import overrides
    from weft.report.compare import compare as run
    from weft.report.compare import folder_for, show

    flags = {"data.text": text, "data.label": label, "data.problems": problems}
    flags |= {"data.target": target, "data.other": other}
    changes: dict[str, Any] = {k: options.column(v) for k, v in flags.items() if v}
    if names:
        changes["data.names"] = options.label_names(names)
    output = output or folder_for(files[0])
    with repeatable("finished trainings"):
        rows = run(
            files,
            output,
            dev=dev,
            task=task,
            recipes=[name.strip() for name in recipes.split(",") if name.strip()] or None,
            pretrained=pretrained,
            metric=metric,
            seeds=seeds,
            folds=folds,
            minutes=minutes,
            workers=workers,
            changes=changes | overrides(sets),
            device=device,
            overwrite=overwrite,
            quiet=quiet,
        )
    show(rows, output)
