"""Files of word vectors: word2vec text and binary, GloVe text, fastText .vec; plain or gzip."""

import gzip
import zlib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import IO, cast

import numpy as np

from weft.errors import UserError, near_miss

Row = np.ndarray  # (E,) float32
FASTTEXT_MODEL = (793712314).to_bytes(4, "little")
PEEK = 4096
CHUNK = 1 << 20


def read_vectors(path: str | Path, wanted: Set[str] | None = None) -> tuple[dict[str, Row], int]:
    """The vectors of the wanted words (of all, when None), and their width.

    A word that occurs twice keeps its first vector.
    """
    place = Path(path)
    if not place.is_file():
        raise UserError(f"No vector file '{place}'.{_near(place)} Check 'vectors'.")
    try:
        with _open(place) as stream:
            rows, width = _rows(place, stream, wanted)
            found: dict[str, Row] = {}
            for word, row in rows:
                found.setdefault(word, row)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{place}: broken gzip file ({error}). Copy it again.") from error
    return found, width


def _near(place: Path) -> str:
    folder = place.parent
    return near_miss(place.name, (p.name for p in folder.iterdir())) if folder.is_dir() else ""


def _open(place: Path) -> IO[bytes]:
    with place.open("rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(place, "rb")) if zipped else place.open("rb")


def _rows(
    place: Path, stream: IO[bytes], wanted: Set[str] | None
) -> tuple[Iterator[tuple[str, Row]], int]:
    """Decide which format the file is in."""
    start = stream.read(PEEK)
    stream.seek(0)
    if not start.strip():
        raise UserError(f"{place} is empty: no word vectors in it.")
    if start.startswith(FASTTEXT_MODEL):
        raise UserError(f"{place} is a fastText model. Give its text vectors, the .vec file.")
    header = _header(start)
    if header and _looks_binary(start):
        stream.readline()
        return _binary(place, stream, wanted, *header), header[1]
    if _looks_binary(start):
        raise UserError(f"{place}: neither text nor word2vec binary (no 'rows width' line).")
    if header:
        stream.readline()
        return _text(place, stream, wanted, header[0], header[1]), header[1]
    width = len(stream.readline().split()) - 1
    stream.seek(0)
    if width < 1:
        raise UserError(f"{place}:1: a word and its numbers expected, found {start[:40]!r}.")
    return _text(place, stream, wanted, None, width), width


def _header(start: bytes) -> tuple[int, int] | None:
    """'rows width', where the first line says so; GloVe files have no such line."""
    line = start.partition(b"\n")[0].split()
    if len(line) == 2 and line[0].isdigit() and line[1].isdigit():
        return int(line[0]), int(line[1])
    return None


def _looks_binary(start: bytes) -> bool:
    """Control bytes or broken UTF-8 in the beginning: 32-bit numbers, not digits."""
    if any(byte < 32 and byte not in b"\t\n\r" for byte in start):
        return True
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(start) - 4  # a character cut off at the end proves nothing
    return False


def _text(
    place: Path, stream: IO[bytes], wanted: Set[str] | None, rows: int | None, width: int
) -> Iterator[tuple[str, Row]]:
    first = 1 if rows is None else 2
    count = 0
    for number, line in enumerate(stream, first):
        line = line.rstrip().replace(b"\t", b" ")
        if not line:
            continue
        count += 1
        # Some GloVe words contain spaces, so columns are counted from the right.
        cells = line.count(b" ")
        if cells < width:
            raise UserError(
                f"{place}:{number}: {cells} numbers, but the file's width is {width}. "
                "The line is cut off or the file is not of word vectors."
            )
        split = line.find(b" ") if cells == width else len(line.rsplit(b" ", width)[0])
        word = line[:split].decode("utf-8", "replace")
        if wanted is None or word in wanted:
            yield word, _numbers(place, number, line[split:], width)
    if rows is not None and count < rows:
        raise UserError(
            f"{place}: the first line promises {rows} vectors, found {count}. "
            "The file is truncated; copy it again."
        )


def _numbers(place: Path, number: int, cells: bytes, width: int) -> Row:
    try:
        row = np.array(cells.split(), dtype=np.float32)
    except ValueError as error:
        raise UserError(f"{place}:{number}: not a number: {error}.") from error
    if len(row) != width:
        raise UserError(f"{place}:{number}: {len(row)} numbers, but the file's width is {width}.")
    if not np.isfinite(row).all():
        raise UserError(f"{place}:{number}: a number that is not finite. Remove the line.")
    return row


def _binary(
    place: Path, stream: IO[bytes], wanted: Set[str] | None, rows: int, width: int
) -> Iterator[tuple[str, Row]]:
    """word2vec's own: the word, a space, `width` little-endian floats, perhaps a line end."""
    size = 4 * width
    buffer, at = b"", 0
    for number in range(1, rows + 1):
        while (space := buffer.find(b" ", at)) < 0 or len(buffer) < space + 1 + size:
            more = stream.read(CHUNK)
            if not more:
                raise UserError(
                    f"{place}: truncated in vector {number} of {rows}. Copy the file again."
                )
            buffer, at = buffer[at:] + more, 0
        word = buffer[at:space].lstrip(b"\n").decode("utf-8", "replace")
        at = space + 1 + size
        if wanted is None or word in wanted:
            row = np.frombuffer(buffer, dtype="<f4", count=width, offset=space + 1)
            yield word, row.astype(np.float32)
