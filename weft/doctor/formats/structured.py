"""Dispatch structured files to the modules that check them."""

import contextlib
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault, group_faults
from weft.doctor.finding import Finding
from weft.doctor.formats import (
    brackets,
    column_files,
    conllu,
    coreference,
    extractions,
    roles,
    spans,
)
from weft.errors import UserError, unknown_name
from weft.text.column_layout import detect_layout
from weft.text.columns import Columns
from weft.text.example import Example, SkipCounter
from weft.text.formats.conllu_sentence import COLUMNS
from weft.text.formats.recognise import SEMANTIC_FORMATS, recognise
from weft.text.formats.semantics.recognise import recognise_semantics
from weft.text.formats.standoff import are_span_rows
from weft.text.line_source import LineSource
from weft.text.location import is_table
from weft.text.shards import list_shards

STRUCTURED_FORMATS = ("conllu", "conll", "spans", "standoff", "trees", *SEMANTIC_FORMATS)


def format_of(path: str, format: str | None, columns: Columns) -> str:
    """Return the format of a file; spans are recognised even if some are malformed."""
    recognised = format or recognise(path)
    if is_table(path):
        return recognised
    if list_shards(path):
        return "shards"
    if recognised == "paragraphs":
        return "conllu"  # its sentences are checked
    if format is None and recognised == "jsonl":
        with contextlib.closing(LineSource(path)) as source:
            lines = [raw.decode("utf-8", "replace") for raw in source.head()]
        if any(are_span_rows([line]) for line in lines):
            recognised = "spans"
    free = format is None and columns.label is None and columns.text is None
    if free and (kind := recognise_semantics(path, recognised)):
        return kind
    # With another label requested, `read` reads such a file as texts with labels.
    return "jsonl" if recognised == "spans" and columns.label is not None else recognised


def check_columns(path: str, kind: str, columns: Columns) -> None:
    """Raise a UserError for a column that is not in the file, before reading it."""
    if kind == "conllu" and columns.label is not None and columns.label not in COLUMNS:
        raise unknown_name("CoNLL-U column", str(columns.label), COLUMNS, path)
    if kind == "conll" and (columns.label is not None or columns.text is not None):
        with contextlib.closing(LineSource(path)) as source:
            detect_layout(source, words=columns.text, tags=columns.label)


def read_examples(
    path: str, kind: str, columns: Columns, skipped: SkipCounter
) -> Iterator[Example]:
    """Yield the texts with their annotations, as far as the file is readable."""
    if kind == "conllu":
        label = "" if columns.label is None else str(columns.label)
        return conllu.read_examples(path, label, skipped)
    if kind == "conll":
        return column_files.read_examples(path, columns, skipped)
    if kind == "trees":
        return brackets.read_examples(path, skipped)
    if kind == "roles":
        return roles.read_examples(path, skipped)
    if kind == "coreference":
        return coreference.read_examples(path, skipped)
    if kind == "extractions":
        return extractions.read_examples(path, skipped)
    return spans.read_examples(path, kind == "standoff", skipped)


def check_files(
    paths: dict[str, str], kinds: dict[str, str], columns: dict[str, Columns]
) -> list[Finding]:
    """Return findings about the sentences of files, and differences between files."""
    all_findings: list[Finding] = []
    for name, kind in kinds.items():
        if kind in STRUCTURED_FORMATS:
            all_findings += group_faults(find_faults(paths[name], kind, columns[name]), name)
    return [
        *all_findings,
        *column_files.check_schemes(tagging_schemes(paths, kinds, columns), paths),
    ]


def tagging_schemes(
    paths: dict[str, str], kinds: dict[str, str], columns: dict[str, Columns]
) -> dict[str, str]:
    """Return the tagging scheme of each column file, "" if its tags mark no spans."""
    out: dict[str, str] = {}
    for name in (name for name, kind in kinds.items() if kind == "conll"):
        try:
            out[name] = column_files.detect_scheme(paths[name], columns[name])
        except UserError:
            out[name] = ""
    return out


def find_faults(path: str, kind: str, columns: Columns) -> Iterator[AnnotationFault]:
    """Yield the faults in the sentences of one file, in order."""
    try:
        if kind == "conllu":
            yield from conllu.find_faults(path)
        elif kind == "conll":
            yield from column_files.find_faults(path, columns)
        elif kind == "trees":
            yield from brackets.find_faults(path)
        elif kind == "roles":
            yield from roles.find_faults(path)
        elif kind == "coreference":
            yield from coreference.find_faults(path)
        elif kind == "extractions":
            yield from extractions.find_faults(path)
        else:
            yield from spans.find_faults(path, kind == "standoff")
    except UserError:
        return  # unreadable: the survey reports it
