"""Inputs of `weft explain`: one text, a pair, or files of them."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import typer

from weft.errors import UserError

if TYPE_CHECKING:
    from weft.predict import Predictor
    from weft.run.data import Data
    from weft.text.example import Example, SkipCounter

FILES = (".csv", ".tsv", ".jsonl", ".txt", ".parquet", ".json", ".gz", ".conllu", ".conll")


def resolve_source(source: str | None, text: str, other: str) -> tuple[str, bool]:
    """The source, and whether it is files or standard input.

    Without one, --text is the text itself where --text-pair is given or it has spaces, as the names
    of columns seldom do.
    """
    if source is None and text and (other or _joined_by_spaces(text)):
        return text, False
    source = "-" if source is None else source
    return source, names_files(source)


def names_files(source: str) -> bool:
    """Return True if the source names files, False for a text; raise UserError if unclear."""
    if source == "-" or os.path.exists(source):
        return True
    parts = [part.strip() for part in source.split(",")]
    if len(parts) > 1 and any(map(os.path.isfile, parts)):
        # One of a pair may be missing, and is named when it is read; a text has spaces.
        return all(os.path.isfile(part) or not _joined_by_spaces(part) for part in parts)
    if not _joined_by_spaces(source) and source.lower().endswith(FILES):
        raise UserError(f"{source}: no such file. To explain these words, put them into a file.")
    return False


def of_texts(predictor: "Predictor", text: str, other: str) -> "list[Example]":
    """Return one text, or one text pair."""
    from weft.text.example import Example

    if other and not predictor.pairs:
        raise UserError("This model takes a single text. Remove --text-pair.")
    if predictor.pairs and not other:
        raise UserError(
            "This model needs a text pair. Pass the second with --text-pair, or a file with both."
        )
    return [Example(text, other=other or None)]


def of_files(
    predictor: "Predictor", data: "Data", path: str, limit: int, tally: "SkipCounter"
) -> "list[Example]":
    """Return the first examples of a file, or of two files with a text pair per line."""
    stream = _pairs(data, path, tally) if predictor.pairs else None
    if stream is None:
        from weft.run.data import example_source, read_mode

        # A text with blanks is a line, though the model learned from documents.
        usual = predictor.config["task"]["kind"] != "masked"
        manner = read_mode(predictor.config["task"]) if usual else "labelled"
        stream = example_source(data, path, tally, mode=manner, database=predictor.space.database)()
    examples = list(islice(stream, limit))
    if next(stream, None) is not None:
        typer.echo(f"note: only the first {limit} texts are explained; see --limit", err=True)
    return examples


def _pairs(data: "Data", path: str, tally: "SkipCounter") -> "Iterator[Example] | None":
    """Pair the lines of two files; None if one file holds both texts."""
    from weft.text.formats.parallel import read_parallel, resolve_files

    files = resolve_files(path)
    if len(files) == 1:
        return None
    if len(files) > 2:
        raise UserError(f"{path}: a text pair needs two files; got {len(files)}.")
    found = read_parallel(*files, on_bad_row=data.on_bad_row, skipped=tally)
    return (replace(one, other=str(one.label), label=None) for one in found)


def _joined_by_spaces(name: str) -> bool:
    return any(c.isspace() for c in name)
