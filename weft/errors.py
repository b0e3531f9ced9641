"""One exception for mistakes a user can fix; everything else is a bug and may crash."""

import difflib
import errno
import importlib
import re
from collections.abc import Iterable
from typing import Any

MAX_MESSAGE_CHARS = 2000  # characters; the middle of a longer one is left out
MAX_NAME_CHARS = 100  # longer names get no near miss
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(ValueError):
    """Says what was found, where, and what to do about it.

    What it quotes of a file may be of any length and hold escape sequences for a terminal: the
    message is cut in the middle and shows them as text.
    """

    def __init__(self, message: object = "") -> None:
        text = escape_control(str(message))
        if len(text) > MAX_MESSAGE_CHARS:
            half = MAX_MESSAGE_CHARS // 2
            text = f"{text[:half]} … {text[-half:]}"
        super().__init__(text)


def escape_control(text: str) -> str:
    """The text with characters that no terminal should be sent written out: \\x1b, \\ud800.

    These are control characters other than line feed and tab, the marks that turn the direction
    of writing round, and half surrogates.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


class AmbiguousColumnError(UserError):
    """Several columns of a file fit, or none does: the user has to name one."""


class UserNote(UserWarning):
    """A note for the user; nothing has gone wrong."""


def near_miss(name: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'?' when something close is known, else nothing."""
    if len(name) > MAX_NAME_CHARS:
        return ""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """The error for a name that is not among the known ones."""
    options = sorted(known)
    location = f" in {where}" if where else ""
    listed = ", ".join(options) if options else "none"
    return UserError(
        f"Unknown {what} '{name:.60}'{location}.{near_miss(name, options)} Known: {listed}."
    )


class MissingLibrary(UserError):
    """An optional library is not installed."""


def optional_import(name: str, purpose: str) -> Any:
    """Import a module that only `purpose` needs, or raise a MissingLibrary that says how."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise MissingLibrary(
            f"{purpose} needs {package}, which is not installed: pip install {package}."
        ) from error


class OutOfMemory(UserError):
    """Memory ran out; says what was being done and what needs less."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory, from Python, NumPy, PyTorch or the OS."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    messages = ("can't allocate memory", "out of memory", "std::bad_alloc")
    return isinstance(error, RuntimeError) and any(words in str(error) for words in messages)


def out_of_memory_message(error: BaseException, doing: str) -> str:
    """Return one sentence on an out-of-memory error, with the requested size if known."""
    match = re.search(r"(?:tried|unable) to allocate ([\d.]+) ?(\w+)", str(error), re.IGNORECASE)
    amount = ""
    if match:
        large = match[2] == "bytes" and float(match[1]) >= 2**20
        size = f"{float(match[1]) / 2**20:,.0f} MiB" if large else f"{match[1]} {match[2]}"
        amount = f" ({size} more)"
    device = " of the GPU" if "CUDA" in str(error) else ""
    return f"Out of memory{device} while {doing}{amount}."
