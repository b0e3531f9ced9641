"""Bytes in, numbered lines out: opening, unpacking, decoding, and a place for every flaw."""

import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, cast

from weft.errors import UserError, near_miss
from weft.text.example import Tally
from weft.untrusted import check_regular

BadRowPolicy = Literal["error", "skip"]

MAX_HEAD_LINES = 1000
MAX_HEAD_BYTES = 1 << 20
SKIP_HINT = "pass --on-bad-row skip to leave such rows out"

UNDECODABLE = "undecodable bytes"
NUL_BYTE = "NUL byte"
EMPTY_TEXT = "empty text"
SURROGATE_MESSAGE = (
    f"half of a surrogate pair, which no text can hold. Write the character whole, or {SKIP_HINT}."
)
EMPTY_TEXT_MESSAGE = f"the text is empty. Fill it in or remove the row, or {SKIP_HINT}."

_READ_ERRORS = (EOFError, zlib.error, lzma.LZMAError, OSError)
_BOM = b"\xef\xbb\xbf"
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_BUFFER_BYTES = 1 << 18

MAX_LINE_BYTES = 1 << 27  # bytes; what is longer is no text, or not one that fits in memory


@dataclass
class SkipLog(Tally):
    """A tally that keeps every place, and what was said of it."""

    told: dict[str, str] = field(default_factory=dict)  # by place

    SHOWN = 1 << 60


class BadRows:
    """What to do with a bad row: stop with its place, or count it and go on."""

    def __init__(
        self, file: str, policy: BadRowPolicy, skipped: Tally | None, keep_empty: bool = False
    ) -> None:
        self.file = file
        self.keep_empty = keep_empty
        self.skip = policy == "skip"
        self.tally = skipped if skipped is not None else Tally()

    def found(self, kind: str, line: int, message: str) -> None:
        """One bad row; `message` says what was found and what to do."""
        where = f"{self.file}:{line}"
        if not self.skip:
            raise UserError(f"{where}: {message}")
        self.tally.add(kind, where)
        if isinstance(self.tally, SkipLog):
            self.tally.told.setdefault(where, str(UserError(message)))  # as it would be shown

    def empty(self, text: str, line: int) -> bool:
        """Whether a row must go because its text is empty; found, it is a problem like others."""
        if self.keep_empty or text.strip():
            return False
        self.found(EMPTY_TEXT, line, EMPTY_TEXT_MESSAGE)
        return True


