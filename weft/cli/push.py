"""weft push"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options


def push(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    target: Annotated[
        str, typer.Argument(help="hf:ORGANISATION/NAME on the Hugging Face Hub, or a folder.")
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Create the repository private.")
    ] = False,
    revision: Annotated[str, typer.Option(help="Branch to push to; default: main.")] = "",
    golden: Annotated[
        bool,
        typer.Option("--golden/--no-golden", help="Push the recorded texts and their answers."),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files and sizes; push nothing.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Push a model and its card to the Hugging Face Hub, or to a folder laid out like it."""
    import dataclasses
    import json

    from weft.compare.format import format_size
    from weft.hub import push as push_model

    done = push_model(
        model, target, private=private, revision=revision, golden=golden, dry_run=dry_run
    )
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(done), ensure_ascii=False))
        return
    width = max(map(len, done.files))
    for name, size in done.files.items():
        typer.echo(f"{name:<{width}}  {format_size(size):>7}")
    for name in done.left_out:
        typer.echo(f"left out: {name} (not a file of a model)", err=True)
    for note in done.notes:
        typer.echo(f"note: {note}", err=True)
    what = f"{len(done.files)} files, {format_size(done.size)}"
    typer.echo(f"{what} {'pushed' if done.done else 'would be pushed'} to {done.target}", err=True)
