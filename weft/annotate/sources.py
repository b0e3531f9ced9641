"""Read the documents to annotate: plain text, rows of a table, or all files of a folder."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from weft.annotate.document import SourceText
from weft.annotate.segment import MAX_DOCUMENT_CHARACTERS, find_cut
from weft.errors import UserError
from weft.text.columns import NO_LABEL, Columns
from weft.text.example import SkipCounter
from weft.text.formats.documents import list_files
from weft.text.line_source import (
    BadRowPolicy,
    BadRows,
    LineSource,
    decode_line,
    file_not_found,
    strip_compression,
)
from weft.text.location import is_table
from weft.text.read import read
from weft.text.shards import is_table_file

WORD_ENDINGS = (".conllu", ".conll", ".conllup", ".iob", ".bio", ".ann", ".ptb", ".mrg")


def read_sources(
    files: Sequence[str],
    *,
    by_line: bool = False,
    text: int | str | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[SourceText]:
    """Yield the documents of files: a row of a table, a text file, or with `by_line` each line.

    Offsets into a text file count the characters that it decodes to, without a byte order mark.
    Missing files raise at once.
    """
    named = [name for file in files for name in _expand(file)]
    return _read_all(named, by_line, text, on_bad_row, skipped)


def _expand(file: str) -> list[str]:
    """Return the files of a folder, or the one file."""
    if is_table(file) or file == "-":
        return [file]
    if not os.path.exists(file):
        raise file_not_found(file)
    names = list_files(file)
    for name in names:
        if strip_compression(name)[0].endswith(WORD_ENDINGS):
            raise UserError(
                f"{name}: this file has words and sentences already. `weft predict MODEL {name}` "
                "annotates those, one layer at a time; --conllu writes them back."
            )
    return names


def _read_all(
    names: Sequence[str],
    by_line: bool,
    text: int | str | None,
    on_bad_row: BadRowPolicy,
    skipped: SkipCounter | None,
) -> Iterator[SourceText]:
    some = False
    for name in names:
        if is_table(name) or is_table_file(name):
            found = _read_rows(name, text, on_bad_row, skipped)
        elif by_line:
            found = _read_lines(name, on_bad_row, skipped)
        else:
            found = _read_text(name)
        for document in found:
            some = some or bool(document.text.strip())
            yield document
    if not some:
        raise UserError(f"{', '.join(names)}: no text. Give at least one sentence.")


def _read_rows(
    name: str, text: int | str | None, on_bad_row: BadRowPolicy, skipped: SkipCounter | None
) -> Iterator[SourceText]:
    columns = Columns(text=text, label=NO_LABEL)
    stem = _stem(name)
    for number, row in enumerate(
        read(name, columns=columns, on_bad_row=on_bad_row, skipped=skipped, keep_empty=True), 1
    ):
        yield SourceText(row.text, row.id or f"{stem}-{number}", row.file, row.line)


def _read_lines(
    name: str, on_bad_row: BadRowPolicy, skipped: SkipCounter | None
) -> Iterator[SourceText]:
    source = LineSource(name)
    stem = _stem(name)
    for number, line in source.lines(BadRows(source.name, on_bad_row, skipped)):
        if line.strip():
            yield SourceText(line, f"{stem}-{number}", source.name, number)


def _read_text(name: str) -> Iterator[SourceText]:
    """Yield a text file as one document, in parts if it is long, as it is read."""
    source = LineSource(name)
    bad_rows = BadRows(source.name, "error", None)
    whole = SourceText("", _stem(name), source.name, 1)
    waiting: list[str] = []
    size = start = part = 0
    for number, raw in enumerate(source.raw(), 1):
        decode_line(raw, number, bad_rows)  # raises for bytes that are no text
        waiting.append(raw.decode("utf-8"))
        size += len(waiting[-1])
        if size <= MAX_DOCUMENT_CHARACTERS:
            continue
        text = "".join(waiting)
        while len(text) > MAX_DOCUMENT_CHARACTERS:
            end = find_cut(text)
            part += 1
            yield replace(whole, text=text[:end], start=start, part=part)
            start, text = start + end, text[end:]
        waiting, size = [text], len(text)
    rest = "".join(waiting)
    if not part:
        yield replace(whole, text=rest)
    elif rest:
        yield replace(whole, text=rest, start=start, part=part + 1)


def _stem(name: str) -> str:
    """Return the name of a file without folders and endings, for ids."""
    return "stdin" if name == "-" else Path(strip_compression(name)[0]).stem or "text"
