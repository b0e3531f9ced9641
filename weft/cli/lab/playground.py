"""weft lab playground"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options


def playground(
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")] = Path(
        "playground.html"
    ),
    quiet: options.Quiet = False,
) -> None:
    """Write a page that trains small sequence models while you watch, offline."""
    from weft.lab.playground.build import write_playground

    path = write_playground(output)
    if not quiet:
        typer.echo(f"page: {path}")
