"""Decide once how all files of a run are read, and say so."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.errors import UserError
from weft.text.columns import Columns
from weft.text.formats.conllu_sentence import COLUMNS as CONLLU
from weft.text.formats.parallel import sides
from weft.text.formats.recognise import is_matrices, recognise
from weft.text.read import laid_out
from weft.text.tag_columns import choose_columns

TABLES = ("csv", "tsv", "jsonl", "parquet")


@dataclass(frozen=True)
class Choice:
    """The columns that all files are read by, and a line on each decision."""

    columns: Columns
    lines: tuple[str, ...] = ()
    tagged: bool = False  # the files hold words in columns


def choose(
    files: Sequence[str],
    asked: Columns,
    format: str | None = None,
    *,
    tags: Sequence[str] | None = None,
) -> Choice:
    """Decide on the columns of files that belong together; the first is the one that is learned.

    `tags` are the columns that a tagger is asked for, an empty list where one is to be found; None
    where no tags are learned. A UserError names the candidates where several fit.
    """
    first = files[0]
    kind = kind_of(first, format)
    if kind == "conll" and tags is not None:
        alike = [path for path in files if kind_of(path, format) == "conll"]
        found = choose_columns(alike, asked.text, asked.label, tags)
        return Choice(replace(asked, text=found.words, label=found.tags), (found.line,), True)
    if kind == "conllu" and tags is not None:
        told = ", ".join(f"'{name}'" for name in tags or [str(asked.label or "upos")])
        return Choice(asked, (f"words: column 'form'; tags: column {told}",))
    if kind not in TABLES:
        return Choice(asked)
    table = laid_out(first, asked, format)
    if table is None:
        return Choice(asked)
    found_columns = table.columns
    text = asked.text if table.fields else found_columns.text
    label = asked.label if table.label is None else found_columns.label
    other = asked.other if table.other is None else found_columns.other
    columns = replace(asked, text=text, label=label, other=other)
    lines = [table.describe()]
    if table.guessed and table.header:
        lines.append(f"{first}:1: the first line is taken for a header.")
    for path in files[1:]:
        if kind_of(path, format) not in TABLES:
            continue
        own = laid_out(path, fitted(columns, path, format), format)
        if own is not None and own.describe() != lines[0]:
            lines.append(f"{path}: {own.describe()}")
    return Choice(columns, tuple(lines))


def fitted(columns: Columns, path: str, format: str | None = None) -> Columns:
    """The same columns for another file, without those that cannot be meant in its format.

    Positions come from a file without a header: they say nothing of one that has names.
    """
    kind = kind_of(path, format)
    if kind == "conllu":
        return columns if columns.label in (None, *CONLLU) else replace(columns, label=None)
    if kind not in TABLES:
        return columns if kind in ("conll", "") else _without_positions(columns)
    try:
        free = laid_out(path, _without_positions(columns), format)
    except UserError:
        return columns
    named = free is not None and free.header
    return _without_positions(columns) if named else columns


def _without_positions(columns: Columns) -> Columns:
    text, label, other = (
        None if isinstance(c, int) else c for c in (columns.text, columns.label, columns.other)
    )
    return replace(columns, text=text, label=label, other=other)


def kind_of(path: str, format: str | None = None) -> str:
    """The format of one file; empty for standard input, matrices and files joined by a comma."""
    if path == "-" or is_matrices(path) or len(sides(path)) > 1 or not os.path.exists(path):
        return ""
    return format or recognise(path)
