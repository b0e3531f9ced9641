"""weft tokens: train a tokenizer, and see what it does to a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.progress import open_bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.tokens import Tokenizer

app = typer.Typer(
    name="tokens", help="Train a tokenizer; encode and decode with it.", no_args_is_help=True
)

Texts = Annotated[str, typer.Argument(metavar="[FILE|-]", help="Texts, or - for standard input.")]
Trained = Annotated[
    Path, typer.Argument(metavar="TOKENIZER", help="Tokenizer file written by `weft tokens train`.")
]
TextColumn = Annotated[
    str | None, typer.Option("--text", help="Name or number of the text column.")
]

_TOGETHER = 1024  # texts given to the tokenizer at once
_PLAIN_EVERY = 500_000  # texts between two plain progress lines


@app.command()
def train(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Training texts.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file.")],
    kind: Annotated[str, typer.Option(help="word, character, bpe, wordpiece or unigram.")] = "bpe",
    vocab_size: Annotated[
        int | None, typer.Option(help="Vocabulary size; 0 keeps every word.")
    ] = None,
    lowercase: Annotated[bool | None, typer.Option(help="Lowercase the text first.")] = None,
    text: TextColumn = None,
    on_bad_row: options.OnBadRow = "error",
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Train a tokenizer and write it to one JSON file."""
    from weft import registry
    from weft.errors import UserError

    if output.exists() and not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    if not output.parent.is_dir():
        raise UserError(f"{output}: the folder {output.parent} does not exist. Make it first.")
    settings = {"kind": kind, "vocab_size": vocab_size, "lowercase": lowercase}
    given = {name: value for name, value in settings.items() if value is not None}
    part = registry.build("tokenizer", given)
    with _progress("Reading") as count:
        rows = (row for file in files for row in _texts(file, text, on_bad_row))
        tokenizer = part.train(count(row for row in rows if row.strip()))
    tokenizer.save(output)
    typer.echo(f"{output}: {kind} tokenizer of {len(tokenizer)} entries", err=True)


@app.command()
def encode(
    tokenizer: Trained,
    file: Texts = "-",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per text: ids, tokens, spans.")
    ] = False,
    text: TextColumn = None,
    on_bad_row: options.OnBadRow = "error",
) -> None:
    """Print the tokens of each text, one text per line; an empty line for an empty text."""
    from weft.tokens import Tokenizer

    trained = Tokenizer.load(tokenizer)
    for texts in _groups(_texts(file, text, on_bad_row)):
        for line in _encode_batch(trained, texts, as_json):
            typer.echo(line)


@app.command()
def decode(tokenizer: Trained, file: Texts = "-") -> None:
    """Decode each line of ids to text."""
    from weft.errors import UserError
    from weft.tokens import Tokenizer

    trained = Tokenizer.load(tokenizer)
    for number, line in enumerate(_lines(file), start=1):
        where = f"{'input' if file == '-' else file}:{number}"
        try:
            ids = [int(word) for word in line.replace(",", " ").strip("[] \n").split()]
        except ValueError as error:
            raise UserError(f"{where}: expected ids separated by spaces; {error}.") from error
        try:
            typer.echo(trained.decode(ids))
        except UserError as error:
            raise UserError(f"{where}: {error}") from error


def _encode_batch(tokenizer: Tokenizer, texts: list[str], as_json: bool) -> Iterator[str]:
    for text, tokens in zip(texts, tokenizer.encode_batch(texts), strict=True):
        entries = [tokenizer.vocabulary[i] for i in tokens.ids]
        if as_json:
            row = {
                "ids": tokens.ids.tolist(),
                "tokens": [text[start:end] for start, end in tokens.offsets.tolist()],
                "spans": tokens.offsets.tolist(),
            }
            yield json.dumps(row, ensure_ascii=False)
        else:
            yield " ".join(entries)


def _texts(file: str, column: str | None, on_bad_row: str) -> Iterator[str]:
    """Yield the texts of a file, then print the skipped rows."""
    from weft.text.columns import NO_LABEL, Columns
    from weft.text.example import SkipCounter
    from weft.text.read import read

    tally, chosen = SkipCounter(), options.bad_row_policy(on_bad_row)
    # Blank lines are part of any prose; labels are of no interest here.
    columns = Columns(text=column, label=NO_LABEL)
    for example in read(file, columns=columns, on_bad_row=chosen, skipped=tally, keep_empty=True):
        yield example.text
    for line in tally.lines():
        typer.echo(f"note: skipped {line}", err=True)


def _lines(file: str) -> Iterator[str]:
    from weft.text.line_source import BadRows, LineSource

    source = LineSource(file)
    return (line for _, line in source.lines(BadRows(source.name, "error", None)))


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for text in texts:
        group.append(text)
        if len(group) == _TOGETHER:
            yield group
            group = []
    if group:
        yield group


@contextmanager
def _progress(what: str) -> Iterator[Callable[[Iterable[str]], Iterator[str]]]:
    """Count texts: a live line on a terminal, otherwise plain lines."""
    bar = open_bar("texts read")
    if bar is None:
        yield lambda texts: _count_lines(what, texts)
        return
    with closing(bar):

        def count(texts: Iterable[str]) -> Iterator[str]:
            for number, text in enumerate(texts, start=1):
                if number % _TOGETHER == 0:
                    bar.update(done=number)
                yield text
            bar.update(text="texts to learn from")

        yield count


def _count_lines(what: str, texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if number % _PLAIN_EVERY == 0:
            typer.echo(f"{what}: {number:,} texts", err=True)
        yield text
