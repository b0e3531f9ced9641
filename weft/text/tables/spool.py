"""Write the rows of a table to a file of JSON lines, for other processes or a second pass."""

import filecmp
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.formats.rows import Row, RowFault
from weft.text.location import SPOOL_ENDING, TableName

DATA_FOLDER = "data"  # of a comparison or search, with the rows from memory
FAULT_KEY = "weft:fault"  # of a row that could not be read


def spool_table(name: str, folder: Path, *, overwrite: bool = True) -> str:
    """Write a table to FOLDER/train.memory.jsonl, line n for row n - 1, and return the path.

    Trials run in other processes, which cannot read the memory of this one. Other paths stay.
    Unless `overwrite`, raise a UserError if the file has other rows.
    """
    path = spool_path(name, folder)
    if isinstance(name, TableName):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            with open(part, "w", encoding="utf-8") as file:
                write_rows(name.table.rows(), file)
            if not overwrite and os.path.exists(path) and not filecmp.cmp(part, path, False):
                raise UserError(
                    f"{path} holds other rows, of an earlier comparison. Choose another folder, or "
                    "pass overwrite=True."
                )
    return path


def spool_path(name: str, folder: Path) -> str:
    """Return the file that `spool_table` writes a table to; any other path stays."""
    return str(folder / f"{name.label}{SPOOL_ENDING}") if isinstance(name, TableName) else name


def write_rows(rows: Iterable[Row], file: IO[str]) -> int:
    """Write rows as JSON lines and return their number."""
    count = 0
    for row in rows:
        stored = {FAULT_KEY: [row.kind, row.message]} if isinstance(row, RowFault) else row
        file.write(json.dumps(stored, default=_describe) + "\n")
        count += 1
    return count


def parse_spooled(row: Row) -> Row:
    """Return a stored row as it was."""
    if isinstance(row, dict) and FAULT_KEY in row:
        return RowFault(*map(str, row[FAULT_KEY]))
    return row


def read_rows(path: str) -> Iterator[Row]:
    """Yield the rows of a file of `write_rows`."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield parse_spooled(json.loads(line))


def _describe(value: object) -> dict[str, str]:
    """Return a value that JSON lacks as an object, which no reader takes for a text or label."""
    return {type(value).__name__: repr(value)}
