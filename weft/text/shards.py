"""Data in several files that are read as one: a pattern such as 'in/*.parquet', or a folder."""

import glob
import os
import re
from collections.abc import Sequence

from weft.errors import UserError
from weft.text.line_source import strip_compression
from weft.text.location import is_table
from weft.text.remote import is_remote, list_remote

TABLE_ENDINGS = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet", ".pq")
_NOT_DATA = (".", "_")  # how other files of a folder begin: hidden ones, _SUCCESS


def list_shards(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the files of a pattern or of a folder that holds tables alone; () for other paths."""
    name = os.fspath(path)
    if is_table(name) or name == "-":
        return ()
    if is_remote(name):
        if not glob.has_magic(name):
            return ()
        return _in_order(_require_match(name, list_remote(name)))
    if os.path.isdir(name):
        inside = [entry for entry in os.scandir(name) if not entry.name.startswith(_NOT_DATA)]
        if not inside or not all(entry.is_file() and is_table_file(entry.name) for entry in inside):
            return ()
        return _in_order([entry.path for entry in inside])
    if not glob.has_magic(name) or os.path.exists(name):
        return ()
    found = [match for match in glob.glob(name, recursive=True) if os.path.isfile(match)]
    return _in_order(_require_match(name, found))


def _require_match(pattern: str, found: Sequence[str]) -> Sequence[str]:
    if not found:
        raise UserError(f"{pattern}: no file has such a name.")
    return found


def source_exists(path: str) -> bool:
    """Return whether a path can be read: a file, a folder, shards, standard input or a table."""
    if path == "-" or is_table(path) or os.path.exists(path):
        return True
    return bool(list_remote(path) if is_remote(path) else list_shards(path))


def is_table_file(name: str) -> bool:
    """Return whether the ending of a file says that it holds a table."""
    return strip_compression(name)[0].endswith(TABLE_ENDINGS)


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in order, part-2 before part-10."""

    def parts(name: str) -> list[tuple[int, str]]:
        return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"([0-9]+)", name)]

    return tuple(sorted(names, key=lambda name: (parts(name), name)))
