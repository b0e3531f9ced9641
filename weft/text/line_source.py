"""Open, decompress and decode files into numbered lines; report bad rows with their place."""

import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

from weft.errors import UserError, near_miss
from weft.text.example import SkipCounter
from weft.text.location import MEMORY_PREFIX, format_location
from weft.text.remote import is_remote, open_remote
from weft.untrusted import check_regular

BadRowPolicy = Literal["error", "skip"]

MAX_HEAD_LINES = 1000
MAX_HEAD_BYTES = 1 << 20
SKIP_HINT = "pass --on-bad-row skip to leave such rows out"

UNDECODABLE = "undecodable bytes"
NUL_BYTE = "NUL byte"
BAD_WEIGHT = "weight is not a number"
EMPTY_TEXT = "empty text"
SURROGATE_MESSAGE = (
    f"a lone surrogate, which is not valid text. Write the whole character, or {SKIP_HINT}."
)
EMPTY_TEXT_MESSAGE = f"the text is empty. Fill it in or remove the row, or {SKIP_HINT}."

_READ_ERRORS = (EOFError, zlib.error, lzma.LZMAError, OSError)
_BOM = b"\xef\xbb\xbf"
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
COMPRESSION_ENDINGS = (".gz", ".xz", ".zst")
_BUFFER_BYTES = 1 << 18

MAX_LINE_BYTES = 1 << 27  # longer lines are not text, or do not fit in memory


@dataclass
class SkipLog(SkipCounter):
    """A counter that keeps every place and its message."""

    messages: dict[str, str] = field(default_factory=dict)  # by place

    MAX_PLACES = 1 << 60


class BadRows:
    """The policy for bad rows of a file: stop with an error, or count and skip them."""

    def __init__(
        self, file: str, policy: BadRowPolicy, skipped: SkipCounter | None, keep_empty: bool = False
    ) -> None:
        self.file = file
        self.keep_empty = keep_empty
        self.skip = policy == "skip"
        self.skipped = skipped if skipped is not None else SkipCounter()

    def report(self, kind: str, line: int, message: str) -> None:
        """Report a bad row; `message` says what is wrong and how to fix it."""
        where = format_location(self.file, line)
        if not self.skip:
            raise UserError(f"{where}: {message}")
        self.skipped.add(kind, where)
        if isinstance(self.skipped, SkipLog):
            self.skipped.messages.setdefault(where, str(UserError(message)))  # as displayed

    def rejects_empty(self, text: str, line: int) -> bool:
        """Return whether a row must be dropped for its empty text, and report it."""
        if self.keep_empty or text.strip():
            return False
        self.report(EMPTY_TEXT, line, EMPTY_TEXT_MESSAGE)
        return True


class LineSource:
    """A plain or compressed file, or standard input, read once line by line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.name = "standard input" if self.path == "-" else self.path
        self.can_reopen = self.path != "-"
        self._stream = _open(self.path)
        self._head: list[bytes] = []

    def head(self, count: int = MAX_HEAD_LINES) -> list[bytes]:
        """Return the first raw lines; `lines` still yields them."""
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
            raise self._damage_error(len(self._head), error) from error
        return self._head[:count]

    def raw(self) -> Iterator[bytes]:
        """Yield every line as bytes, with its line break."""
        self.head(1)
        number = 0
        try:
            for number, raw in enumerate(self._head, 1):  # noqa: B007
                yield raw
            while raw := self._line(number + 1):
                number += 1
                yield raw
        except _READ_ERRORS as error:
            raise self._damage_error(number, error) from error
        finally:
            self.close()

    def lines(self, bad_rows: BadRows) -> Iterator[tuple[int, str]]:
        """Yield (number from 1, text without line break); undecodable lines are bad rows."""
        for number, raw in enumerate(self.raw(), 1):
            text = decode_line(raw, number, bad_rows)
            if text is not None:
                yield number, text

    def close(self) -> None:
        if self.can_reopen:
            self._stream.close()

    def _line(self, number: int) -> bytes:
        """Read the next line if it fits in memory."""
        try:
            raw = self._stream.readline(MAX_LINE_BYTES + 1)
        except MemoryError:
            raise UserError(
                f"{self.name}:{number}: not enough memory to read this line. Split it."
            ) from None
        if len(raw) > MAX_LINE_BYTES:
            raise UserError(
                f"{self.name}:{number}: the line is longer than {MAX_LINE_BYTES:,} bytes. "
                "Split it, or pass a text file."
            )
        return raw

    def _opening(self, raw: bytes) -> bytes:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UserError(
                f"{self.name}:1: the file is UTF-16 (it starts with "
                f"{raw[:2].hex(' ').upper()}). Convert it: iconv -f UTF-16 -t UTF-8 FILE."
            )
        if b"\n" not in raw and raw.count(b"\r") > 1:
            raise UserError(
                f"{self.name}:1: lines end in bare carriage returns (old Mac style). "
                "Convert it: tr '\\r' '\\n' < FILE."
            )
        return raw.removeprefix(_BOM)

    def _damage_error(self, line: int, error: BaseException) -> UserError:
        return UserError(
            f"{self.name}: cannot read past line {line}: {error}. "
            "The file is damaged or truncated; copy or create it again."
        )


class UniqueIds:
    """Detects repeated ids, if enabled."""

    def __init__(self, enabled: bool, bad_rows: BadRows) -> None:
        # Optional: remembering every id is the only cost here that grows with the file.
        self._seen: dict[str, int] | None = {} if enabled else None
        self._bad_rows = bad_rows

    def is_repeated(self, name: str, line: int) -> bool:
        """Return whether an earlier row had this id, and report it."""
        if self._seen is None:
            return False
        first = self._seen.setdefault(name, line)
        if first == line:
            return False
        earlier = format_location(self._bad_rows.file, first)
        where = f"line {first}" if earlier.endswith(f":{first}") else earlier
        message = f"id '{name}' is already used on {where}"
        self._bad_rows.report("duplicate id", line, f"{message}. Make ids unique, or {SKIP_HINT}.")
        return True


def not_utf8_message(error: UnicodeDecodeError) -> str:
    """Return the message for bytes that are not UTF-8, with their offset."""
    return (
        f"byte 0x{error.object[error.start]:02x} at offset {error.start} of the line is not UTF-8. "
        f"Convert the file (iconv -f LATIN1 -t UTF-8 FILE), or {SKIP_HINT}."
    )


def nul_byte_message(text: str) -> str:
    """Return the message for a NUL byte inside a text file."""
    offset = len(text[: text.index("\0")].encode())
    return (
        f"NUL byte at offset {offset} of the line. Remove it (tr -d '\\0' < FILE), or {SKIP_HINT}."
    )


def decode_line(raw: bytes, number: int, bad_rows: BadRows) -> str | None:
    """Decode a line and strip its break; report it and return None if it is not text."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad_rows.report(UNDECODABLE, number, not_utf8_message(error))
        return None
    if "\0" in text:
        bad_rows.report(NUL_BYTE, number, nul_byte_message(text))
        return None
    return text.rstrip("\r\n")


