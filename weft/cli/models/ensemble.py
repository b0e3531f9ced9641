"""weft ensemble"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.errors import UserError


def ensemble(
    models: Annotated[list[Path], typer.Argument(help="Two or more model or run folders.")],
    *,
    output: options.Output,
    weights: Annotated[
        str, typer.Option(help="Comma-separated weights of the models; default: equal.")
    ] = "",
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Join trained models into one that averages their probabilities."""
    from weft.predict.join_models import ensemble as join

    joined = join(
        models, output, weights=_parse_weights(weights), device=device, overwrite=overwrite
    )
    typer.echo(f"{joined!r}\nmodel saved in {output}", err=True)


def _parse_weights(text: str) -> list[float]:
    try:
        return [float(weight) for weight in text.split(",") if weight.strip()]
    except ValueError:
        raise UserError(f"--weights {text}: give numbers, such as 2,1,1.") from None
