"""Raw text as documents: sentences that follow each other, from files of several layouts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from weft.errors import UserError
from weft.text.example import Example, Tally
from weft.text.formats.parallel import resolve_files
from weft.text.line_source import (
    MAX_HEAD_LINES,
    BadRowPolicy,
    BadRows,
    LineSource,
    strip_compression,
)
from weft.text.read import Columns, read

# What a line holds: a sentence or a paragraph of a document, with a break between documents; or
# all of a document.
DocumentLayout = Literal["auto", "sentences", "paragraphs", "lines"]

TABLE_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")  # a row is a document
MAX_DOCUMENT_CHARS = 2**20  # characters of a document; what is longer goes on as another
MIN_SENTENCES_PER_PARAGRAPH = 1.5  # sentences a line, on average, where lines are paragraphs

# Between documents: === a title ===, or the tags of extracted Wikipedia dumps; in a file that has
# none of these, a blank line.
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
    skipped: Tally | None = None,
) -> Iterator[Example]:
    """The documents of a file, of files with commas between them, or of all files in a folder.

    The text of each has a sentence a line. Of a table every row is a document.
    """
    some = False
    for name in list_files(path):
        if strip_compression(name)[0].endswith(TABLE_ENDINGS):
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
                some = True
                yield document
    if not some:
        raise UserError(f"{os.fspath(path)}: there is no text in it. Give it at least a sentence.")


def list_files(path: str | os.PathLike[str]) -> list[str]:
    """The files that a path of documents means."""
    out = []
    for name in resolve_files(path):
        if not os.path.isdir(name):
            out.append(name)
            continue
        inside = sorted(p for p in Path(name).rglob("*") if p.is_file() and p.name[0] != ".")
        if not inside:
            raise UserError(f"{name}: the folder holds no file. Put the texts in it.")
        out += map(str, inside)
    return out


def split_sentences(text: str) -> list[str]:
    """Where a text has no line breaks, its sentences: by their marks, and by what follows.

    A simple rule: a sentence ends in . ! ? or …, before white space and something other than a
    small letter; not after an initial or a known abbreviation.
    """
    out, start = [], 0
    for found in _END.finditer(text):
        # The longest word that matters is short, and so is what may open the next sentence.
        word = text[max(start, found.start() - 9) : found.start()].split(" ")[-1]
        word = word.lstrip(_OPENING).lower()
        after = text[found.end() : found.end() + 9].lstrip(_OPENING + " ")[:1]
        dotted = found[0][0] == "."
        initial = len(word) == 1 and word.isalpha() and word != "i"
        short = (
            initial
            or word in _ABBREVIATIONS
            or (word in _ABBREVIATIONS_BEFORE_NUMBERS and after.isdigit())
        )
        if after.islower() or (dotted and short):
            continue
        out.append(text[start : found.end()].strip())
        start = found.end()
    out.append(text[start:].strip())
    return [one for one in out if one]


def detect_document_layout(source: LineSource) -> tuple[DocumentLayout, bool]:
    """What the first lines look like, and whether documents have titles between them."""
    lines = [raw.decode("utf-8", "replace").strip() for raw in source.head(MAX_HEAD_LINES)]
    titles = any(map(_TITLE.fullmatch, lines))
    written = [line for line in lines if line and not _TITLE.fullmatch(line)]
    several = sum(
        len(split_sentences(line)) for line in written
    ) > MIN_SENTENCES_PER_PARAGRAPH * len(written)
    parted = titles or not all(lines[:-1])
    return ("sentences" if not several else "paragraphs" if parted else "lines"), titles


def _read_lines(
    name: str, layout: DocumentLayout, on_bad_row: BadRowPolicy, skipped: Tally | None
) -> Iterator[Example]:
    source = LineSource(name)
    looks, titles = detect_document_layout(source)
    layout = looks if layout == "auto" else layout
    watch = BadRows(source.name, on_bad_row, skipped)
    held: list[str] = []
    first = size = 0
    for number, line in source.lines(watch):
        blank, title = not line.strip(), titles and bool(_TITLE.fullmatch(line))
        ends = title or (blank and not titles) or layout == "lines"
        if held and (ends or size > MAX_DOCUMENT_CHARS):
            yield _build_document(held, source.name, first, layout)
            held, size = [], 0
        if not (blank or title):
            first = first if held else number
            held.append(line)
            size += len(line)
    if held:
        yield _build_document(held, source.name, first, layout)


def _build_document(
    lines: list[str], file: str, number: int, layout: DocumentLayout = "lines"
) -> Example:
    """A document with a sentence a line."""
    if layout == "sentences":
        parts = [" ".join(line.split()) for line in lines]
    else:
        parts = [one for line in lines for row in line.split("\n") for one in split_sentences(row)]
    return Example("\n".join(filter(None, parts)), None, "", file, number)
