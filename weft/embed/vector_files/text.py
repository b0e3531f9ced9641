"""Files of word vectors, each recognised by its content: word2vec, GloVe, fastText, NumPy, ours.

word2vec text and binary, GloVe text and fastText .vec are read through, plain or gzip. fastText
.bin, .npz, .npy and .safetensors are opened where they lie (weft/embed/vector_files/memory_map.py).
"""

import gzip
import zlib
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np

from weft.embed.vector_files import memory_map
from weft.embed.vector_files.table import KEEP_FIRST, Duplicates, VectorTable, resolve_duplicates
from weft.errors import UserError, near_miss
from weft.tokens.vocabulary import SPECIALS
from weft.untrusted import parse_integer

Row = np.ndarray  # (E,) float32
Rows = Iterator[tuple[str, Row, str]]  # a word, its numbers, and where they stand
PEEK_BYTES = 4096
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 24  # bytes of a word and its numbers as text
MAX_WORD_BYTES = 1 << 20  # bytes
_TRUNCATED = "The file is truncated; copy it again."
_WRONG_WIDTH = "Correct this line, or the first, which says the width."


def read_vectors(path: str | Path, wanted: Set[str] | None = None) -> tuple[dict[str, Row], int]:
    """The vectors of the wanted words (of all, when None), and their width.

    A word that occurs twice keeps its first vector. Where the file has sub-words, every wanted
    word has a vector.
    """
    path = _require_file(path, "Correct 'vectors' in the configuration.")
    table = memory_map.open_table(path)
    if table is not None:
        return _select_words(table, path, wanted), table.width
    vectors: dict[str, Row] = {}
    with _open_rows(path) as (rows, width):
        for word, row, _ in rows(wanted):
            vectors.setdefault(word, row)
    return vectors, width


def read_table(
    path: str | Path, *, mmap: bool = True, duplicates: Duplicates = "error"
) -> VectorTable:
    """All of a file of word vectors; nothing of a matrix that can be mapped is read yet."""
    path = _require_file(path)
    table = memory_map.open_table(path, mmap)
    if table is not None:
        return resolve_duplicates(table, path, duplicates)
    words: dict[str, int] = {}
    numbers: list[Row] = []
    with _open_rows(path) as (rows, _):
        for word, row, where in rows(None):
            if word not in words:
                words[word] = len(numbers)
                numbers.append(row)
            elif duplicates == "error":
                first = words[word] + 1
                raise UserError(
                    f"{where}: the word '{word}' again; it is vector {first} already. {KEEP_FIRST}"
                )
    return VectorTable(list(words), np.stack(numbers))


def _select_words(table: VectorTable, path: Path, wanted: Set[str] | None) -> dict[str, Row]:
    """Rows of the wanted words only: what is not touched is not read."""
    index: dict[str, int] = {}
    for i, word in enumerate(table.words):
        if wanted is None or word in wanted:
            index.setdefault(word, i)
    vectors = {word: table.vector(i, str(path)) for word, i in index.items()}
    if table.subwords is not None and wanted is not None:
        for word in wanted - index.keys() - set(SPECIALS):
            vectors[word] = table.subwords.vector(word)
    return vectors


def _require_file(path: str | Path, advice: str = "") -> Path:
    path = Path(path)
    if path.is_file():
        return path
    folder, near = path.parent, ""
    if path.is_dir():
        message = f"{path} is a folder, not a file of word vectors."
    elif not folder.is_dir():
        message = f"No vector file '{path}': there is no folder '{folder}'."
    else:
        near = near_miss(path.name, (p.name for p in folder.iterdir()))
        message = f"No vector file '{path}'.{near}"
    advice = advice or ("" if near else "Check the name.")
    raise UserError(f"{message} {advice}".rstrip())


