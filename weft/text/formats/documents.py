"""Read raw text as documents of consecutive sentences, from files of several layouts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from weft.errors import UserError
from weft.text.example import Example, SkipCounter
from weft.text.formats.parallel import resolve_files
from weft.text.line_source import (
    MAX_HEAD_LINES,
    BadRowPolicy,
    BadRows,
    LineSource,
)
from weft.text.location import is_table
from weft.text.read import Columns, read
from weft.text.shards import is_table_file, list_shards

# Contents of a line: a sentence or a paragraph, with a break between documents; or a document.
DocumentLayout = Literal["auto", "sentences", "paragraphs", "lines"]

MAX_DOCUMENT_CHARS = 2**20  # a longer document is split
MIN_SENTENCES_PER_PARAGRAPH = 1.5  # on average, if lines are paragraphs

# Between documents: === a title ===, or the tags of extracted Wikipedia dumps; without these, a
# blank line.
_TITLE = re.compile(r"\s*(?:={3,}.*={3,}|<doc\b[^>]*>|</doc>)\s*")
# Bounded throughout: a line of a million dots or quotes must not take a minute.
_END = re.compile(
    r"[.!?…]{1,5}[\"'”’»)\]]{0,3}\s(?=\s{0,5}[\"'“‘«(\[¿¡]{0,3}\w)|[。！？]{1,5}[」』”’）]{0,3}"
)
_OPENING = "\"'“‘«([¿¡"
_ABBREVIATIONS = {
    *("mr", "mrs", "ms", "dr", "st", "prof", "rev", "hon", "gen", "col", "capt", "lt", "sgt", "jr"),
    *("sr", "vs", "cf", "al", "eds", "inc", "ltd", "corp", "approx", "dept", "univ"),
    *("e.g", "i.e", "u.s", "u.k", "a.m", "p.m"),
}
_ABBREVIATIONS_BEFORE_NUMBERS = {
    "no",
    "nos",
    "vol",
    "vols",
    "fig",
    "figs",
    "eq",
    "sec",
    "ch",
    "art",
    "p",
    "pp",
}


def read_documents(
    path: str | os.PathLike[str],
    layout: DocumentLayout = "auto",
    *,
    columns: Columns | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the documents of a file, of comma-joined files, or of all files in a folder.

    Each text has a sentence per line. In a table, every row is a document.
    """
    has_text = False
    for name in list_files(path):
        if is_table(name) or is_table_file(name):  # a row is a document
            rows = read(
                name,
                columns=columns or Columns(),
                on_bad_row=on_bad_row,
                skipped=skipped,
                keep_empty=True,
            )
            found: Iterator[Example] = (
                _build_document([row.text], row.file, row.line) for row in rows
            )
        else:
            found = _read_lines(name, layout, on_bad_row, skipped)
        for document in found:
            if document.text:
                has_text = True
                yield document
    if not has_text:
        raise UserError(f"{os.fspath(path)}: no text. Add at least one sentence.")


def list_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the files of a path to documents."""
    out = []
    for name in list_shards(path) or resolve_files(path):
        if not os.path.isdir(name):
            out.append(name)
            continue
        inside = sorted(p for p in Path(name).rglob("*") if p.is_file() and p.name[0] != ".")
        if not inside:
            raise UserError(f"{name}: the folder is empty. Put the texts in it.")
        out += map(str, inside)
    return out


def split_sentences(text: str) -> list[str]:
    """Split a text without line breaks into sentences, as `locate_sentences` does."""
    return [text[start:end] for start, end in locate_sentences(text)]


def locate_sentences(text: str) -> list[tuple[int, int]]:
    """Return where the sentences of a text without blank lines start and end.

    A simple rule: a sentence ends in . ! ? or …, before white space and anything but a lower-case
    letter; not after an initial or a known abbreviation.
    """
    out, start = [], 0
    for end in _END.finditer(text):
        # Abbreviations are short, and so are opening quotes and brackets.
        word = text[max(start, end.start() - 9) : end.start()].split(" ")[-1]
        word = word.lstrip(_OPENING).lower()
        after = text[end.end() : end.end() + 9].lstrip(_OPENING + " ")[:1]
        dotted = end[0][0] == "."
        initial = len(word) == 1 and word.isalpha() and word != "i"
        short = (
            initial
            or word in _ABBREVIATIONS
            or (word in _ABBREVIATIONS_BEFORE_NUMBERS and after.isdigit())
        )
        if after.islower() or (dotted and short):
            continue
        out.append((start, end.end()))
        start = end.end()
    out.append((start, len(text)))
    return [span for span in (_strip_span(text, *one) for one in out) if span[0] < span[1]]


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the white space at its ends."""
    covered = text[start:end]
    return end - len(covered.lstrip()), start + len(covered.rstrip())


def detect_document_layout(source: LineSource) -> tuple[DocumentLayout, bool]:
    """Detect the layout from the first lines, and whether titles separate documents."""
    lines = [raw.decode("utf-8", "replace").strip() for raw in source.head(MAX_HEAD_LINES)]
    titles = any(map(_TITLE.fullmatch, lines))
    text_lines = [line for line in lines if line and not _TITLE.fullmatch(line)]
    several = sum(
        len(split_sentences(line)) for line in text_lines
    ) > MIN_SENTENCES_PER_PARAGRAPH * len(text_lines)
    separated = titles or not all(lines[:-1])
    return ("sentences" if not several else "paragraphs" if separated else "lines"), titles


def _read_lines(
    name: str, layout: DocumentLayout, on_bad_row: BadRowPolicy, skipped: SkipCounter | None
) -> Iterator[Example]:
    source = LineSource(name)
    detected, titles = detect_document_layout(source)
    layout = detected if layout == "auto" else layout
    bad_rows = BadRows(source.name, on_bad_row, skipped)
    pending: list[str] = []
    first = size = 0
    for number, line in source.lines(bad_rows):
        blank, title = not line.strip(), titles and bool(_TITLE.fullmatch(line))
        ends = title or (blank and not titles) or layout == "lines"
        if pending and (ends or size > MAX_DOCUMENT_CHARS):
            yield _build_document(pending, source.name, first, layout)
            pending, size = [], 0
        if not (blank or title):
            first = first if pending else number
            pending.append(line)
            size += len(line)
    if pending:
        yield _build_document(pending, source.name, first, layout)


def _build_document(
    lines: list[str], file: str, number: int, layout: DocumentLayout = "lines"
) -> Example:
    """Build a document with a sentence per line."""
    if layout == "sentences":
        parts = [" ".join(line.split()) for line in lines]
    else:
        parts = [
            sentence
            for line in lines
            for row in line.split("\n")
            for sentence in split_sentences(row)
        ]
    return Example("\n".join(filter(None, parts)), None, "", file, number)
