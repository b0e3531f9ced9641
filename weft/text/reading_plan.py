"""Decide once how all files of a run are read, and report it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.errors import UserError
from weft.text.columns import WORD_NAMES, Columns
from weft.text.formats.conllu_sentence import COLUMNS as CONLLU
from weft.text.formats.parallel import resolve_files
from weft.text.formats.recognise import is_matrix_file, recognise
from weft.text.location import is_table
from weft.text.read import table_layout
from weft.text.shards import source_exists
from weft.text.tag_columns import choose_tag_columns

TABLES = ("csv", "tsv", "jsonl", "parquet", "table")


@dataclass(frozen=True)
class ReadingPlan:
    """The columns for all files, and a line about each decision."""

    columns: Columns
    lines: tuple[str, ...] = ()
    tagged: bool = False  # column files (a word per line)


def plan_reading(
    files: Sequence[str],
    requested: Columns,
    format: str | None = None,
    *,
    tags: Sequence[str] | None = None,
) -> ReadingPlan:
    """Decide on the columns of files that belong together; the first is the training file.

    `tags` are the requested columns of a tagger, empty to detect one; None if no tags are learned.
    Raise a UserError that names the candidates if several fit.
    """
    first = files[0]
    kind = format_of(first, format)
    if kind == "conll" and tags is not None:
        alike = [path for path in files if format_of(path, format) == "conll"]
        tagged = choose_tag_columns(alike, requested.text, requested.label, tags)
        return ReadingPlan(
            replace(requested, text=tagged.words, label=tagged.tags), (tagged.line,), True
        )
    if kind == "conllu" and tags is not None:
        names = ", ".join(f"'{name}'" for name in tags or [str(requested.label or "upos")])
        return ReadingPlan(requested, (f"words: column 'form'; tags: column {names}",))
    if kind not in TABLES:
        return ReadingPlan(requested)
    table = table_layout(first, requested, format)
    if table is None:
        return ReadingPlan(requested)
    detected = table.columns
    text = requested.text if table.fields else detected.text
    label = requested.label if table.label is None else detected.label
    other = requested.text_pair if table.other is None else detected.text_pair
    columns = replace(requested, text=text, label=label, text_pair=other)
    lines = [table.describe()]
    if table.guessed and table.header:
        lines.append(f"{first}:1: the first line is read as a header.")
    for path in files[1:]:
        if format_of(path, format) not in TABLES:
            continue
        unweighted = replace(columns, weight=None)  # only training has weights
        layout = table_layout(path, adapt_columns(unweighted, path, format), format)
        if layout is not None and layout.describe() != lines[0]:
            lines.append(f"{path}: {layout.describe()}")
    return ReadingPlan(columns, tuple(lines))


def adapt_columns(columns: Columns, path: str, format: str | None = None) -> Columns:
    """Return the columns for another file, without those that its format cannot have.

    Positions come from a file without a header; they do not apply to one with names.
    """
    kind = format_of(path, format)
    if kind == "conllu":
        return columns if columns.label in (None, *CONLLU) else replace(columns, label=None)
    if kind == "conll" and str(columns.text).lower() in WORD_NAMES:
        return replace(columns, text=None, label=None)  # of a table with lists of tokens
    if kind not in TABLES:
        return columns if kind in ("conll", "") else _without_positions(columns)
    try:
        free = table_layout(path, _without_positions(columns), format)
    except UserError:
        return columns
    named = free is not None and free.header
    return _without_positions(columns) if named else columns


def _without_positions(columns: Columns) -> Columns:
    text, label, other = (
        None if isinstance(c, int) else c for c in (columns.text, columns.label, columns.text_pair)
    )
    return replace(columns, text=text, label=label, text_pair=other)


def format_of(path: str, format: str | None = None) -> str:
    """Return the format of a file; "" for standard input, matrices and comma-joined files."""
    if (
        path == "-"
        or is_matrix_file(path)
        or len(resolve_files(path)) > 1
        or not source_exists(path)
    ):
        return ""
    return "table" if is_table(path) else format or recognise(path)