@contextmanager
def _open_rows(path: Path) -> Iterator[tuple[Callable[[Set[str] | None], Rows], int]]:
    """An open file of a format that is read through: its rows, given the wanted, and its width."""
    with path.open("rb") as peek:
        zipped = peek.read(2) == b"\x1f\x8b"
    try:
        opened = gzip.open(path, "rb") if zipped else path.open("rb")
        with cast(IO[bytes], opened) as stream:
            reader, rows, width = _detect_format(path, stream, zipped)
            yield partial(reader, path, stream, rows, width), width
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file ({error}). Copy it again.") from error


def _detect_format(
    path: Path, stream: IO[bytes], zipped: bool
) -> tuple[Callable[..., Rows], int | None, int]:
    """Decide which format the file is in: its reader, its rows if it says so, its width."""
    start = stream.read(PEEK_BYTES)
    stream.seek(0)
    if not start.strip():
        raise UserError(f"{path} is empty: no word vectors in it.")
    if zipped and memory_map.file_kind(start):
        raise UserError(
            f"{path}: a packed {memory_map.file_kind(start)} cannot be opened where it lies. "
            "Unpack it first: gunzip."
        )
    header = _parse_header(path, start)
    binary = _looks_binary(start, header is not None)
    if header:
        next(_lines(path, stream, 1))
        _check_header(path, *header, zipped)
        return (_binary_rows if binary else _text_rows), *header
    if binary:
        raise UserError(
            f"{path}: neither text nor word2vec binary (no 'rows width' line). It is cut short, "
            "or not of word vectors: copy it again, or give another file."
        )
    width = len(next(_lines(path, stream, 1)).split()) - 1
    stream.seek(0)
    if width < 1:
        excerpt = start.partition(b"\n")[0][:40].decode("utf-8", "replace")
        raise UserError(
            f"{path}:1: a word and its numbers expected, found {excerpt!r}. It is cut short, or "
            "not of word vectors: copy it again, or give another file."
        )
    return _text_rows, None, width


def _check_header(path: Path, rows: int, width: int, zipped: bool) -> None:
    """Reject a damaged header before memory is allocated for what it promises."""
    if not rows or not width:
        raise UserError(
            f"{path}:1: corrupt header: {rows} vectors of width {width}. "
            "The first line should say 'rows width'."
        )
    least, size = 2 * width, path.stat().st_size  # text: a digit and a space a number
    if not zipped and least > size:
        raise UserError(
            f"{path}:1: corrupt header: a vector of width {width} takes {least:,} bytes or more, "
            f"but the whole file has {size:,}."
        )


def _parse_header(path: Path, start: bytes) -> tuple[int, int] | None:
    """'rows width', where the first line says so; GloVe files have no such line."""
    first, _, rest = start.partition(b"\n")
    line = first.split()
    if len(line) != 2:
        return None
    rows, width = (parse_integer(cell.decode("latin-1")) for cell in line)
    if rows is not None and width is not None:
        return rows, width
    second = rest.partition(b"\n")[0].split(b" ")
    if line[1].isdigit() or (line[0].isdigit() and len(second) > 2):
        raise UserError(
            f"{path}:1: corrupt header: {first[:40].decode('utf-8', 'replace')!r}. "
            "The first line should say 'rows width', two whole numbers."
        )
    return None


def _looks_binary(start: bytes, header: bool) -> bool:
    """Control bytes or broken UTF-8 in the beginning: 32-bit numbers, not digits."""
    first = start.split(b"\n", 2)[1 if header else 0 : 2]
    numbers = first[0].partition(b" ")[2][:64] if first else b""
    if numbers and not numbers.translate(None, b"0123456789+-.eE \t\r"):
        return False  # text, though its words may be in an encoding of their own
    if any(byte < 32 and byte not in b"\t\n\r" for byte in start):
        return True
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(start) - 4  # a character cut off at the end proves nothing
    return False


