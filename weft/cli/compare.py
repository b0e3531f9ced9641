"""weft compare"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.stopping import repeatable


def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Training file, then optionally a test file; each may be SOURCE,TARGET or hf:NAME."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Output folder; default: runs/NAME-compared."),
    ] = None,
    dev: Annotated[str, typer.Option(help="Held-out file for early stopping.")] = "",
    text: options.Text = "",
    text_pair: options.TextPair = "",
    label: options.Label = "",
    target: options.Target = "",
    names: options.Names = "",
    task: Annotated[
        str,
        typer.Option(
            help="classify, regress, pair-classify, pair-score, span, tag, regress-words, parse, "
            "constituency, nodes, seq2seq or language; default: detected from the file."
        ),
    ] = "",
    on_bad_row: options.OnBadRow = "",
    recipes: Annotated[
        str, typer.Option(help="Comma-separated recipe names; default: all that fit the task.")
    ] = "",
    pretrained: Annotated[
        str,
        typer.Option(
            help="Pre-trained checkpoint (a folder, a Weft model, or minilm): also compare the "
            "recipes that fine-tune it."
        ),
    ] = "",
    metric: Annotated[
        str,
        typer.Option(help="Metric for ranking and early stopping, such as macro_f1."),
    ] = "",
    seeds: Annotated[int, typer.Option(help="Runs per recipe; 0: three, or one with --folds.")] = 0,
    folds: Annotated[
        int, typer.Option(help="Number of cross-validation folds, instead of a test file.")
    ] = 0,
    minutes: Annotated[float, typer.Option(help="Time limit in minutes; 0 for none.")] = 30,
    workers: Annotated[int, typer.Option(help="Parallel runs; 0: as many as fit.")] = 0,
    on: options.On = "",
    needs: options.Needs = "",
    ensemble: Annotated[
        bool,
        typer.Option(
            "--ensemble", help="Also rank ensembles: the best recipe's seeds, and the best recipes."
        ),
    ] = False,
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Train several recipes on your data and rank them in one table and report."""
    from weft.config import overrides
    from weft.report.compare import compare as run
    from weft.report.compare import default_output, print_summary

    flags = {"data.text": text, "data.label": label, "data.on_bad_row": on_bad_row}
    flags |= {"data.target": target, "data.text_pair": text_pair}
    changes: dict[str, object] = {k: options.column(v) for k, v in flags.items() if v}
    if names:
        changes["data.names"] = options.label_names(names)
    output = output or default_output(files[0])
    with repeatable("finished runs"):
        rows = run(
            files,
            output,
            dev=dev,
            task=task,
            recipes=options.split_names(recipes) or None,
            pretrained=pretrained,
            metric=metric,
            seeds=seeds,
            folds=folds,
            minutes=minutes,
            workers=workers,
            on=on,
            needs=needs,
            ensemble=ensemble,
            changes=changes | overrides(sets),
            device=device,
            overwrite=overwrite,
            quiet=quiet,
        )
    print_summary(rows, output)
