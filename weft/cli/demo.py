"""weft demo"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options

RECIPES = "tfidf,fasttext,bag,cnn,gru,lstm,bilstm-attention,transformer"


def demo(
    output: options.Output = Path("demo"),
    recipes: Annotated[str, typer.Option(help="Names, separated by commas.")] = RECIPES,
    seeds: Annotated[int, typer.Option(help="Trainings of each recipe.")] = 1,
    quiet: options.Quiet = False,
) -> None:
    """The bake-off on the built-in reviews corpus: leaderboard and report.html, in minutes."""
    from weft.report.compare import compare as run
    from weft.report.compare import show
    from weft.text.corpora import reviews
    from weft.text.write import write

    data = output / "data"
    data.mkdir(parents=True, exist_ok=True)
    for split, examples in reviews().items():
        write(examples, data / f"{split}.tsv")
    rows = run(
        [str(data / "train.tsv"), str(data / "test.tsv")],
        output,
        dev=str(data / "dev.tsv"),
        recipes=recipes.split(","),
        seeds=seeds,
        quiet=quiet,
    )
    show(rows, output)
