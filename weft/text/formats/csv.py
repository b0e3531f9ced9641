"""A table's lines -> its rows, each with the line it starts on, before anything is made of them."""

import csv
import itertools
from collections.abc import Iterator

from weft.errors import UserError
from weft.text.columns import Layout
from weft.text.formats.recognise import LARGEST_CELL, csv_reader, is_quoted
from weft.text.line_source import NUL, SKIP, UNDECODABLE, Problems, Source, not_utf8, nul_byte

RETURN = "bare carriage return"

Rows = Iterator[tuple[int, list[str]]]  # (line the row starts on, its cells)


def head_lines(source: Source) -> list[str]:
    """The first lines as text, whatever their bytes are; they are not lost to the source."""
    return [raw.decode("utf-8", "replace") for raw in source.head()]


def is_plain(source: Source) -> bool:
    """Whether a tab-separated file holds its cells as they are, without CSV quotes."""
    lines = [line.rstrip("\r\n") for line in head_lines(source)]
    return not is_quoted([line for line in lines if line])


def tab_rows(source: Source, problems: Problems) -> Rows:
    """The rows of a tab-separated file without quotes."""
    return ((number, line.split("\t")) for number, line in source.lines(problems) if line)


def split_header(rows: Rows, found: Layout) -> tuple[list[str] | None, Rows]:
    """The cells of the header, where there is one, and the rows below it."""
    if not found.header:
        return None, rows
    first = next(rows, None)
    # A header that could not be decoded was skipped already, so the first row is compared.
    if first is not None and tuple(cell.strip() for cell in first[1]) != found.names:
        return list(found.names), itertools.chain([first], rows)
    return list(found.names) if first is None else first[1], rows


def csv_rows(
    raw_lines: Iterator[bytes], problems: Problems, delimiter: str, *, whole: bool = True
) -> Rows:
    """The rows of a quoted table; `whole` is False for a sample that may end anywhere."""
    flaws: list[tuple[str, int, str]] = []
    reader = csv_reader(_feed(raw_lines, flaws), delimiter)
    start = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = []
            if "unexpected end" in str(error) or "field limit" in str(error):
                if not whole:
                    return
                raise _unclosed(problems.file, start) from error
            if "new-line character" in str(error):
                fix = f"Remove it (tr -d '\\r' < FILE), or {SKIP}"
                flaws.append((RETURN, start, f"a bare carriage return inside the row. {fix}."))
            else:
                fix = f"Double the quotes inside a quoted cell, or {SKIP}"
                flaws.append(("broken quoting", start, f"broken quoting: {error}. {fix}."))
        if row is None:
            return
        if flaws:
            problems.found(*flaws[0])
            flaws.clear()
        elif row:
            yield start, row
        start = reader.line_num + 1


def _feed(raw_lines: Iterator[bytes], flaws: list[tuple[str, int, str]]) -> Iterator[str]:
    # A bad line may sit inside a quoted cell, so it is passed on and its whole row is dropped.
    for number, raw in enumerate(raw_lines, 1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            flaws.append((UNDECODABLE, number, not_utf8(error)))
            text = raw.decode("utf-8", "replace")
        if "\0" in text:
            flaws.append((NUL, number, nul_byte(text)))
            text = text.replace("\0", "\ufffd")
        yield text


def _unclosed(file: str, line: int) -> UserError:
    return UserError(
        f"{file}:{line}: a quote opened in the row that starts here is never closed "
        f"(or a cell is longer than {LARGEST_CELL:,} characters). Close it, or double it "
        'if it belongs to the text ("").'
    )
