"""Files that hold more than one label a text, each with the module that looks at it."""

import contextlib
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import Fault, findings
from weft.doctor.finding import Finding
from weft.doctor.formats import brackets, column_files, conllu, spans
from weft.errors import UserError, unknown_name
from weft.text.column_layout import layout_of
from weft.text.columns import Columns
from weft.text.example import Example, Tally
from weft.text.formats.conllu_sentence import COLUMNS
from weft.text.formats.recognise import recognise
from weft.text.formats.standoff import is_spans
from weft.text.line_source import Source

KINDS = ("conllu", "conll", "spans", "standoff", "trees")


def kind_of(path: str, format: str | None, columns: Columns) -> str:
    """The format of a file; spans are known even where some of them are broken."""
    found = format or recognise(path)
    if format is None and found == "jsonl":
        with contextlib.closing(Source(path)) as source:
            lines = [raw.decode("utf-8", "replace") for raw in source.head()]
        if any(is_spans([line]) for line in lines):
            found = "spans"
    # Asked for another label than the spans, `read` takes such a file for texts with labels.
    return "jsonl" if found == "spans" and columns.label is not None else found


def check_columns(path: str, kind: str, columns: Columns) -> None:
    """Refuses a column that is not in the file, before anything is read."""
    if kind == "conllu" and columns.label is not None and columns.label not in COLUMNS:
        raise unknown_name("CoNLL-U column", str(columns.label), COLUMNS, path)
    if kind == "conll" and (columns.label is not None or columns.text is not None):
        with contextlib.closing(Source(path)) as source:
            layout_of(source, words=columns.text, tags=columns.label)


def examples(path: str, kind: str, columns: Columns, tally: Tally) -> Iterator[Example]:
    """The texts with what is known of them, as far as the file can be read."""
    if kind == "conllu":
        label = "" if columns.label is None else str(columns.label)
        return conllu.examples(path, label, tally)
    if kind == "conll":
        return column_files.examples(path, columns, tally)
    if kind == "trees":
        return brackets.examples(path, tally)
    return spans.examples(path, kind == "standoff", tally)


def look(
    paths: dict[str, str], kinds: dict[str, str], columns: dict[str, Columns]
) -> list[Finding]:
    """What is wrong inside the sentences of these files, and between them."""
    found: list[Finding] = []
    for name, kind in kinds.items():
        if kind in KINDS:
            found += findings(faults(paths[name], kind, columns[name]), name)
    return [*found, *column_files.differing(written_in(paths, kinds, columns), paths)]


def written_in(
    paths: dict[str, str], kinds: dict[str, str], columns: dict[str, Columns]
) -> dict[str, str]:
    """The tagging scheme of each column file; empty where its tags mark no spans."""
    out: dict[str, str] = {}
    for name in (name for name, kind in kinds.items() if kind == "conll"):
        try:
            out[name] = column_files.scheme_of(paths[name], columns[name])
        except UserError:
            out[name] = ""
    return out


def faults(path: str, kind: str, columns: Columns) -> Iterator[Fault]:
    """What is wrong inside the sentences of one file, in their order."""
    try:
        if kind == "conllu":
            yield from conllu.faults(path)
        elif kind == "conll":
            yield from column_files.faults(path, columns)
        elif kind == "trees":
            yield from brackets.faults(path)
        else:
            yield from spans.faults(path, kind == "standoff")
    except UserError:
        return  # nothing in it can be read: the survey says so
