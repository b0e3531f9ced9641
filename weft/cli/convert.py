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
            help="masked: keep the head that fills in hidden words, to use or go on with; "
            "pair-classify, pair-score: the classifier answers about two texts."
        ),
    ] = "",
    overwrite: options.Overwrite = False,
) -> None:
    """Make a model folder of somebody's checkpoint: BERT and its kin, MiniLM, GPT-2."""
    from weft.run.convert import convert as converted

    for note in converted(folder, output, overwrite=overwrite, task=task):
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"model saved in {output}", err=True)
