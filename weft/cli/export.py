"""weft export"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.errors import unknown_name

TO = ("huggingface",)


def export(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    *,
    output: options.Output,
    to: Annotated[str, typer.Option(help="huggingface: a folder that transformers can load.")],
    overwrite: options.Overwrite = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Export a model for other libraries."""
    if to not in TO:
        raise unknown_name("layout", to, TO, "--to")
    from weft.run.convert import export as exported

    made = exported(model, output, overwrite=overwrite)
    typer.echo(f"{made.name} saved in {output}", err=True)
    if made.note:
        typer.echo(made.note, err=True)
