"""weft vectors: learn word vectors, ask them, measure them, change their format."""

import typer

from weft.cli.vectors import autoencode, evaluate, query, senses, train

app = typer.Typer(
    name="vectors", help="Word vectors: train, query, evaluate, align, plot.", no_args_is_help=True
)
app.command("train")(train.train)
app.command("neighbours")(query.neighbours)
app.command("analogy")(query.analogy)
app.command("odd")(query.odd)
app.command("expand")(query.expand)
app.command("senses")(senses.senses)
app.command("autoencode")(autoencode.autoencode)
app.command("convert")(query.convert)
app.command("evaluate")(evaluate.evaluate)
app.command("align")(evaluate.align)
app.command("plot")(evaluate.plot)
