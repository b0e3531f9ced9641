"""Checks on what comes from outside: regular files, whole numbers, text that is proper Unicode."""

import os
import re
import stat
from pathlib import Path

from weft.errors import UserError

MAX_INTEGER_DIGITS = 18  # of a whole number; what fits a signed 64-bit integer
_SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def check_regular(path: str | Path) -> None:
    """Refuse a pipe, a device or a socket; a missing file or a folder is for the caller."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    for test, name in _KINDS:
        if test(mode):
            raise UserError(
                f"{path}: {name}, not a file. Files are read more than once: save its contents to "
                "a file first (or, where a text is read once, give them on standard input as -)."
            )


def parse_integer(text: str) -> int | None:
    """The number that ASCII digits spell, of a length that fits 64 bits; else None."""
    plain = text.isascii() and text.isdecimal() and len(text) <= MAX_INTEGER_DIGITS
    return int(text) if plain else None


def has_surrogate(value: object) -> bool:
    """Return whether a value contains a text with half of a surrogate pair.

    JSON can spell one ("\\ud800"); no file of UTF-8 can hold it.
    """
    if isinstance(value, str):
        return not value.isascii() and _SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(has_surrogate(one) for item in value.items() for one in item)
    if isinstance(value, (list, tuple)):
        return any(map(has_surrogate, value))
    return False
