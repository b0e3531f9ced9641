"""Read the rows of CSV and TSV tables, each with its first line number."""

import csv
import itertools
from collections.abc import Iterator

from weft.errors import UserError
from weft.text.columns import TableLayout
from weft.text.formats.recognise import MAX_CELL_CHARS, csv_reader, uses_csv_quotes
from weft.text.line_source import (
    NUL_BYTE,
    SKIP_HINT,
    UNDECODABLE,
    BadRows,
    LineSource,
    not_utf8_message,
    nul_byte_message,
)

BARE_RETURN = "bare carriage return"

NumberedRows = Iterator[tuple[int, list[str]]]  # (first line of the row, its cells)


def decode_head(source: LineSource) -> list[str]:
    """Decode the first lines leniently; the source still yields them."""
    return [raw.decode("utf-8", "replace") for raw in source.head()]


def is_unquoted(source: LineSource) -> bool:
    """Return whether a tab-separated file has no CSV quotes."""
    lines = [line.rstrip("\r\n") for line in decode_head(source)]
    return not uses_csv_quotes([line for line in lines if line])


def read_tab_rows(source: LineSource, bad_rows: BadRows) -> NumberedRows:
    """Yield the rows of a tab-separated file without quotes."""
    return ((number, line.split("\t")) for number, line in source.lines(bad_rows) if line)


def split_header(rows: NumberedRows, layout: TableLayout) -> tuple[list[str] | None, NumberedRows]:
    """Return the header cells, if any, and the rows below."""
    if not layout.header:
        return None, rows
    first = next(rows, None)
    # An undecodable header was skipped already, so compare the first row.
    if first is not None and tuple(cell.strip() for cell in first[1]) != layout.names:
        return list(layout.names), itertools.chain([first], rows)
    return list(layout.names) if first is None else first[1], rows


def read_csv_rows(
    raw_lines: Iterator[bytes], bad_rows: BadRows, delimiter: str, *, whole: bool = True
) -> NumberedRows:
    """Yield the rows of a quoted table; `whole` is False for a sample that may end anywhere."""
    flaws: list[tuple[str, int, str]] = []
    reader = csv_reader(_decode_lines(raw_lines, flaws), delimiter)
    start = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = []
            if "unexpected end" in str(error) or "field limit" in str(error):
                if not whole:
                    return
                raise _unclosed_quote(bad_rows.file, start) from error
            if "new-line character" in str(error):
                fix = f"Remove it (tr -d '\\r' < FILE), or {SKIP_HINT}"
                flaws.append((BARE_RETURN, start, f"a bare carriage return inside the row. {fix}."))
            else:
                fix = f"Double the quotes inside a quoted cell, or {SKIP_HINT}"
                flaws.append(("broken quoting", start, f"broken quoting: {error}. {fix}."))
        if row is None:
            return
        if flaws:
            bad_rows.report(*flaws[0])
            flaws.clear()
        elif row:
            yield start, row
        start = reader.line_num + 1


def _decode_lines(raw_lines: Iterator[bytes], flaws: list[tuple[str, int, str]]) -> Iterator[str]:
    # A bad line may be inside a quoted cell, so it is passed on and its whole row dropped.
    for number, raw in enumerate(raw_lines, 1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            flaws.append((UNDECODABLE, number, not_utf8_message(error)))
            text = raw.decode("utf-8", "replace")
        if "\0" in text:
            flaws.append((NUL_BYTE, number, nul_byte_message(text)))
            text = text.replace("\0", "\ufffd")
        yield text


def _unclosed_quote(file: str, line: int) -> UserError:
    return UserError(
        f"{file}:{line}: a quote opened in this row is never closed (or a cell is longer than "
        f"{MAX_CELL_CHARS:,} characters). Close it, or double it if it is part of the text "
        '("").'
    )
