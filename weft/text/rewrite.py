"""Rewrite a file with changed texts and labels; rows may be dropped, other cells stay."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TypeVar

from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.columns import Columns, TableLayout
from weft.text.example import Example, GoldAnswers, Label, WordAnnotations, parse_label
from weft.text.formats.csv import (
    NumberedRows,
    decode_head,
    is_unquoted,
    read_csv_rows,
    read_tab_rows,
    split_header,
)
from weft.text.formats.recognise import detect_delimiter
from weft.text.line_source import BadRows, LineSource, strip_compression
from weft.text.read import table_layout
from weft.text.write import open_text

COLUMN_FORMATS = (
    "csv",
    "tsv",
    "jsonl",
    "parquet",
)  # formats with more than text and label
Row = TypeVar("Row")


def rewrite(
    examples: Iterable[Example], path: str, target: str, format: str, columns: Columns
) -> None:
    """Write the rows of `path` that `examples` came from to `target`, with their changes.

    The examples are those of `read`, in that order and with their lines; some may be missing.
    Columns, their order, the separator and line breaks are those of `path`.
    """
    with atomic_write(target) as part:
        if format == "parquet":
            from weft.text.formats.parquet import rewrite_parquet

            rewrite_parquet(examples, path, str(part), columns)
            return
        layout = table_layout(path, columns, format)
        source = LineSource(path)
        with open_text(part, strip_compression(target)[1]) as out:
            try:
                _WRITERS[format](examples, source, layout, out)
            except UnicodeEncodeError as error:
                raise UserError(
                    f"Cannot write {target}: {error}. Remove lone surrogates."
                ) from error
            finally:
                source.close()


def extra_columns(path: str, columns: Columns, format: str) -> tuple[str, ...]:
    """Return the names of columns other than text, label and id."""
    if format == "parquet":
        from weft.text.formats.parquet import parquet_layout

        layout: TableLayout | None = parquet_layout(path, columns)
    else:
        layout = table_layout(path, columns, format)
    if layout is None:
        return ()
    used = (layout.text, layout.label, layout.id)
    return tuple(name or str(i) for i, name in enumerate(layout.names) if i not in used)


def _match_rows(
    examples: Iterable[Example], rows: Iterator[tuple[int, Row]]
) -> Iterator[tuple[Example, Row]]:
    # Rows after the last example are not read: the file may be damaged there.
    for example in examples:
        row = next((row for line, row in rows if line == example.line), None)
        if row is None:
            raise UserError(f"{example.where}: the file has changed. Try again.")
        yield example, row


def _rewrite_csv(
    examples: Iterable[Example], source: LineSource, layout: TableLayout | None, out: IO[str]
) -> None:
    delimiter = detect_delimiter(decode_head(source)[0])
    end = _detect_line_end(source)
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    careful = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    rows = read_csv_rows(source.raw(), _ignore_bad_rows(source), delimiter)
    for cells in _rewrite_cells(examples, rows, layout):
        # The csv module does not quote a bare carriage return.
        (careful if any("\r" in cell for cell in cells) else writer).writerow(cells)


def _rewrite_tsv(
    examples: Iterable[Example], source: LineSource, layout: TableLayout | None, out: IO[str]
) -> None:
    if not is_unquoted(source):
        _rewrite_csv(examples, source, layout, out)
        return
    end = _detect_line_end(source)
    for cells in _rewrite_cells(examples, read_tab_rows(source, _ignore_bad_rows(source)), layout):
        out.write("\t".join(cells) + end)


def _rewrite_cells(
    examples: Iterable[Example], rows: NumberedRows, layout: TableLayout | None
) -> Iterator[list[str]]:
    assert layout is not None  # a table always has a layout
    header, rows = split_header(rows, layout)
    if header is not None:
        yield header
    for example, cells in _match_rows(examples, rows):
        cells[layout.text] = example.text
        if layout.label is not None and not isinstance(example.label, GoldAnswers):
            cells[layout.label] = "" if example.label is None else str(example.label)
        yield cells


def _rewrite_jsonl(
    examples: Iterable[Example], source: LineSource, layout: TableLayout | None, out: IO[str]
) -> None:
    text, label = "text", None  # the default of `read`
    if layout is not None:
        text = layout.names[layout.text]
        label = None if layout.label is None else layout.names[layout.label]
    end = _detect_line_end(source)
    for example, line in _match_rows(examples, source.lines(_ignore_bad_rows(source))):
        row = json.loads(line)
        changed: dict[str, object] = {}
        if isinstance(example.label, WordAnnotations):
            tags = list(example.label.columns[example.label.main])
            if label is not None and list(map(str, row[label])) != tags:
                line = json.dumps(row | {label: tags}, ensure_ascii=line.isascii())
            out.write(line + end)
            continue
        if row[text] != example.text:
            changed[text] = example.text
        answers = isinstance(example.label, GoldAnswers)  # of the passage, which does not change
        if label is not None and not answers and parse_label(row.get(label)) != example.label:
            changed[label] = _to_json(example.label)
        if changed:
            escaped = (
                line.isascii() or "\\ud" in line.lower()
            )  # only an escape can hold a lone surrogate
            line = json.dumps(row | changed, ensure_ascii=escaped)
        out.write(line + end)


def _to_json(label: Label) -> object:
    return list(label) if isinstance(label, tuple) else label


def _detect_line_end(source: LineSource) -> str:
    return "\r\n" if source.head(1)[0].endswith(b"\r\n") else "\n"


def _ignore_bad_rows(source: LineSource) -> BadRows:
    return BadRows(source.name, "skip", None)  # reported when the examples were read


_WRITERS: dict[
    str, Callable[[Iterable[Example], LineSource, TableLayout | None, IO[str]], None]
] = {
    "csv": _rewrite_csv,
    "tsv": _rewrite_tsv,
    "jsonl": _rewrite_jsonl,
}