class LineSource:
    """A file, packed file or standard input that is read once, from the top, line by line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.name = "standard input" if self.path == "-" else self.path
        self.can_reopen = self.path != "-"
        self._stream = _open(self.path)
        self._head: list[bytes] = []

    def head(self, count: int = MAX_HEAD_LINES) -> list[bytes]:
        """The first lines as they are; they are not lost to `lines`."""
        size = sum(map(len, self._head))
        try:
            while len(self._head) < count and size < MAX_HEAD_BYTES:
                raw = self._line(len(self._head) + 1)
                if not raw:
                    break
                if not self._head:
                    raw = self._opening(raw)
                self._head.append(raw)
                size += len(raw)
        except _READ_ERRORS as error:
            raise self._damaged(len(self._head), error) from error
        return self._head[:count]

    def raw(self) -> Iterator[bytes]:
        """Every line as bytes, with its ending."""
        self.head(1)
        number = 0
        try:
            for number, raw in enumerate(self._head, 1):  # noqa: B007
                yield raw
            while raw := self._line(number + 1):
                number += 1
                yield raw
        except _READ_ERRORS as error:
            raise self._damaged(number, error) from error
        finally:
            self.close()

    def lines(self, problems: BadRows) -> Iterator[tuple[int, str]]:
        """(number from 1, text without its ending); lines that are not text are problems."""
        for number, raw in enumerate(self.raw(), 1):
            text = decode_line(raw, number, problems)
            if text is not None:
                yield number, text

    def close(self) -> None:
        if self.can_reopen:
            self._stream.close()

    def _line(self, number: int) -> bytes:
        """The next line, if it can be held."""
        try:
            raw = self._stream.readline(MAX_LINE_BYTES + 1)
        except MemoryError:
            raise UserError(
                f"{self.name}:{number}: not enough memory to read this line. Cut it into several."
            ) from None
        if len(raw) > MAX_LINE_BYTES:
            raise UserError(
                f"{self.name}:{number}: the line is longer than {MAX_LINE_BYTES:,} bytes. Cut it "
                "into several, or give a file of text."
            )
        return raw

    def _opening(self, raw: bytes) -> bytes:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UserError(
                f"{self.name}:1: the file is UTF-16 (it starts with the mark "
                f"{raw[:2].hex(' ').upper()}). Convert it: iconv -f UTF-16 -t UTF-8 FILE."
            )
        if b"\n" not in raw and raw.count(b"\r") > 1:
            raise UserError(
                f"{self.name}:1: lines end in a bare carriage return (old Mac style). "
                "Convert it: tr '\\r' '\\n' < FILE."
            )
        return raw.removeprefix(_BOM)

    def _damaged(self, line: int, error: BaseException) -> UserError:
        return UserError(
            f"{self.name}: cannot be read past line {line}: {error}. "
            "The file is damaged or cut short; copy or make it again."
        )


class UniqueIds:
    """Watches for repeated ids, when it is asked to."""

    def __init__(self, watch: bool, problems: BadRows) -> None:
        # Not always: remembering every id is the one thing here that grows with the file.
        self._seen: dict[str, int] | None = {} if watch else None
        self._problems = problems

    def repeats(self, name: str, line: int) -> bool:
        """Whether an earlier row had this id; that is a problem of this row."""
        if self._seen is None:
            return False
        first = self._seen.setdefault(name, line)
        if first == line:
            return False
        told = f"the id '{name}' was already used on line {first}"
        self._problems.found("duplicate id", line, f"{told}. Make ids unique, or {SKIP_HINT}.")
        return True


def not_utf8_message(error: UnicodeDecodeError) -> str:
    """The message for bytes that are not UTF-8, with the place inside the line."""
    return (
        f"byte 0x{error.object[error.start]:02x} at offset {error.start} of the line is not UTF-8. "
        f"Convert the file (iconv -f LATIN1 -t UTF-8 FILE), or {SKIP_HINT}."
    )


def nul_byte_message(text: str) -> str:
    """The message for a NUL inside a text file."""
    place = len(text[: text.index("\0")].encode())
    return (
        f"NUL byte at offset {place} of the line. Remove it (tr -d '\\0' < FILE), or {SKIP_HINT}."
    )


def decode_line(raw: bytes, number: int, problems: BadRows) -> str | None:
    """A line as text without its ending, or nothing where it is no text: a problem."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        problems.found(UNDECODABLE, number, not_utf8_message(error))
        return None
    if "\0" in text:
        problems.found(NUL_BYTE, number, nul_byte_message(text))
        return None
    return text.rstrip("\r\n")


def strip_compression(path: str) -> tuple[str, str]:
    """Lower-case name without its packing ending, and that ending: 'a.csv', '.gz'."""
    name = path.lower()
    for ending in (".gz", ".xz"):
        if name.endswith(ending):
            return name[: -len(ending)], ending
    return name, ""


def file_not_found(path: str) -> UserError:
    """The error for a file that is not there, with the nearest name in its folder."""
    target = Path(path)
    folder = target.parent
    sides = path.split(",")
    if len(sides) > 1 and all(map(os.path.exists, sides)):
        return UserError(f"{path}: these are {len(sides)} files. Give one of them here.")
    if not folder.is_dir():
        return UserError(f"{path}: no such file; the folder '{folder}' does not exist either.")
    names = sorted(entry.name for entry in folder.iterdir())
    hint = (
        near_miss(target.name, names) or f" '{folder}' holds: {', '.join(names[:7]) or 'nothing'}."
    )
    return UserError(f"{path}: no such file.{hint}")


def _open(path: str) -> IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    check_regular(path)
    try:
        plain = open(path, "rb", buffering=_BUFFER_BYTES)
    except FileNotFoundError:
        raise file_not_found(path) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not a file. Give the files in it.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be opened: {error.strerror}.") from error
    magic = cast(io.BufferedReader, plain).peek(6)[:6]
    ending = strip_compression(path)[1]
    # Content decides, so that a renamed file opens too; the ending makes a damaged one fail well.
    if magic.startswith(_GZIP) or (ending == ".gz" and magic):
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=plain)), _BUFFER_BYTES)
    if magic.startswith(_XZ) or (ending == ".xz" and magic):
        return io.BufferedReader(cast(io.RawIOBase, lzma.LZMAFile(plain)), _BUFFER_BYTES)
    return plain
