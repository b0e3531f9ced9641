"""Tables in memory, read like files: rows, columns, data frames, Arrow tables, datasets.

Each adapter yields rows as JSON-like values; what they mean is decided where files are read.
"""

import copy
import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from weft.errors import UserError
from weft.text.formats.rows import Row, RowFault
from weft.text.location import HUB_PREFIX, MEMORY_PREFIX, TableName
from weft.text.tables.class_labels import decode_columns, hub_class_names

# Rows or columns of any supported library. Their types are not imported: the check is `as_table`.
TableLike: TypeAlias = Any
PathOrTable: TypeAlias = str | os.PathLike[str] | TableLike

BATCH_ROWS = 4096
SUPPORTED = (
    "Pass a file, a list of (text, label) or of dicts, two sequences (texts, labels), a pandas or "
    "polars DataFrame, a PyArrow table or a Hugging Face Dataset"
)
_PLAIN = {str, int, bool, type(None)}
_TUPLE_COLUMNS = {1: ("text",), 2: ("text", "label"), 3: ("text", "other", "label")}
_TOKEN_COLUMNS = {1: ("tokens",), 2: ("tokens", "tags")}


class Table(ABC):
    """Rows under column names, which can be read more than once."""

    columns: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield the rows as new dicts with at least these columns; a RowFault for a bad one."""

    def describe_index(self, position: int) -> str:
        """Return " (index 42)" if the rows have other labels than their positions."""
        return ""

    def fingerprint(self) -> str:
        """Return a hash of the column names and all values."""
        digest = hashlib.blake2b(repr(self.columns).encode(), digest_size=6)
        for row in self.rows():
            plain = isinstance(row, dict) and tuple(row) == self.columns
            values = list(row.values()) if plain else row
            digest.update(repr(values).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def name_table(data: TableLike, label: str, *, fingerprint: bool = False) -> TableName:
    """Return a name that carries data in memory.

    With a fingerprint, other data of the same size get another name.
    """
    if isinstance(data, TableName):
        return data
    table = as_table(data, label)
    count = f"{len(table)} row{'s' * (len(table) != 1)}"
    parts = [label, count, *([table.fingerprint()] if fingerprint else [])]
    return TableName(f"{MEMORY_PREFIX}{'; '.join(parts)}>", table, label)


def name_data(
    settings: Mapping[str, Any],
    *,
    train: PathOrTable = "",
    dev: PathOrTable = "",
    test: PathOrTable = "",
) -> dict[str, Any]:
    """Return settings by dotted name, with the data as data.train, data.dev and data.test."""
    named = dict(settings)
    for split, data in (("train", train), ("dev", dev), ("test", test)):
        data = named.get(f"data.{split}", "") if is_path(data) and not data else data
        if not is_path(data):
            named[f"data.{split}"] = name_table(data, split, fingerprint=True)
        elif data:
            named[f"data.{split}"] = os.fspath(data)
    return named


def list_sources(files: PathOrTable | Sequence[PathOrTable]) -> list[PathOrTable]:
    """Return one file or table, or several, as a list.

    A list of texts is a list of files. A list of rows, or two columns, are one table.
    """
    if isinstance(files, (list, tuple)) and all(map(_is_source, files)):
        return list(files)
    return [files]


def name_sources(sources: Sequence[PathOrTable], labels: Sequence[str]) -> list[str]:
    """Return paths as text, and the names of tables."""
    labels = [*labels, *(f"data{i}" for i in range(len(labels), len(sources)))]
    return [
        os.fspath(source) if is_path(source) else name_table(source, label)
        for source, label in zip(sources, labels, strict=False)
    ]


def _is_source(data: object) -> bool:
    """Return whether this is a file or a whole table, rather than a row or a column of one."""
    if is_path(data) or isinstance(data, Table):
        return True
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], (dict, tuple))
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    return library == "datasets" or kind in ("DataFrame", "LazyFrame", "Table", "RecordBatch")


def find_table(path: PathOrTable) -> tuple[TableName | str, Table] | None:
    """Return the name and the table if this is not a path to a file, else None."""
    if isinstance(path, TableName):
        return path, path.table
    if isinstance(path, str):
        if not path.startswith(HUB_PREFIX):
            return None
        from weft.text.tables.hub import load_hub_table

        return path, load_hub_table(path)
    if isinstance(path, os.PathLike):
        return None
    name = name_table(path, "data")
    return name, name.table


def is_path(data: object) -> bool:
    """Return whether data are named by a path, and not in memory."""
    return isinstance(data, (str, os.PathLike))


def as_table(data: TableLike, label: str = "data") -> Table:
    """Return data in memory as a table; `label` is its name in messages."""
    if isinstance(data, Table):
        return data
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if library == "datasets":
        if kind in ("DatasetDict", "IterableDatasetDict"):
            splits = ", ".join(map(repr, data))
            raise UserError(f"{label}: a {kind} with the splits {splits}. Pass one, such as "
                            f"data[{next(iter(data), 'train')!r}].")  # fmt: skip
        return Stream(data, label) if kind == "IterableDataset" else HubDataset(data, label)
    if library == "pandas" and kind == "DataFrame":
        return PandasFrame(data, label)
    if library == "polars" and kind == "LazyFrame":
        raise UserError(f"{label}: a polars LazyFrame has no rows yet. Pass frame.collect().")
    if library == "polars" and kind == "DataFrame":
        return PolarsFrame(data, label)
    if hasattr(data, "__arrow_c_stream__") and kind != "Series":
        return ArrowTable(data, label)
    if kind == "ndarray" and library == "numpy":
        return _array_table(data, label)
    if isinstance(data, Mapping):
        return ColumnTable(dict(data), label)
    if library in ("pandas", "polars", "pyarrow"):  # a Series, or an array
        return ColumnTable({"text": data}, label)
    if isinstance(data, tuple) and data and all(map(_is_column, data)):
        return _columns_in_order(data, label)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes, bytearray)):
        return RowTable(data, label)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, bytearray, set, frozenset)):
        return Stream(data, label)
    raise UserError(f"{label}: cannot read rows from {_describe_type(data)}. {SUPPORTED}.")


class RowTable(Table):
    """A list of dicts, of tuples (text, label), or of texts."""

    def __init__(self, rows: Sequence[Any], label: str) -> None:
        self._rows = rows
        if not len(rows):
            raise _no_rows(label)
        first = rows[0]
        head = [row for row in rows[:BATCH_ROWS] if isinstance(row, Mapping)]
        self._form = _form_of(first)
        if self._form == "a dict":
            self.columns = tuple(dict.fromkeys(str(key) for row in head for key in row))
        elif self._form == "a text":
            self.columns = ("text",)
        elif self._form == "a tuple":
            self.columns = _name_positions(first, label)
        else:
            raise UserError(
                f"{label}[0]: a row should be a dict, (text, label) or a text, found "
                f"{_describe_type(first)}. {SUPPORTED}."
            )
        self._width = len(self.columns)

    def with_rows(self, rows: Sequence[Any]) -> "RowTable":
        """Return a table of more rows of the same form."""
        other = copy.copy(self)
        other._rows = rows
        return other

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        names = self.columns
        for row in self._rows:
            form = _form_of(row)
            if form != self._form:
                yield RowFault(
                    "not an object",
                    f"{_describe_type(row)}, but the first row is {self._form}. Use one form.",
                )
            elif form == "a dict":
                yield {str(key): to_python(value) for key, value in row.items()}
            elif form == "a text":
                yield {"text": row}
            elif len(row) != self._width:
                values = f"{len(row)} value{'s' * (len(row) != 1)}"
                yield RowFault(
                    "ragged row",
                    f"{values}, but the first row has {self._width}. Give every row as many.",
                )
            else:
                yield dict(zip(names, map(to_python, row), strict=True))


def _form_of(row: object) -> str:
    """Return the form of a row: a dict, a text or a tuple; "" for anything else."""
    if isinstance(row, (tuple, list)) or type(row).__name__ == "ndarray":
        return "a tuple"
    return "a text" if isinstance(row, str) else "a dict" if isinstance(row, Mapping) else ""


class ColumnTable(Table):
    """Columns of equal length, as lists, arrays or Series."""

    def __init__(self, columns: Mapping[Any, Any], label: str) -> None:
        for name, values in columns.items():
            if not _is_column(values):
                raise UserError(
                    f"{label}: column '{name}' should be a sequence of values, found "
                    f"{_describe_type(values)}. {SUPPORTED}."
                )
        self._columns = {str(name): values for name, values in columns.items()}
        self.columns = tuple(self._columns)
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"'{name}' has {count}" for name, count in lengths.items())
            raise UserError(f"{label}: columns of unequal length: {shown}. Give one value per row.")
        self._length = next(iter(lengths.values()), 0)
        if not self._length:
            raise _no_rows(label)

    def __len__(self) -> int:
        return self._length

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        names = self.columns if columns is None else tuple(columns)
        for start in range(0, self._length, BATCH_ROWS):
            stop = start + BATCH_ROWS
            values = [slice_values(self._columns[name], start, stop) for name in names]
            for row in zip(*values, strict=True):
                yield dict(zip(names, row, strict=True))


class PandasFrame(ColumnTable):
    """A pandas DataFrame; the location of a row is its position, whatever the index."""

    def __init__(self, frame: Any, label: str) -> None:
        names = [str(name) for name in frame.columns]
        _check_names(names, label)
        super().__init__({n: frame.iloc[:, i] for i, n in enumerate(names)}, label)
        index = frame.index
        plain = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
        self._index = None if plain else index

    def describe_index(self, position: int) -> str:
        return "" if self._index is None else f" (index {to_python(self._index[position])!r})"


class PolarsFrame(ColumnTable):
    """A polars DataFrame."""

    def __init__(self, frame: Any, label: str) -> None:
        super().__init__({name: frame.get_column(name) for name in frame.columns}, label)


class ArrowTable(Table):
    """A PyArrow table or reader, or another object that exports an Arrow stream."""

    def __init__(self, data: Any, label: str) -> None:
        from weft.text.formats.parquet import import_pyarrow

        pyarrow = import_pyarrow("Arrow tables")
        table = data if isinstance(data, pyarrow.Table) else pyarrow.table(data)
        if not table.num_rows:
            raise _no_rows(label)
        _check_names(table.column_names, label)
        self._table = table
        self.columns = tuple(table.column_names)
        self._names = hub_class_names(table.schema.metadata)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _slices(self, columns: Sequence[str]) -> Iterator[Any]:
        chosen = self._table.select(list(columns))
        for start in range(0, len(self), BATCH_ROWS):
            yield chosen.slice(start, BATCH_ROWS)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        from weft.text.formats.parquet import to_python_rows

        names = self.columns if columns is None else tuple(columns)
        for part in self._slices(names):
            yield from decode_columns(to_python_rows(part), self._names)


class HubDataset(ArrowTable):
    """A Hugging Face Dataset; class ids become class names."""

    def __init__(self, dataset: Any, label: str) -> None:
        if not len(dataset):
            raise _no_rows(label)
        self._dataset = dataset
        self.columns = tuple(dataset.column_names)
        self._names = hub_class_names(features=dataset.features)

    def __len__(self) -> int:
        return len(self._dataset)

    def _slices(self, columns: Sequence[str]) -> Iterator[Any]:
        rows = self._dataset.select_columns(list(columns)).with_format("arrow")
        yield from rows.iter(BATCH_ROWS)


class Stream(Table):
    """The rows of a generator or a streaming dataset, stored in a temporary file.

    Data are read more than once, and a stream may be larger than memory.
    """

    def __init__(self, rows: Iterable[Any], label: str) -> None:
        from weft.text.tables.spool import write_rows

        names = hub_class_names(features=getattr(rows, "features", None))
        stream = iter(rows)
        head = list(islice(stream, BATCH_ROWS))
        if not head:
            raise UserError(
                f"{label}: no rows. A generator can be read once; if this one was, make it again."
            )
        first = RowTable(head, label)
        self.columns = first.columns
        self._folder = tempfile.TemporaryDirectory(prefix="weft-")  # deleted with this object
        self._path = os.path.join(self._folder.name, "rows.jsonl")
        self._length = 0
        with open(self._path, "w", encoding="utf-8") as file:
            while head:
                part = decode_columns(first.with_rows(head).rows(), names)
                self._length += write_rows(part, file)
                head = list(islice(stream, BATCH_ROWS))

    def __len__(self) -> int:
        return self._length

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        from weft.text.tables.spool import read_rows

        return read_rows(self._path)


def _array_table(array: Any, label: str) -> Table:
    if array.dtype.names:
        return ColumnTable({name: array[name] for name in array.dtype.names}, label)
    if array.ndim == 1:
        return (
            RowTable(array.tolist(), label) if len(array) else ColumnTable({"text": array}, label)
        )
    if array.ndim == 2:
        names = _name_positions(array[0] if len(array) else [""] * array.shape[1], label)
        return ColumnTable({name: array[:, i] for i, name in enumerate(names)}, label)
    raise UserError(f"{label}: an array of {array.ndim} axes. Pass texts, or rows of cells.")


def _columns_in_order(columns: Sequence[Any], label: str) -> ColumnTable:
    first = [slice_values(column, 0, 1) for column in columns]
    names = _name_positions([values[0] if values else "" for values in first], label)
    return ColumnTable(dict(zip(names, columns, strict=True)), label)


def _name_positions(row: Sequence[Any], label: str) -> tuple[str, ...]:
    """Return the column names of a row without any: (text, label), (tokens, tags), …"""
    known = (
        _TOKEN_COLUMNS
        if isinstance(to_python(row[0]) if len(row) else "", list)
        else _TUPLE_COLUMNS
    )
    if len(row) not in known:
        raise UserError(
            f"{label}: rows of {len(row)} values have no names. Pass (text, label), "
            "(text, other, label), (tokens, tags), or dicts with column names."
        )
    return known[len(row)]


def _is_column(values: object) -> bool:
    """Return whether this is a column of values: a list, an array or a Series."""
    if isinstance(values, (str, bytes, bytearray, tuple, Mapping)):
        return False
    return hasattr(values, "__len__") and hasattr(values, "__getitem__")


def slice_values(values: Any, start: int, stop: int) -> list[Any]:
    """Return some values of a column as JSON-like Python values; None for missing ones."""
    part = values.iloc[start:stop] if hasattr(values, "iloc") else values[start:stop]
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(part, method):
            part = getattr(part, method)()
            break
    return list(part) if set(map(type, part)) <= _PLAIN else list(map(to_python, part))


def to_python(value: Any) -> Any:
    """Return a cell as a JSON-like value; None for NaN and the missing values of pandas."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return None if value != value else value
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if kind.__module__ == "numpy":
        return to_python(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_python(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_python(one) for one in value]
    if kind.__name__ == "Series" or kind.__module__.startswith("pyarrow"):
        for method in ("to_list", "as_py"):
            if hasattr(value, method):
                return to_python(getattr(value, method)())
    return str(value) if isinstance(value, str) else value


def _check_names(names: Sequence[str], label: str) -> None:
    """Raise a UserError for columns of the same name."""
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{label}: {names.count(name)} columns are named '{name}'. Rename them."
            )


def _no_rows(label: str) -> UserError:
    return UserError(f"{label}: no rows. Add at least one text.")


def _describe_type(value: object) -> str:
    kind = type(value)
    known = {str: "a text", bytes: "bytes", type(None): "None", list: "a list", tuple: "a tuple"}
    if isinstance(value, Mapping):
        return "a dict"
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]} "
    return known.get(kind, f"{module}{kind.__name__} ({value!r:.30})")
