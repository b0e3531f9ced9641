"""weft vectors: learn word vectors, ask them, measure them, change their format."""

import typer

from weft.cli import vectors_measure, vectors_train, vectors_use

app = typer.Typer(
    name="vectors", help="Word vectors: train, ask, evaluate, align, plot.", no_args_is_help=True
)
app.command("train")(vectors_train.train)
app.command("neighbours")(vectors_use.neighbours)
app.command("analogy")(vectors_use.analogy)
app.command("convert")(vectors_use.convert)
app.command("evaluate")(vectors_measure.evaluate)
app.command("align")(vectors_measure.align)
app.command("plot")(vectors_measure.plot)
