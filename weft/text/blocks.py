"""Tables in blocks of rows that are written back with more columns: Parquet, JSON lines, CSV, TSV.

A block holds its rows as the file has them, so that order, columns and cells are kept.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from weft.errors import UserError
from weft.storage import ESCAPE_SURROGATES, atomic_write
from weft.text.columns import Columns, TableLayout
from weft.text.formats.csv import decode_head, is_unquoted, read_csv_rows, read_tab_rows
from weft.text.formats.jsonl import invalid_json_message, parse_row
from weft.text.formats.recognise import detect_delimiter
from weft.text.line_source import BadRows, LineSource, strip_compression
from weft.text.read import table_layout

ENDINGS = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv")
SAMPLE_BYTES = 2**20  # of a text file, to estimate its rows
_PARQUET_BATCH_ROWS = 1024

Values = Sequence[Any] | np.ndarray  # of a column, one for each row of a block
Save = Callable[[Path, Mapping[str, Values]], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Some rows of a table; `save` writes them to a file of the same format, with more columns."""

    texts: list[str]
    others: list[str] | None  # the second texts, of pairs
    save: Save


def table_ending(path: str) -> str:
    """Return the ending of a table that can be read in blocks, or raise a UserError."""
    ending = Path(strip_compression(path)[0]).suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"{path}: not a table. Give files that end in {', '.join(ENDINGS)}.")
    return ending


def read_blocks(path: str, columns: Columns, size: int, added: Sequence[str]) -> Iterator[Block]:
    """Yield the rows of a table, `size` in each block but the last.

    The columns to add must not be there yet.
    """
    ending = table_ending(path)
    layout = table_layout(path, columns)
    if layout is None:
        raise UserError(f"{path}: no rows with a text. Name the column with --text.")
    if not layout.header and ending in (".csv", ".tsv"):
        raise UserError(
            f"{path}: the table has no header line, so new columns cannot be named. Add one."
        )
    for name in added:
        if name in layout.names:
            raise UserError(f"{path}: there is a column '{name}' already. Rename it.")
    if ending == ".parquet":
        return _read_parquet(path, layout, size)
    if ending in (".csv", ".tsv"):
        return _read_table(path, layout, size)
    return _read_json(path, layout, size)


def estimate_rows(path: str) -> float:
    """Return about how many rows a table has; 0 if it is compressed text."""
    if table_ending(path) == ".parquet":
        from weft.text.formats.parquet import import_pyarrow

        import_pyarrow("Parquet files")
        from pyarrow.parquet import read_metadata

        return float(read_metadata(path).num_rows)
    if strip_compression(path)[0] != path:
        return 0.0
    with open(path, "rb") as file:
        sample = file.read(SAMPLE_BYTES)
    return Path(path).stat().st_size * sample.count(b"\n") / max(len(sample), 1)


def _in_blocks(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(rows)
    while block := list(islice(rest, size)):
        yield block


def _read_parquet(path: str, layout: TableLayout, size: int) -> Iterator[Block]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, write_table

    def make(table: pa.Table) -> Block:
        def column(index: int) -> list[str]:
            return ["" if text is None else str(text) for text in table.column(index).to_pylist()]

        def save(target: Path, added: Mapping[str, Values]) -> None:
            whole = table
            for name, values in added.items():
                whole = whole.append_column(name, _arrow_array(values))
            write_table(whole, target)

        others = None if layout.other is None else column(layout.other)
        return Block(column(layout.text), others, save)

    with ParquetFile(path) as file:
        waiting: list[pa.RecordBatch] = []
        count = 0
        for batch in file.iter_batches(batch_size=min(size, _PARQUET_BATCH_ROWS)):
            while count + batch.num_rows >= size:
                waiting.append(batch.slice(0, size - count))
                yield make(pa.Table.from_batches(waiting, file.schema_arrow))
                batch, waiting, count = batch.slice(size - count), [], 0
            if batch.num_rows:
                waiting.append(batch)
                count += batch.num_rows
        if waiting:
            yield make(pa.Table.from_batches(waiting, file.schema_arrow))


def _arrow_array(values: Values) -> Any:
    """Return a column; vectors keep their 32 bits."""
    import pyarrow as pa

    if isinstance(values, np.ndarray):
        width = values.shape[1]
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), width)
    return pa.array(values)


