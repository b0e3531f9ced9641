"""Files that hold more than one label a text, each with the module that looks at it."""

import contextlib
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault, group_faults
from weft.doctor.finding import Finding
from weft.doctor.formats import brackets, column_files, conllu, spans
from weft.errors import UserError, unknown_name
from weft.text.column_layout import detect_layout
from weft.text.columns import Columns
from weft.text.example import Example, Tally
from weft.text.formats.conllu_sentence import COLUMNS
from weft.text.formats.recognise import recognise
from weft.text.formats.standoff import are_span_rows
from weft.text.line_source import LineSource

STRUCTURED_FORMATS = ("conllu", "conll", "spans", "standoff", "trees")


def format_of(path: str, format: str | None, columns: Columns) -> str:
    """The format of a file; spans are known even where some of them are broken."""
    found = format or recognise(path)
    if format is None and found == "jsonl":
        with contextlib.closing(LineSource(path)) as source:
            lines = [raw.decode("utf-8", "replace") for raw in source.head()]
        if any(are_span_rows([line]) for line in lines):
            found = "spans"
    # Asked for another label than the spans, `read` takes such a file for texts with labels.
    return "jsonl" if found == "spans" and columns.label is not None else found


def check_columns(path: str, kind: str, columns: Columns) -> None:
    """Refuses a column that is not in the file, before anything is read."""
    if kind == "conllu" and columns.label is not None and columns.label not in COLUMNS:
        raise unknown_name("CoNLL-U column", str(columns.label), COLUMNS, path)
    if kind == "conll" and (columns.label is not None or columns.text is not None):
        with contextlib.closing(LineSource(path)) as source:
            detect_layout(source, words=columns.text, tags=columns.label)


def read_examples(path: str, kind: str, columns: Columns, skipped: Tally) -> Iterator[Example]:
    """The texts with what is known of them, as far as the file can be read."""
    if kind == "conllu":
        label = "" if columns.label is None else str(columns.label)
        return conllu.read_examples(path, label, skipped)
    if kind == "conll":
        return column_files.read_examples(path, columns, skipped)
    if kind == "trees":
        return brackets.read_examples(path, skipped)
    return spans.read_examples(path, kind == "standoff", skipped)


def check_files(
    paths: dict[str, str], kinds: dict[str, str], columns: dict[str, Columns]
) -> list[Finding]:
    """What is wrong inside the sentences of these files, and between them."""
    found: list[Finding] = []
    for name, kind in kinds.items():
        if kind in STRUCTURED_FORMATS:
            found += group_faults(find_faults(paths[name], kind, columns[name]), name)
    return [*found, *column_files.check_schemes(tagging_schemes(paths, kinds, columns), paths)]


def tagging_schemes(
    paths: dict[str, str], kinds: dict[str, str], columns: dict[str, Columns]
) -> dict[str, str]:
    """The tagging scheme of each column file; empty where its tags mark no spans."""
    out: dict[str, str] = {}
    for name in (name for name, kind in kinds.items() if kind == "conll"):
        try:
            out[name] = column_files.detect_scheme(paths[name], columns[name])
        except UserError:
            out[name] = ""
    return out


def find_faults(path: str, kind: str, columns: Columns) -> Iterator[AnnotationFault]:
    """What is wrong inside the sentences of one file, in their order."""
    try:
        if kind == "conllu":
            yield from conllu.find_faults(path)
        elif kind == "conll":
            yield from column_files.find_faults(path, columns)
        elif kind == "trees":
            yield from brackets.find_faults(path)
        else:
            yield from spans.find_faults(path, kind == "standoff")
    except UserError:
        return  # nothing in it can be read: the survey says so