def strip_compression(path: str) -> tuple[str, str]:
    """Return the lower-case name without compression ending, and that ending: 'a.csv', '.gz'."""
    name = path.lower()
    for ending in COMPRESSION_ENDINGS:
        if name.endswith(ending):
            return name[: -len(ending)], ending
    return name, ""


def file_not_found(path: str) -> UserError:
    """Return the error for a missing file, with the closest name in its folder."""
    if path.startswith(MEMORY_PREFIX):
        return UserError(
            f"{path}: these rows were in the memory of another process. Pass them again, or a file."
        )
    target = Path(path)
    folder = target.parent
    files = path.split(",")
    if len(files) > 1 and all(map(os.path.exists, files)):
        return UserError(f"{path}: {len(files)} files. Pass one of them here.")
    if not folder.is_dir():
        return UserError(f"{path}: no such file; folder '{folder}' does not exist either.")
    names = sorted(entry.name for entry in folder.iterdir())
    hint = (
        near_miss(target.name, names) or f" '{folder}' holds: {', '.join(names[:7]) or 'nothing'}."
    )
    return UserError(f"{path}: no such file.{hint}")


def _open(path: str) -> IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    plain = open_stored(path)
    magic = cast(io.BufferedReader, plain).peek(6)[:6]
    ending = strip_compression(path)[1]
    # Content decides, so a renamed file opens too; by its ending, a damaged one fails clearly.
    if magic.startswith(_GZIP) or (ending == ".gz" and magic):
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=plain)), _BUFFER_BYTES)
    if magic.startswith(_XZ) or (ending == ".xz" and magic):
        return io.BufferedReader(cast(io.RawIOBase, lzma.LZMAFile(plain)), _BUFFER_BYTES)
    if magic.startswith(_ZSTD) or (ending == ".zst" and magic):
        return io.BufferedReader(_Zstandard(plain), _BUFFER_BYTES)
    return plain


def open_stored(path: str) -> IO[bytes]:
    """Open a file as it is stored, compressed or not."""
    if is_remote(path):
        return io.BufferedReader(cast(io.RawIOBase, open_remote(path)), _BUFFER_BYTES)
    check_regular(path)
    try:
        return open(path, "rb", buffering=_BUFFER_BYTES)
    except FileNotFoundError:
        raise file_not_found(path) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not a file. Pass the files in it.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot open: {error.strerror}.") from error


class _Zstandard(io.RawIOBase):
    """The contents of a file compressed by Zstandard, read with pyarrow."""

    def __init__(self, compressed: IO[bytes]) -> None:
        from weft.text.formats.parquet import import_pyarrow

        pyarrow = import_pyarrow("Files compressed by Zstandard")
        self._error: type[Exception] = pyarrow.ArrowException
        self._stream = pyarrow.CompressedInputStream(compressed, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._stream.readinto(buffer))
        except self._error as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        self._stream.close()
        super().close()
