"""weft evaluate"""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.progress import counting
from weft.errors import UserError


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder, or the run folder around it.")],
    file: Annotated[str, typer.Argument(help="A labelled file; - is standard input.")],
    text: options.Text = "",
    label: options.Label = "",
    as_json: options.Json = False,
    predictions: Annotated[str, typer.Option(help="Write every answer to this .jsonl.")] = "",
    problems: options.Problems = "error",
    device: options.Device = "auto",
    replay: Annotated[bool, typer.Option(help="Check recorded answers first.")] = True,
) -> None:
    """Measure a model on a labelled file, with 95 % bootstrap intervals."""
    from weft.predict import load
    from weft.predict.evaluate import evaluate as measured
    from weft.predict.evaluate import figures
    from weft.run.data import Data, source
    from weft.text.example import Tally

    chosen = options.handling(problems)
    predictor = load(model, device=device, replay=replay)
    saved = predictor.config["data"]
    # The columns of the training file serve again unless others are named or the file has none.
    data = Data(
        text=options.column(text) if text else saved["text"],
        label=options.column(label) if label else saved["label"],
        separator=saved["separator"],
        problems=chosen,
    )
    tally = Tally()
    place = open(predictions, "w", encoding="utf-8") if predictions else nullcontext()
    with place as out, counting("texts") as count:
        measure = measured(
            predictor,
            source(data, file, tally)(),
            problems=data.problems,
            tally=tally,
            predictions=out,
            watch=count,
        )
    for line in tally.lines():
        typer.echo(f"note: {line}", err=True)
    found = measure.figures()
    if not any(figure.n for figure in found.values()):
        raise UserError(f"{file}: no row is left to measure on; every one was skipped.")
    if as_json:
        typer.echo(json.dumps(figures(measure)))
        return
    for name, figure in found.items():
        interval = f"[{figure.low:.4f}, {figure.high:.4f}]"
        typer.echo(f"{name:<12} {figure.value:.4f}  {interval}  n={figure.n}")