def _text_rows(
    path: Path, stream: IO[bytes], rows: int | None, width: int, wanted: Set[str] | None
) -> Rows:
    first = 1 if rows is None else 2
    count = 0
    for number, line in enumerate(_lines(path, stream, first), first):
        line = line.rstrip().replace(b"\t", b" ")
        if not line:
            continue
        where = f"{path}:{number}"
        count += 1
        # Some GloVe words contain spaces, so columns are counted from the right.
        cells = line.count(b" ")
        if cells < width:
            raise UserError(
                f"{where}: {cells} numbers, but the file's width is {width}. The line is cut "
                f"off or the file is not of word vectors. {_WRONG_WIDTH}"
            )
        split = line.find(b" ") if cells == width else _word_end(where, line, width)
        word = line[:split].decode("utf-8", "surrogateescape")
        if wanted is None or word in wanted:
            yield word, _parse_numbers(where, line[split:], width), where
    if rows is not None and count != rows:
        advice = _TRUNCATED if count < rows else "Correct the first line."
        raise UserError(f"{path}: the first line promises {rows} vectors, found {count}. {advice}")


def _lines(path: Path, stream: IO[bytes], first: int) -> Iterator[bytes]:
    """The lines of a file, none of them longer than can be a word with its vector."""
    number = first
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(
                f"{path}:{number}: the line is longer than {MAX_LINE_BYTES:,} bytes: no word with "
                "its vector. Copy the file again, or give another."
            )
        yield line
        number += 1


def _word_end(where: str, line: bytes, width: int) -> int:
    """Return the end of a word with spaces; raise if the row is simply too wide."""
    word = line.rsplit(b" ", width)[0]
    rest = word.split()[1:]
    try:
        [float(cell) for cell in rest]
    except ValueError:
        return len(word)
    if not rest:  # two spaces after the word
        return len(word.rstrip())
    count = width + len(rest)
    raise UserError(f"{where}: {count} numbers, but the file's width is {width}. {_WRONG_WIDTH}")


def _parse_numbers(where: str, cells: bytes, width: int) -> Row:
    try:
        row = np.array(cells.split(), dtype=np.float32)
    except ValueError as error:
        cell = str(error).partition(": ")[2].removeprefix("b")
        raise UserError(f"{where}: not a number: {cell}. Correct or remove the line.") from error
    if len(row) != width:
        raise UserError(
            f"{where}: {len(row)} numbers, but the file's width is {width}. {_WRONG_WIDTH}"
        )
    return _require_finite(where, row)


def _require_finite(where: str, row: Row) -> Row:
    if not np.isfinite(row).all():
        raise UserError(
            f"{where}: a number that is not finite. Remove the word, or train or copy again."
        )
    return row


def _binary_rows(
    path: Path, stream: IO[bytes], rows: int, width: int, wanted: Set[str] | None
) -> Rows:
    """word2vec's own: the word, a space, `width` little-endian floats, perhaps a line end."""
    size = 4 * width
    buffer, at = b"", 0
    for number in range(1, rows + 1):
        while (space := buffer.find(b" ", at)) < 0 or len(buffer) < space + 1 + size:
            if space < 0 and len(buffer) - at > MAX_WORD_BYTES:
                raise UserError(
                    f"{path}: vector {number} of {rows}: no word ends within {MAX_WORD_BYTES:,} "
                    "bytes. The file is corrupt; copy it again."
                )
            more = stream.read(max(CHUNK_BYTES, size))
            if not more:
                raise UserError(
                    f"{path}: truncated in vector {number} of {rows}. Copy the file again."
                )
            buffer, at = buffer[at:] + more, 0
        word = buffer[at:space].lstrip(b"\n").decode("utf-8", "surrogateescape")
        at = space + 1 + size
        if wanted is None or word in wanted:
            where = f"{path}: vector {number}, '{word}'"
            row = np.frombuffer(buffer, dtype="<f4", count=width, offset=space + 1)
            yield word, _require_finite(where, row.astype(np.float32)), where
    left = buffer[at:] + stream.read(CHUNK_BYTES)
    if left.strip(b"\n"):
        raise UserError(
            f"{path}: the first line promises {rows} vectors of width {width}, but more follows "
            "them. The header is corrupt: correct it or copy the file again."
        )
