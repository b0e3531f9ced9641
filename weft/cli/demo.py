"""weft demo"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options

RECIPES = "tfidf,fasttext,bag,cnn,gru,lstm,bilstm-attention,transformer"


def demo(
    output: options.Output = Path("demo"),
    recipes: Annotated[str, typer.Option(help="Comma-separated recipe names.")] = RECIPES,
    seeds: Annotated[int, typer.Option(help="Runs per recipe.")] = 1,
    reviews: Annotated[
        Path | None,
        typer.Option(help="Only write the built-in reviews here, and pairs of them."),
    ] = None,
    treebank: Annotated[
        Path | None,
        typer.Option(
            help="Only write a synthetic treebank here: tags, names, heads, brackets, ratings."
        ),
    ] = None,
    roles: Annotated[
        Path | None,
        typer.Option(help="Only write synthetic sentences with semantic roles here."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Only write a synthetic parallel corpus here."),
    ] = None,
    intents: Annotated[
        Path | None,
        typer.Option(help="Only write synthetic requests here, each with an intent and slots."),
    ] = None,
    digits: Annotated[
        Path | None,
        typer.Option(help="Only write synthetic digit images here, as vectors with captions."),
    ] = None,
    scenes: Annotated[
        Path | None,
        typer.Option(help="Only write synthetic scenes here: images of shapes with captions."),
    ] = None,
    recall: Annotated[
        Path | None,
        typer.Option(
            help="Only write a memory probe here: the first word is the label, or the last word."
        ),
    ] = None,
    distance: Annotated[
        int, typer.Option(help="Words between the first word and the end, with --recall.")
    ] = 20,
    quiet: options.Quiet = False,
) -> None:
    """Compare recipes on the built-in reviews: leaderboard and report.html, in minutes.

    With --reviews FOLDER, only the reviews; with --treebank FOLDER, files to try taggers, parsers,
    networks over trees and question answering on; with --roles FOLDER, predicates and their
    arguments; with --pairs FOLDER, sentences to translate; with --intents FOLDER, requests with
    intents and slots; with --digits FOLDER, matrices of vectors to put into words; with --scenes
    FOLDER, images to caption; with --recall FOLDER, texts that take a long memory.
    """
    if recall is not None:
        return _write_recall(recall, distance, quiet)
    if reviews is not None:
        return _write_reviews(reviews, quiet)
    if treebank is not None:
        return _write_treebank(treebank, quiet)
    if roles is not None:
        return _write_roles(roles, quiet)
    if pairs is not None:
        return _write_pairs(pairs, quiet)
    if intents is not None:
        return _write_intents(intents, quiet)
    if digits is not None:
        return _write_digits(digits, quiet)
    if scenes is not None:
        return _write_scenes(scenes, quiet)
    from weft.report.compare import compare as run
    from weft.report.compare import print_summary
    from weft.text.synthetic.reviews import write_reviews

    data = output / "data"
    write_reviews(data)
    rows = run(
        [str(data / "train.tsv"), str(data / "test.tsv")],
        output,
        dev=str(data / "dev.tsv"),
        recipes=recipes.split(","),
        seeds=seeds,
        quiet=quiet,
    )
    print_summary(rows, output)


def _write_reviews(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.reviews import write_reviews

    for path in write_reviews(folder):
        contents = "pairs that agree or differ" if path.stem.endswith("-pairs") else "reviews"
        if not quiet:
            typer.echo(f"{path.name:<16} {contents}")
    if not quiet:
        typer.echo(f"next: weft train --recipe cnn --train {folder}/train.tsv -o runs/cnn")


def _write_treebank(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.treebank import KINDS, write_treebank

    for kind, paths in write_treebank(folder).items():
        if not quiet:
            names = ", ".join(path.name for path in paths)
            typer.echo(f"{names:<38} {KINDS[kind]}")
    if not quiet:
        typer.echo(
            f"next: weft train --recipe tagger-bilstm --train {folder}/train.conllu -o runs/tags"
        )


def _write_roles(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.roles import write_roles

    for path in write_roles(folder):
        if not quiet:
            typer.echo(f"{path.name:<12} words, predicates with senses, a column of roles for each")
    if not quiet:
        files = " ".join(f"--{name} {folder}/{name}.conll" for name in ("train", "dev", "test"))
        typer.echo(f"next: weft train --recipe srl-bilstm-crf {files} -o runs/roles")


def _write_pairs(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.translation import ENGLISH, LOOMISH, write_pairs

    for path in write_pairs(folder):
        language = {ENGLISH: "English", LOOMISH: "Loomish"}[path.suffix[1:]]
        if not quiet:
            typer.echo(f"{path.name:<12} a sentence a line, in {language}")
    if not quiet:
        files = " ".join(f"--{name} {folder}/{name}.{ENGLISH}" for name in ("train", "dev", "test"))
        typer.echo(
            f"next: weft train --recipe seq2seq-attention {files} --target {LOOMISH} "
            "-o runs/loomish"
        )


def _write_intents(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.intents import write_intents

    for path in write_intents(folder):
        if not quiet:
            typer.echo(f"{path.name:<12} requests: tokens, tags of slots, and the intent")
    if not quiet:
        files = " ".join(f"--{name} {folder}/{name}.jsonl" for name in ("train", "dev", "test"))
        typer.echo(f"next: weft train --recipe joint-bilstm-crf {files} -o runs/intents")


def _write_digits(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.digits import write_digits

    for path in write_digits(folder):
        if not quiet:
            typer.echo(f"{path.name:<12} names matrices of {path.stem}.npz, with words to write")
    if not quiet:
        files = " ".join(f"--{name} {folder}/{name}.jsonl" for name in ("train", "dev", "test"))
        typer.echo(f"next: weft train --recipe seq2seq-vectors {files} -o runs/digits")


def _write_scenes(folder: Path, quiet: bool) -> None:
    from weft.text.synthetic.scenes import write_scenes

    for path in write_scenes(folder):
        if not quiet:
            typer.echo(f"{path.name:<12} names images of {path.stem}.npz, with their captions")
    if not quiet:
        files = " ".join(f"--{name} {folder}/{name}.jsonl" for name in ("train", "dev", "test"))
        typer.echo(f"next: weft train --recipe caption {files} -o runs/caption")


def _write_recall(folder: Path, distance: int, quiet: bool) -> None:
    from weft.text.synthetic.memory_probe import write_recall

    kinds = {".tsv": "the label is the first word", ".txt": "the last word is the first word"}
    for path in write_recall(folder, distance):
        if not quiet:
            typer.echo(f"{path.name:<12} {kinds[path.suffix]}, {distance} words apart")
    if not quiet:
        window = f"task.window={2 * distance + 8}"
        typer.echo(
            f"next: weft train --recipe rnn-lm --train {folder}/train.txt --dev {folder}/dev.txt "
            f"-o runs/recall --set {window} --set train.diagnose=true"
        )
