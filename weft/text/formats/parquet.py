"""Parquet in and out, a record batch at a time, through pyarrow when it is installed."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from weft.errors import UserError
from weft.text.columns import Columns, TableLayout, layout_from_names
from weft.text.example import Example, GoldAnswers, Label, parse_label
from weft.text.formats.jsonl import Keys, add_references, locate_answers, second_text
from weft.text.formats.squad import fault_kind
from weft.text.line_source import SKIP_HINT, UNDECODABLE, BadRows, UniqueIds

_BATCH_ROWS = 1024
_CONVERSION_ERRORS = (ValueError, OverflowError, TypeError)
_UNREADABLE = "the row holds a value that cannot be read, such as a text that is not UTF-8"


def read_parquet(path: str, columns: Columns, problems: BadRows) -> Iterator[Example]:
    """The rows as Examples; `line` counts rows from 1."""
    file, found = _open(path, columns)
    return _read_rows(file, path, Keys.of(found), columns.id is not None, problems)


def _open(path: str, columns: Columns) -> tuple[Any, TableLayout]:
    pyarrow, parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(path)
        first = next(file.iter_batches(batch_size=_BATCH_ROWS), None)
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # a name that is not UTF-8
        raise _damaged_error(path, error) from error
    if first is None or not first.num_rows:
        raise UserError(f"{path}: the file has no rows. Give it at least one text.")
    names = tuple(file.schema_arrow.names)
    sample = [[_to_cell(row[name]) for name in names] for row in _to_python_rows(first) if row]
    if not sample:
        raise UserError(f"{path}:1: {_UNREADABLE}. Write the file again, as UTF-8.")
    return file, layout_from_names(names, sample, columns, path)


def parquet_layout(path: str, columns: Columns) -> TableLayout:
    """Where `read_parquet` would find text, label and id."""
    file, found = _open(path, columns)
    file.close()
    return found


def _read_rows(
    file: Any, path: str, keys: Keys, unique: bool, problems: BadRows
) -> Iterator[Example]:
    pyarrow, _ = _pyarrow()
    text_name, label_name, id_name = keys.text, keys.label, keys.id
    used = keys.used
    known = UniqueIds(unique, problems)
    number = 0
    with file:
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=used)
        while True:
            try:
                batch = next(batches, None)
            except (pyarrow.ArrowException, OSError) as error:
                raise _damaged_error(path, error) from error
            if batch is None:
                return
            for row in _to_python_rows(batch):
                number += 1
                if row is None:
                    problems.found(UNDECODABLE, number, f"{_UNREADABLE}. Mend it, or {SKIP_HINT}.")
                    continue
                keys.gather(row)
                text = row[text_name]
                if not isinstance(text, str):
                    told = f"'{text_name}' should be a text, found {text!r:.40}"
                    problems.found(
                        "text is not a text", number, f"{told}. Mend it, or {SKIP_HINT}."
                    )
                    continue
                if problems.empty(text, number):
                    continue
                try:
                    label = parse_label(row[label_name]) if label_name is not None else None
                    if keys.more:
                        label = add_references(label, [_to_cell(row[key]) for key in keys.more])
                    other = second_text(row, keys.other)
                    label = locate_answers(label, other, row.get(keys.start), keys.within)
                except UserError as error:
                    problems.found(fault_kind(error), number, str(error))
                    continue
                name = _to_cell(row[id_name]) if id_name is not None else ""
                if known.repeats(name, number):
                    continue
                yield Example(text, label, name, path, number, other=other)


def _to_python_rows(batch: Any) -> Iterator[Any]:
    """The rows of a batch as Python has them; None for one that it cannot have."""
    # A text that is not UTF-8 or a date beyond the year 9999 is found only when it is converted.
    try:
        yield from batch.to_pylist()
        return
    except _CONVERSION_ERRORS:
        pass
    for place in range(batch.num_rows):
        try:
            yield batch.slice(place, 1).to_pylist()[0]
        except _CONVERSION_ERRORS:
            yield None


def write_parquet(examples: Iterable[Example], path: str) -> None:
    """Columns text, label and id; labels must all be of the first label's kind."""
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
                    f"Cannot write {path}: {error}. All labels must be of one kind "
                    "and all texts proper Unicode."
                ) from error
            chunk = list(itertools.islice(rows, _BATCH_ROWS))


def rewrite_parquet(examples: Iterable[Example], path: str, target: str, columns: Columns) -> None:
    """The rows of `path` that the examples came from, with their texts and labels of now."""
    pyarrow, parquet = _pyarrow()
    file, found = _open(path, columns)
    waiting = iter(examples)
    example, before = next(waiting, None), 0
    with file, parquet.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            some: list[Example] = []
            while example is not None and example.line <= before + batch.num_rows:
                some.append(example)
                example = next(waiting, None)
            rows = pyarrow.Table.from_batches([batch], file.schema_arrow)
            rows = rows.take(pyarrow.array([e.line - before - 1 for e in some], pyarrow.int64()))
            before += batch.num_rows
            try:
                rows = _replace_column(pyarrow, rows, found.text, [e.text for e in some])
                if found.label is not None:
                    labels = rows.column(found.label).to_pylist()
                    kept = [
                        old if _holds_label(old, e.label) else _to_python(e.label)
                        for old, e in zip(labels, some, strict=True)
                    ]
                    rows = _replace_column(pyarrow, rows, found.label, kept)
            except (pyarrow.ArrowException, UnicodeEncodeError) as error:
                raise UserError(f"Cannot write {target}: {error}.") from error
            writer.write_table(rows)


def _holds_label(cell: Any, label: Label) -> bool:
    """Whether a cell holds this label; answers stay as they are."""
    return isinstance(label, GoldAnswers) or parse_label(cell) == label


def _replace_column(pyarrow: Any, rows: Any, place: int, values: list[Any]) -> Any:
    """The table with other values in one column, which keeps its kind."""
    field = rows.schema.field(place)
    return rows.set_column(place, field, pyarrow.array(values, field.type))


def _arrow_type(pyarrow: Any, label: Label) -> Any:
    if isinstance(label, tuple):
        return pyarrow.list_(pyarrow.string())
    return pyarrow.float64() if isinstance(label, float) else pyarrow.string()


def _to_python(label: Label) -> Any:
    return list(label) if isinstance(label, tuple) else label


def _to_cell(value: Any) -> str:
    return "" if value is None else str(value)


def _damaged_error(path: str, error: BaseException) -> UserError:
    return UserError(f"{path}: not a readable Parquet file: {error}. Copy or make it again.")


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "Parquet files need pyarrow, which is not installed: pip install 'weft[parquet]'."
        ) from error
    return pyarrow, pyarrow.parquet
