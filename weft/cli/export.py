"""weft export"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.errors import unknown_name

TO = ("huggingface", "page")


def export(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    *,
    output: options.Output,
    to: Annotated[
        str,
        typer.Option(
            help="huggingface: a folder that transformers can load; page: one HTML file that "
            "answers offline in a browser."
        ),
    ],
    overwrite: options.Overwrite = False,
    golden: Annotated[
        bool, typer.Option(help="Put the recorded texts of the model into a page, to verify it.")
    ] = True,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Export a model for other libraries, or as a web page."""
    if to not in TO:
        raise unknown_name("layout", to, TO, "--to")
    if to == "page":
        _export_page(model, output, overwrite, golden)
        return
    from weft.run.convert import export as exported

    made = exported(model, output, overwrite=overwrite)
    typer.echo(f"{made.name} saved in {output}", err=True)
    if made.note:
        typer.echo(made.note, err=True)


def _export_page(model: Path, output: Path, overwrite: bool, golden: bool) -> None:
    from weft.export.page.export import export_page

    made = export_page(model, output, overwrite=overwrite, golden=golden)
    size, own = made.size / 1000, made.model_size / 1000
    typer.echo(
        f"{made.path}: {size:,.0f} kB, of a model of {own:,.0f} kB; open it in a browser", err=True
    )
