"""weft predict"""

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.progress import counting


def predict(
    model: Annotated[Path, typer.Argument(help="A model folder, or the run folder around it.")],
    file: Annotated[
        str, typer.Argument(help="Texts, one a line, or any format; - is stdin.")
    ] = "-",
    text: options.Text = "",
    as_json: options.Json = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="With --json: how much each token counted.")
    ] = False,
    problems: options.Problems = "error",
    device: options.Device = "auto",
    replay: Annotated[bool, typer.Option(help="Check recorded answers first.")] = True,
) -> None:
    """Answer every text of a file, in order."""
    from weft.predict import load
    from weft.predict.evaluate import shown
    from weft.text.example import Tally
    from weft.text.read import Columns, read

    predictor = load(model, device=device, replay=replay)
    columns = Columns(text=options.column(text) if text else None, label="")
    tally = Tally()
    chosen = options.handling(problems)
    rows = read(file, columns=columns, problems=chosen, tally=tally, keep_empty=True)
    texts = (example.text for example in rows)
    partly = 0
    with counting("texts") as count:
        for answer in predictor.stream(texts, parts=weights):
            count(1)
            partly += answer.coverage < 1
            if as_json:
                typer.echo(json.dumps(shown(answer), ensure_ascii=False))
            else:
                value = answer.value
                words = ", ".join(value) if isinstance(value, tuple) else f"{value}"
                score = "" if isinstance(value, float) else f"\t{answer.score:.4f}"
                typer.echo(f"{words}{score}")
    for line in tally.lines():
        typer.echo(f"note: without an answer: {line}", err=True)
    if partly:
        typer.echo(f"note: {partly} texts were read only in part (coverage < 1)", err=True)
