"""weft lab assignment and weft lab grade"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options


def assignment(
    name: Annotated[
        str, typer.Argument(help="An assignment; without a name, all are listed.")
    ] = "",
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write; default: NAME.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write an assignment: instructions, a template, examples as tests, and a notebook."""
    from weft.lab.assignments.assignment import assignment_names, load_assignment
    from weft.lab.assignments.write import write_assignment

    if not name:
        for known in assignment_names():
            found = load_assignment(known)
            if json:
                _print_json(name=known, title=found.title, points=found.points)
            else:
                typer.echo(f"{known:<18} {found.title} ({found.points} points)")
        return
    folder = output or Path(name)
    paths = write_assignment(load_assignment(name), folder)
    if json:
        _print_json(name=name, files=[str(path) for path in paths])
    elif not quiet:
        for path in paths:
            typer.echo(path)
        typer.echo(f"next: write {folder / 'solution.py'}, then weft lab grade {folder}")


def grade(
    folder: Annotated[Path, typer.Argument(help="A folder that `weft lab assignment` wrote.")],
    *,
    seed: Annotated[int, typer.Option(help="Seed of the hidden cases.")] = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Grade the solution in a folder; the exit status is 0 if it has all points.

    This executes solution.py, in a process with limits of time and memory. That is no sandbox:
    grade solutions of people you do not trust in a container.
    """
    from weft.lab.assignments.grade import grade as run

    found = run(folder, seed)
    if json:
        _print_json(**found.to_json())
    elif not quiet:
        for part in found.parts:
            mark = part.message or "right"
            typer.echo(f"{part.points:>3} of {part.possible}  {part.name}: {mark}")
        typer.echo(f"{found.points} of {found.possible} points")
    if found.points < found.possible:
        raise typer.Exit(1)


def _print_json(**values: object) -> None:
    import json

    typer.echo(json.dumps(values, ensure_ascii=False))