def _read_table(path: str, layout: TableLayout, size: int) -> Iterator[Block]:
    bad_rows = BadRows(path, "error", None)
    with closing(LineSource(path)) as source:
        tabs = table_ending(path) == ".tsv" and is_unquoted(source)
        delimiter = "\t" if tabs else detect_delimiter(decode_head(source)[0])
        rows = (
            read_tab_rows(source, bad_rows)
            if tabs
            else read_csv_rows(source.raw(), bad_rows, delimiter)
        )
        _, header = next(rows)
        for block in _in_blocks(rows, size):
            for number, cells in block:
                if len(cells) != len(header):
                    raise UserError(
                        f"{path}:{number}: {len(cells)} cells, but the header has {len(header)}. "
                        "Correct the row."
                    )
            yield _table_block([cells for _, cells in block], header, layout, delimiter, tabs)


def _table_block(
    rows: list[list[str]], header: list[str], layout: TableLayout, delimiter: str, plain: bool
) -> Block:
    def save(target: Path, added: Mapping[str, Values]) -> None:
        out = io.StringIO(newline="")
        columns = [[_cell(value) for value in values] for values in added.values()]
        whole = ([*row, *more] for row, *more in zip(rows, *columns, strict=True))
        if plain:  # a cell of such a file has neither tabs nor quotes to care for
            for row in ([*header, *added], *whole):
                out.write("\t".join(" ".join(cell.split("\t")) for cell in row) + "\n")
        else:
            writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
            writer.writerow([*header, *added])
            writer.writerows(whole)
        target.write_text(out.getvalue(), "utf-8", errors=ESCAPE_SURROGATES)

    other = layout.other
    others = None if other is None else [row[other] for row in rows]
    return Block([row[layout.text] for row in rows], others, save)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return " ".join(value.splitlines()) if "\n" in value or "\r" in value else value
    if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return json.dumps(value, ensure_ascii=False)


def _read_json(path: str, layout: TableLayout, size: int) -> Iterator[Block]:
    text = layout.names[layout.text]
    other = None if layout.other is None else layout.names[layout.other]
    with closing(LineSource(path)) as source:
        rows = (
            (line, _parse_line(path, number, line))
            for number, line in source.lines(BadRows(path, "error", None))
            if line and not line.isspace()
        )
        for block in _in_blocks(rows, size):
            objects = [row for _, row in block]
            texts = [str(row.get(text) or "") for row in objects]
            others = None if other is None else [str(row.get(other) or "") for row in objects]
            yield Block(texts, others, partial(_save_lines, [line for line, _ in block]))


def _save_lines(lines: list[str], target: Path, added: Mapping[str, Values]) -> None:
    """Write objects with more keys; what is there stays as it is written."""
    columns = [_plain(values) for values in added.values()]
    with target.open("w", encoding="utf-8", errors=ESCAPE_SURROGATES) as file:
        for line, *more in zip(lines, *columns, strict=True):
            start = line.rstrip()[:-1].rstrip()
            comma = "" if start.endswith("{") else ", "
            end = json.dumps(dict(zip(added, more, strict=True)), ensure_ascii=False)
            file.write(f"{start}{comma}{end[1:]}\n")


def _parse_line(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        row = parse_row(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}:{number}: {invalid_json_message(line, error)}") from error
    if not isinstance(row, dict):
        raise UserError(f"{path}:{number}: expected an object in braces.")
    return row


def _plain(values: Values) -> Values:
    """Return values that JSON can hold."""
    return values.tolist() if isinstance(values, np.ndarray) else values


def save_block(block: Block, target: Path, added: Mapping[str, Values]) -> None:
    """Write a block with its new columns, whole or not at all."""
    with atomic_write(target) as part:
        block.save(part, added)
