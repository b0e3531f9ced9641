"""Files named by a URL, such as s3://bucket/part-*.parquet, read through fsspec."""

import re
from collections.abc import Sequence
from typing import IO, Any

from weft.errors import UserError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_remote(path: str) -> bool:
    """Return whether a path is a URL."""
    return _URL.match(path) is not None


def open_remote(path: str) -> IO[bytes]:
    """Open a file for reading, as it is stored."""
    try:
        stream: IO[bytes] = _file_system(path).open(path, "rb")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except Exception as error:  # each file system has errors of its own
        raise UserError(f"{path}: cannot open: {error}.") from error
    return stream


def list_remote(pattern: str) -> Sequence[str]:
    """Return the files that a pattern matches; the file itself of a plain URL, if it exists."""
    system = _file_system(pattern)
    try:
        return [system.unstrip_protocol(name) for name in system.glob(pattern)]
    except Exception as error:
        raise UserError(f"{pattern}: cannot list: {error}.") from error


def _file_system(path: str) -> Any:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UserError(f"{path}: reading a URL needs fsspec: pip install fsspec.") from error
    try:
        return url_to_fs(path)[0]
    except (ImportError, ValueError) as error:  # a library for s3:// is missing; unknown scheme
        raise UserError(f"{path}: {error}.") from error
