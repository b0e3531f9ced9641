"""Parse untrusted JSON: return a value, or raise a UserError with file and line."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from weft.errors import UserError

# A value read from JSON or to be written. Covariant: a dict[str, str] is one, too.
Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]

MAX_DEPTH = 100  # levels of nesting; no file that Weft reads has more than a dozen
MAX_DIGITS = 4300  # of a whole number, as Python itself has it by default
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_LONG_INTEGER = re.compile(rf"(?<![\w.])-?\d{{{MAX_DIGITS + 1},}}(?![\d.eE])")


def parse(text: str | bytes, where: str | Path, line: int = 1) -> Any:
    """Return the value of a JSON text; `line` is the line of the file on which the text begins."""
    if isinstance(text, bytes):
        text = _decode(text, where, line)
    _check_depth(text, where, line)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _json_error(
            where, line + error.lineno - 1, f"{error.msg}, column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:  # 4,300 digits; a limit of this Python
        match = _LONG_INTEGER.search(text)
        if match is not None:
            line += text.count("\n", 0, match.start())
            digits = f"{len(match[0].lstrip('-')):,}"
            reason = f"a whole number of {digits} digits; at most {MAX_DIGITS:,} are read"
            raise _json_error(where, line, reason) from None
        raise _json_error(where, line, str(error)) from None


def read(path: str | Path) -> Any:
    """Return the value of a JSON file; a missing one is a FileNotFoundError for the caller."""
    return parse(Path(path).read_bytes(), path)


def read_lines(path: str | Path) -> list[Any]:
    """Return the values of a file with one JSON value a line; blank lines are left out."""
    # Not splitlines: it would also cut a text at U+2028.
    text = _decode(Path(path).read_bytes(), path)
    return [parse(row, path, i) for i, row in enumerate(text.split("\n"), 1) if row.strip()]


def _decode(text: bytes, where: str | Path, line: int = 1) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line += text.count(b"\n", 0, error.start)
        raise _json_error(where, line, f"{error.reason} at byte {error.start}", "UTF-8") from None


def _check_depth(text: str, where: str | Path, line: int) -> None:
    """Refuse deep nesting before anything recurses into it."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line += text.count("\n", 0, match.start())
                raise _json_error(where, line, f"nested more than {MAX_DEPTH} levels deep")
        elif match[0] in "]}":
            depth -= 1


def _json_error(where: str | Path, line: int, reason: str, what: str = "JSON") -> UserError:
    return UserError(f"{where}:{line}: not readable as {what}: {reason}.")
