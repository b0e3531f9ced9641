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
    treebank: Annotated[
        Path | None,
        typer.Option(
            help="Only write a made treebank here: tags, names, heads, brackets, ratings."
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """The bake-off on the built-in reviews corpus: leaderboard and report.html, in minutes.

    With --treebank FOLDER, files to try taggers, parsers and networks over trees on.
    """
    if treebank is not None:
        return _write_treebank(treebank, quiet)
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


def _write_treebank(folder: Path, quiet: bool) -> None:
    from weft.text.treebank import KINDS, write_treebank

    for kind, paths in write_treebank(folder).items():
        if not quiet:
            names = ", ".join(path.name for path in paths)
            typer.echo(f"{names:<38} {KINDS[kind]}")
    if not quiet:
        typer.echo(
            f"next: weft train --recipe tagger-bilstm --train {folder}/train.conllu -o runs/tags"
        )
