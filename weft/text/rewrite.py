"""A file again with other texts and labels: rows may go, every other cell stays as it was."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeVar

from weft.errors import UserError
from weft.storage import replacing
from weft.text.columns import Columns, Layout
from weft.text.example import Answers, Example, Label, label_of
from weft.text.formats.csv import Rows, csv_rows, head_lines, is_plain, split_header, tab_rows
from weft.text.formats.recognise import delimiter_of
from weft.text.line_source import Problems, Source, peel
from weft.text.read import laid_out
from weft.text.write import opened

KEEPING = ("csv", "tsv", "jsonl", "parquet")  # formats that can hold more than text and label
Row = TypeVar("Row")


def rewrite(
    examples: Iterable[Example], path: str, target: str, format: str, columns: Columns
) -> None:
    """Write to `target` the rows of `path` that `examples` came from, with what they say now.

    The examples are those that `read` gave, in that order and with their lines; some may be
    missing. Columns, their order, the separator and the line ends are those of `path`.
    """
    with replacing(target) as part:
        if format == "parquet":
            from weft.text.formats.parquet import rewrite_parquet

            rewrite_parquet(examples, path, str(part), columns)
            return
        found = laid_out(path, columns, format)
        source = Source(path)
        with opened(part, peel(target)[1]) as out:
            try:
                _WRITERS[format](examples, source, found, out)
            except UnicodeEncodeError as error:
                raise UserError(
                    f"Cannot write {target}: {error}. Remove half surrogates."
                ) from error
            finally:
                source.close()


def other_columns(path: str, columns: Columns, format: str) -> tuple[str, ...]:
    """What the columns besides text, label and id are called."""
    if format == "parquet":
        from weft.text.formats.parquet import parquet_layout

        found: Layout | None = parquet_layout(path, columns)
    else:
        found = laid_out(path, columns, format)
    if found is None:
        return ()
    used = (found.text, found.label, found.id)
    return tuple(name or str(i) for i, name in enumerate(found.names) if i not in used)


def _together(
    examples: Iterable[Example], rows: Iterator[tuple[int, Row]]
) -> Iterator[tuple[Example, Row]]:
    # No row is read beyond the last example's: there the file may be broken.
    for example in examples:
        row = next((row for line, row in rows if line == example.line), None)
        if row is None:
            raise UserError(f"{example.where}: the file was changed meanwhile. Try again.")
        yield example, row


def _csv(examples: Iterable[Example], source: Source, found: Layout | None, out: IO[str]) -> None:
    delimiter = delimiter_of(head_lines(source)[0])
    end = _line_end(source)
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    careful = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    rows = csv_rows(source.raw(), _silent(source), delimiter)
    for cells in _cells(examples, rows, found):
        # Left to itself, the csv module would not quote a bare carriage return.
        (careful if any("\r" in cell for cell in cells) else writer).writerow(cells)


def _tsv(examples: Iterable[Example], source: Source, found: Layout | None, out: IO[str]) -> None:
    if not is_plain(source):
        _csv(examples, source, found, out)
        return
    end = _line_end(source)
    for cells in _cells(examples, tab_rows(source, _silent(source)), found):
        out.write("\t".join(cells) + end)


def _cells(examples: Iterable[Example], rows: Rows, found: Layout | None) -> Iterator[list[str]]:
    assert found is not None  # a table always has a layout
    header, rows = split_header(rows, found)
    if header is not None:
        yield header
    for example, cells in _together(examples, rows):
        cells[found.text] = example.text
        if found.label is not None and not isinstance(example.label, Answers):
            cells[found.label] = "" if example.label is None else str(example.label)
        yield cells


def _jsonl(examples: Iterable[Example], source: Source, found: Layout | None, out: IO[str]) -> None:
    text, label = "text", None  # as `read` has it where no row says more
    if found is not None:
        text = found.names[found.text]
        label = None if found.label is None else found.names[found.label]
    end = _line_end(source)
    for example, line in _together(examples, source.lines(_silent(source))):
        row = json.loads(line)
        changed: dict[str, Any] = {}
        if row[text] != example.text:
            changed[text] = example.text
        answers = isinstance(example.label, Answers)  # in the passage, which stays as it is
        if label is not None and not answers and label_of(row.get(label)) != example.label:
            changed[label] = _plain(example.label)
        if changed:
            escaped = line.isascii() or "\\ud" in line.lower()  # half a pair fits in no other way
            line = json.dumps(row | changed, ensure_ascii=escaped)
        out.write(line + end)


def _plain(label: Label) -> Any:
    return list(label) if isinstance(label, tuple) else label


def _line_end(source: Source) -> str:
    return "\r\n" if source.head(1)[0].endswith(b"\r\n") else "\n"


def _silent(source: Source) -> Problems:
    return Problems(source.name, "skip", None)  # whoever made the examples has told of them


_WRITERS: dict[str, Callable[[Iterable[Example], Source, Layout | None, IO[str]], None]] = {
    "csv": _csv,
    "tsv": _tsv,
    "jsonl": _jsonl,
}
