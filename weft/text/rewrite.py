"""A file again with other texts and labels: rows may go, every other cell stays as it was."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeVar

from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.columns import Columns, TableLayout
from weft.text.example import Example, GoldAnswers, Label, parse_label
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
)  # formats that can hold more than text and label
Row = TypeVar("Row")


def rewrite(
    examples: Iterable[Example], path: str, target: str, format: str, columns: Columns
) -> None:
    """Write to `target` the rows of `path` that `examples` came from, with what they say now.

    The examples are those that `read` gave, in that order and with their lines; some may be
    missing. Columns, their order, the separator and the line ends are those of `path`.
    """
    with atomic_write(target) as part:
        if format == "parquet":
            from weft.text.formats.parquet import rewrite_parquet

            rewrite_parquet(examples, path, str(part), columns)
            return
        found = table_layout(path, columns, format)
        source = LineSource(path)
        with open_text(part, strip_compression(target)[1]) as out:
            try:
                _WRITERS[format](examples, source, found, out)
            except UnicodeEncodeError as error:
                raise UserError(
                    f"Cannot write {target}: {error}. Remove half surrogates."
                ) from error
            finally:
                source.close()


def extra_columns(path: str, columns: Columns, format: str) -> tuple[str, ...]:
    """What the columns besides text, label and id are called."""
    if format == "parquet":
        from weft.text.formats.parquet import parquet_layout

        found: TableLayout | None = parquet_layout(path, columns)
    else:
        found = table_layout(path, columns, format)
    if found is None:
        return ()
    used = (found.text, found.label, found.id)
    return tuple(name or str(i) for i, name in enumerate(found.names) if i not in used)


def _match_rows(
    examples: Iterable[Example], rows: Iterator[tuple[int, Row]]
) -> Iterator[tuple[Example, Row]]:
    # No row is read beyond the last example's: there the file may be broken.
    for example in examples:
        row = next((row for line, row in rows if line == example.line), None)
        if row is None:
            raise UserError(f"{example.where}: the file was changed meanwhile. Try again.")
        yield example, row


def _rewrite_csv(
    examples: Iterable[Example], source: LineSource, found: TableLayout | None, out: IO[str]
) -> None:
    delimiter = detect_delimiter(decode_head(source)[0])
    end = _detect_line_end(source)
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    careful = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    rows = read_csv_rows(source.raw(), _ignore_bad_rows(source), delimiter)
    for cells in _rewrite_cells(examples, rows, found):
        # Left to itself, the csv module would not quote a bare carriage return.
        (careful if any("\r" in cell for cell in cells) else writer).writerow(cells)


def _rewrite_tsv(
    examples: Iterable[Example], source: LineSource, found: TableLayout | None, out: IO[str]
) -> None:
    if not is_unquoted(source):
        _rewrite_csv(examples, source, found, out)
        return
    end = _detect_line_end(source)
    for cells in _rewrite_cells(examples, read_tab_rows(source, _ignore_bad_rows(source)), found):
        out.write("\t".join(cells) + end)


def _rewrite_cells(
    examples: Iterable[Example], rows: NumberedRows, found: TableLayout | None
) -> Iterator[list[str]]:
    assert found is not None  # a table always has a layout
    header, rows = split_header(rows, found)
    if header is not None:
        yield header
    for example, cells in _match_rows(examples, rows):
        cells[found.text] = example.text
        if found.label is not None and not isinstance(example.label, GoldAnswers):
            cells[found.label] = "" if example.label is None else str(example.label)
        yield cells


def _rewrite_jsonl(
    examples: Iterable[Example], source: LineSource, found: TableLayout | None, out: IO[str]
) -> None:
    text, label = "text", None  # as `read` has it where no row says more
    if found is not None:
        text = found.names[found.text]
        label = None if found.label is None else found.names[found.label]
    end = _detect_line_end(source)
    for example, line in _match_rows(examples, source.lines(_ignore_bad_rows(source))):
        row = json.loads(line)
        changed: dict[str, Any] = {}
        if row[text] != example.text:
            changed[text] = example.text
        answers = isinstance(example.label, GoldAnswers)  # in the passage, which stays as it is
        if label is not None and not answers and parse_label(row.get(label)) != example.label:
            changed[label] = _to_json(example.label)
        if changed:
            escaped = line.isascii() or "\\ud" in line.lower()  # half a pair fits in no other way
            line = json.dumps(row | changed, ensure_ascii=escaped)
        out.write(line + end)


def _to_json(label: Label) -> Any:
    return list(label) if isinstance(label, tuple) else label


def _detect_line_end(source: LineSource) -> str:
    return "\r\n" if source.head(1)[0].endswith(b"\r\n") else "\n"


def _ignore_bad_rows(source: LineSource) -> BadRows:
    return BadRows(source.name, "skip", None)  # whoever made the examples has told of them


_WRITERS: dict[
    str, Callable[[Iterable[Example], LineSource, TableLayout | None, IO[str]], None]
] = {
    "csv": _rewrite_csv,
    "tsv": _rewrite_tsv,
    "jsonl": _rewrite_jsonl,
}
