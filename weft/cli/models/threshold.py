"""weft threshold"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.errors import UserError


def threshold(
    model: Annotated[Path, typer.Argument(help="Model or run folder of a classifier.")],
    file: Annotated[str, typer.Argument(help="Labelled held-out file, not the test file.")],
    *,
    goal: Annotated[
        str, typer.Option("--for", help="f1, recall=NUMBER or precision=NUMBER, on the file.")
    ],
    output: options.Output,
    positive: Annotated[
        str, typer.Option(help="Of two classes the one to find; default: the rarer.")
    ] = "",
    text: options.Text = "",
    text_pair: options.TextPair = "",
    label: options.Label = "",
    names: options.Names = "",
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Save a classifier with another decision threshold, chosen on a held-out file."""
    from weft import jsonio
    from weft.loading import load
    from weft.predict.golden import GOLDEN, recorded_inputs
    from weft.predict.predictor import model_folder
    from weft.predict.tuning import tune_threshold
    from weft.run.data import example_source

    if output.exists() and not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it, or change -o.")
    if file == "-":
        raise UserError("The file is read twice; save standard input to a file first.")
    predictor = load(model, device=device)
    data = options.data_for_model(
        predictor,
        file,
        text=options.column(text),
        text_pair=options.column(text_pair),
        label=options.column(label),
        names=options.label_names(names),
        on_bad_row=options.bad_row_policy(on_bad_row),
    )
    tuned = tune_threshold(predictor, example_source(data, file), goal, positive, data.on_bad_row)
    folder = model_folder(model)
    record = folder / "record.json"
    tuned.save(
        output,
        recorded_inputs(folder / GOLDEN),
        {**jsonio.read(record), "threshold": tuned.note} if record.is_file() else None,
    )
    typer.echo(f"{tuned.note}\nmodel saved in {output}", err=True)
