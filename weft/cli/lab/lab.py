"""weft lab: experiments on the claims of the lectures."""

import typer

from weft.cli.lab import assignment, measure, playground, run

app = typer.Typer(
    name="lab", help="Experiments on the claims of the lectures.", no_args_is_help=True
)
app.command("list")(run.show)
app.command("run")(run.run)
app.command("cost")(measure.cost)
app.command("scaling")(measure.scaling)
app.command("playground")(playground.playground)
app.command("assignment")(assignment.assignment)
app.command("grade")(assignment.grade)


@app.callback()
def about() -> None:
    """Experiments on the claims of the lectures."""
