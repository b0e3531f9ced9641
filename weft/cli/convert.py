"""weft convert"""

from typing import Annotated

import typer

from weft.cli import options


def convert(
    folder: Annotated[
        str,
        typer.Argument(help="A Hugging Face or sentence-transformers folder, or NAME[@REVISION]."),
    ],
    *,
    output: options.Output,
    task: Annotated[
        str,
        typer.Option(
            help="masked: keep the masked-LM head; pair-classify, pair-score: the classifier takes "
            "text pairs."
        ),
    ] = "",
    overwrite: options.Overwrite = False,
) -> None:
    """Convert a checkpoint (BERT family, MiniLM, GPT-2) into a model folder."""
    from weft.run.convert import convert as converted

    for note in converted(folder, output, overwrite=overwrite, task=task):
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"model saved in {output}", err=True)
