"""Raw text as documents: sentences that follow each other, from files of several layouts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from weft.errors import UserError
from weft.text.example import Example, Tally
from weft.text.formats.parallel import sides
from weft.text.line_source import SAMPLE_LINES, Handling, Problems, Source, peel
from weft.text.read import Columns, read

# What a line holds: a sentence or a paragraph of a document, with a break between documents; or
# all of a document.
Layout = Literal["auto", "sentences", "paragraphs", "lines"]

TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")  # a row is a document
LONGEST = 2**20  # characters of a document; what is longer goes on as another
MANY = 1.5  # sentences a line, on average, where lines are paragraphs

# Between documents: === a title ===, or the tags of extracted Wikipedia dumps; in a file that has
# none of these, a blank line.
_TITLE = re.compile(r"\s*(?:={3,}.*={3,}|<doc\b[^>]*>|</doc>)\s*")
# Bounded throughout: a line of a million dots or quotes must not take a minute.
_END = re.compile(
    r"[.!?…]{1,5}[\"'”’»)\]]{0,3}\s(?=\s{0,5}[\"'“‘«(\[¿¡]{0,3}\w)|[。！？]{1,5}[」』”’）]{0,3}"
)
_OPENING = "\"'“‘«([¿¡"
_SHORT = {
    *("mr", "mrs", "ms", "dr", "st", "prof", "rev", "hon", "gen", "col", "capt", "lt", "sgt", "jr"),
    *("sr", "vs", "cf", "al", "eds", "inc", "ltd", "corp", "approx", "dept", "univ"),
    *("e.g", "i.e", "u.s", "u.k", "a.m", "p.m"),
}
_NUMBERED = {"no", "nos", "vol", "vols", "fig", "figs", "eq", "sec", "ch", "art", "p", "pp"}


def read_documents(
    path: str | os.PathLike[str],
    layout: Layout = "auto",
    *,
    columns: Columns | None = None,
    problems: Handling = "error",
    tally: Tally | None = None,
) -> Iterator[Example]:
    """The documents of a file, of files with commas between them, or of all files in a folder.

    The text of each has a sentence a line. Of a table every row is a document.
    """
    some = False
    for name in files_of(path):
        if peel(name)[0].endswith(TABLES):
            rows = read(
                name, columns=columns or Columns(), problems=problems, tally=tally, keep_empty=True
            )
            found: Iterator[Example] = (_document([row.text], row.file, row.line) for row in rows)
        else:
            found = _of_lines(name, layout, problems, tally)
        for document in found:
            if document.text:
                some = True
                yield document
    if not some:
        raise UserError(f"{os.fspath(path)}: there is no text in it. Give it at least a sentence.")


def files_of(path: str | os.PathLike[str]) -> list[str]:
    """The files that a path of documents means."""
    out = []
    for name in sides(path):
        if not os.path.isdir(name):
            out.append(name)
            continue
        inside = sorted(p for p in Path(name).rglob("*") if p.is_file() and p.name[0] != ".")
        if not inside:
            raise UserError(f"{name}: the folder holds no file. Put the texts in it.")
        out += map(str, inside)
    return out


def sentences(text: str) -> list[str]:
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
        short = initial or word in _SHORT or (word in _NUMBERED and after.isdigit())
        if after.islower() or (dotted and short):
            continue
        out.append(text[start : found.end()].strip())
        start = found.end()
    out.append(text[start:].strip())
    return [one for one in out if one]


def layout_of(source: Source) -> tuple[Layout, bool]:
    """What the first lines look like, and whether documents have titles between them."""
    lines = [raw.decode("utf-8", "replace").strip() for raw in source.head(SAMPLE_LINES)]
    titles = any(map(_TITLE.fullmatch, lines))
    written = [line for line in lines if line and not _TITLE.fullmatch(line)]
    several = sum(len(sentences(line)) for line in written) > MANY * len(written)
    parted = titles or not all(lines[:-1])
    return ("sentences" if not several else "paragraphs" if parted else "lines"), titles


def _of_lines(
    name: str, layout: Layout, problems: Handling, tally: Tally | None
) -> Iterator[Example]:
    source = Source(name)
    looks, titles = layout_of(source)
    layout = looks if layout == "auto" else layout
    watch = Problems(source.name, problems, tally)
    held: list[str] = []
    first = size = 0
    for number, line in source.lines(watch):
        blank, title = not line.strip(), titles and bool(_TITLE.fullmatch(line))
        ends = title or (blank and not titles) or layout == "lines"
        if held and (ends or size > LONGEST):
            yield _document(held, source.name, first, layout)
            held, size = [], 0
        if not (blank or title):
            first = first if held else number
            held.append(line)
            size += len(line)
    if held:
        yield _document(held, source.name, first, layout)


def _document(lines: list[str], file: str, number: int, layout: Layout = "lines") -> Example:
    """A document with a sentence a line."""
    if layout == "sentences":
        parts = [" ".join(line.split()) for line in lines]
    else:
        parts = [one for line in lines for row in line.split("\n") for one in sentences(row)]
    return Example("\n".join(filter(None, parts)), None, "", file, number)
