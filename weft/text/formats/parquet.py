"""Read and write Parquet, a record batch at a time, with pyarrow."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from weft.errors import UserError
from weft.text.columns import Columns, TableLayout
from weft.text.example import Example, GoldAnswers, Label, parse_label
from weft.text.formats.jsonl import Keys
from weft.text.formats.rows import Row, RowFault, examples_from_rows, layout_of_rows
from weft.text.line_source import SKIP_HINT, UNDECODABLE, BadRows
from weft.text.remote import is_remote, open_remote
from weft.text.tables.class_labels import decode_columns, hub_class_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    from weft.jsonio import Json

_BATCH_ROWS = 1024
_CONVERSION_ERRORS = (ValueError, OverflowError, TypeError)
_UNREADABLE = "the row has an unreadable value, such as a text that is not UTF-8"


def read_parquet(path: str, columns: Columns, bad_rows: BadRows) -> Iterator[Example]:
    """Yield the rows as Examples; `line` counts rows from 1."""
    file, layout = _open(path, columns)
    keys = Keys.from_layout(layout)
    rows = enumerate(_read_rows(file, path, keys), 1)
    return examples_from_rows(rows, keys, path, columns, bad_rows)


def _open(path: str, columns: Columns) -> tuple[ParquetFile, TableLayout]:
    pyarrow, parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(open_remote(path) if is_remote(path) else path)
        first = next(file.iter_batches(batch_size=_BATCH_ROWS), None)
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # a name that is not UTF-8
        raise _damaged_error(path, error) from error
    if first is None or not first.num_rows:
        raise UserError(f"{path}: the file has no rows. Add at least one text.")
    names = tuple(file.schema_arrow.names)
    class_names = hub_class_names(file.schema_arrow.metadata)
    rows = decode_columns(to_python_rows(first), class_names)
    sample = [row for row in rows if isinstance(row, dict)]
    if not sample:
        raise UserError(f"{path}:1: {_UNREADABLE}. Save the file again as UTF-8.")
    return file, layout_of_rows(names, sample, columns, path)


def parquet_layout(path: str, columns: Columns) -> TableLayout:
    """Return the layout that `read_parquet` would detect."""
    file, layout = _open(path, columns)
    file.close()
    return layout


def _read_rows(file: ParquetFile, path: str, keys: Keys) -> Iterator[Row]:
    pyarrow, _ = _pyarrow()
    class_names = hub_class_names(file.schema_arrow.metadata)
    with file:
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=keys.used)
        while True:
            try:
                batch = next(batches, None)
            except (pyarrow.ArrowException, OSError) as error:
                raise _damaged_error(path, error) from error
            if batch is None:
                return
            yield from decode_columns(to_python_rows(batch), class_names)


def to_python_rows(batch: pa.RecordBatch | pa.Table) -> Iterator[Row]:
    """Yield the rows of a batch as Python values; a RowFault for one that cannot be converted."""
    # Invalid UTF-8 and dates after the year 9999 appear only on conversion.
    try:
        yield from batch.to_pylist()
        return
    except _CONVERSION_ERRORS:
        pass
    for row in range(batch.num_rows):
        try:
            yield batch.slice(row, 1).to_pylist()[0]
        except _CONVERSION_ERRORS:
            yield RowFault(UNDECODABLE, f"{_UNREADABLE}. Correct it, or {SKIP_HINT}.")


def write_parquet(examples: Iterable[Example], path: str) -> None:
    """Write columns text, label and id; all labels must have the first label's type."""
    pyarrow, parquet = _pyarrow()
    rows = iter(examples)
    chunk = list(itertools.islice(rows, _BATCH_ROWS))
    kind = next((_arrow_type(pyarrow, e.label) for e in chunk if e.label is not None), None)
    schema = pyarrow.schema(
        [
            ("text", pyarrow.string()),
            ("label", kind or pyarrow.string()),
            ("id", pyarrow.string()),
        ]
    )
    with parquet.ParquetWriter(path, schema) as writer:
        while chunk:
            table = [{"text": e.text, "label": _to_python(e.label), "id": e.id} for e in chunk]
            try:
                writer.write_table(pyarrow.Table.from_pylist(table, schema))
            except (pyarrow.ArrowException, UnicodeEncodeError) as error:
                raise UserError(
                    f"Cannot write {path}: {error}. All labels must have one type and all "
                    "texts must be valid Unicode."
                ) from error
            chunk = list(itertools.islice(rows, _BATCH_ROWS))


def rewrite_parquet(examples: Iterable[Example], path: str, target: str, columns: Columns) -> None:
    """Write the rows of `path` that the examples came from, with their changes."""
    pyarrow, parquet = _pyarrow()
    file, layout = _open(path, columns)
    remaining = iter(examples)
    example, before = next(remaining, None), 0
    with file, parquet.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            chunk: list[Example] = []
            while example is not None and example.line <= before + batch.num_rows:
                chunk.append(example)
                example = next(remaining, None)
            rows = pyarrow.Table.from_batches([batch], file.schema_arrow)
            rows = rows.take(pyarrow.array([e.line - before - 1 for e in chunk], pyarrow.int64()))
            before += batch.num_rows
            try:
                rows = _replace_column(pyarrow, rows, layout.text, [e.text for e in chunk])
                if layout.label is not None:
                    labels = rows.column(layout.label).to_pylist()
                    kept = [
                        old if _holds_label(old, e.label) else _to_python(e.label)
                        for old, e in zip(labels, chunk, strict=True)
                    ]
                    rows = _replace_column(pyarrow, rows, layout.label, kept)
            except (pyarrow.ArrowException, UnicodeEncodeError) as error:
                raise UserError(f"Cannot write {target}: {error}.") from error
            writer.write_table(rows)


def _holds_label(cell: Json, label: Label) -> bool:
    """Return whether a cell holds this label; answers are never changed."""
    return isinstance(label, GoldAnswers) or parse_label(cell) == label


def _replace_column(
    pyarrow: ModuleType, rows: pa.Table, column: int, values: Sequence[object]
) -> pa.Table:
    """Return the table with other values in one column of the same type."""
    field = rows.schema.field(column)
    return rows.set_column(column, field, pyarrow.array(values, field.type))


def _arrow_type(pyarrow: ModuleType, label: Label) -> pa.DataType:
    if isinstance(label, tuple):
        return pyarrow.list_(pyarrow.string())
    return pyarrow.float64() if isinstance(label, float) else pyarrow.string()


def _to_python(label: Label) -> object:
    return list(label) if isinstance(label, tuple) else label


def _damaged_error(path: str, error: BaseException) -> UserError:
    return UserError(f"{path}: not a readable Parquet file: {error}. Copy or create it again.")


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    pyarrow = import_pyarrow("Parquet files")
    return pyarrow, importlib.import_module("pyarrow.parquet")


def import_pyarrow(what: str) -> ModuleType:
    """Import pyarrow; raise a UserError that says what needs it if it is not installed."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise UserError(
            f"{what} need pyarrow, which is not installed: pip install 'weft[parquet]'."
        ) from error
