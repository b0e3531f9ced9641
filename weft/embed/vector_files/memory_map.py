"""Vector files that are opened where they lie: .npz, .npy with .words, .safetensors, fastText .bin.

Nothing of a matrix is read before it is used. An .npz and a .safetensors file hold the same
arrays: matrix (V, E), words (UTF-8, one a line), and where known counts, subwords, output, about.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from weft import jsonio
from weft.embed.subwords import Subwords
from weft.embed.vector_files import fasttext_bin
from weft.embed.vector_files.table import VectorTable
from weft.errors import UserError
from weft.text.formats.npy import READ_ERRORS, describe_error, read_header, read_member

_MAX_HEADER_BYTES = 100_000_000  # of a .safetensors file, by its definition
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}
_FLOATS, _COUNTS = "f", "iu"


def file_kind(start: bytes) -> str:
    """Return the kind of a file by its first bytes, or ""."""
    if start.startswith(fasttext_bin.MAGIC):
        return "fastText model"
    if start.startswith(b"PK\x03\x04"):
        return ".npz file"
    if start.startswith(b"\x93NUMPY"):
        return ".npy file"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= _MAX_HEADER_BYTES:
        return ".safetensors file"
    return ""


def open_table(path: Path, mmap: bool = True) -> VectorTable | None:
    """Open the table of a file in one of these formats; None for any other."""
    with path.open("rb") as stream:
        kind = file_kind(stream.read(16))
    if not kind:
        return None
    if kind == "fastText model":
        return fasttext_bin.read(path, mmap)
    if kind == ".npy file":
        with path.open("rb") as stream:
            arrays = {"matrix": _read_npy(path, stream, mmap)}
        return _build_table(path, {**arrays, "words": _word_file(path)})
    return _build_table(
        path, (_read_safetensors if kind == ".safetensors file" else _read_npz)(path, mmap)
    )


def encode_words(words: list[str]) -> np.ndarray:
    """Encode words as an array of bytes, one word per line."""
    text = "\n".join(words).encode("utf-8", "surrogateescape")
    return np.frombuffer(text, np.uint8)


def _decode_words(path: Path, array: np.ndarray) -> list[str]:
    if array.dtype == np.uint8:
        text = array.tobytes().decode("utf-8", "surrogateescape")
        return text.split("\n") if text else []
    if array.dtype.kind in "US" and array.ndim == 1:
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8", "surrogateescape")
        return [str(word) for word in array]
    raise UserError(
        f"{path}: 'words' is an array of {array.dtype}, shape {array.shape}. "
        "It should hold texts, or UTF-8 bytes with a word a line."
    )


def _word_file(path: Path) -> np.ndarray:
    words = path.with_suffix(".words")
    if not words.is_file():
        raise UserError(f"{path}: no words. They should stand, one a line, in {words}.")
    return np.frombuffer(words.read_bytes().removesuffix(b"\n"), np.uint8)


def _build_table(path: Path, arrays: dict[str, np.ndarray]) -> VectorTable:
    for name in ("matrix", "words"):
        if name not in arrays:
            raise UserError(
                f"{path}: no array '{name}'; found {sorted(arrays)}. A file of word vectors "
                "has 'matrix' (words × width) and 'words'."
            )
    words = _decode_words(path, arrays["words"])
    about = _metadata(path, arrays.get("about"))
    matrix = _check_array(path, "matrix", arrays["matrix"], len(words), _FLOATS)
    width = matrix.shape[1]
    table = VectorTable(words, matrix, record=about.get("record", {}))
    changes: dict[str, Any] = {}
    if "counts" in arrays:
        changes["counts"] = _check_array(path, "counts", arrays["counts"], len(words), _COUNTS)
    if "output" in arrays:
        changes["output"] = _check_array(path, "output", arrays["output"], None, _FLOATS, width)
    if "subwords" in arrays:
        rows = _check_array(path, "subwords", arrays["subwords"], None, _FLOATS, width)
        if len(rows) < len(words) or not {"shortest", "longest"} <= about.keys():
            raise UserError(f"{path}: 'subwords' has {len(rows)} rows for {len(words)} words.")
        changes["subwords"] = Subwords(rows, len(words), about["shortest"], about["longest"])
    return VectorTable(**{**vars(table), **changes})


def _metadata(path: Path, array: np.ndarray | None) -> dict[str, Any]:
    try:
        metadata = jsonio.parse(array.tobytes(), path) if array is not None else {}
    except UserError as error:
        raise UserError(f"{path}: 'about' is not JSON ({error}). Copy the file again.") from error
    if not isinstance(metadata, dict):
        raise UserError(f"{path}: 'about' should be a JSON object, found {metadata!r}.")
    return metadata


def _check_array(
    path: Path,
    name: str,
    array: np.ndarray,
    rows: int | None,
    kinds: str,
    width: int | None = None,
) -> np.ndarray:
    """Return the array after checking shape and type; a mapped one is read only to convert."""
    flat = kinds == _COUNTS
    good = array.ndim == (1 if flat else 2) and array.dtype.kind in kinds and array.shape[-1]
    if not good or (rows is not None and len(array) != rows):
        wanted = "whole numbers" if flat else "decimals, a row a word"
        words = "" if rows is None else f" for {rows} words"
        raise UserError(
            f"{path}: '{name}' is an array of {array.dtype}, shape {array.shape}{words}. "
            f"It should hold {wanted}."
        )
    if width is not None and array.shape[1] != width:
        raise UserError(f"{path}: '{name}' is {array.shape[1]} wide, but the matrix is {width}.")
    return np.asanyarray(array, np.int64 if flat else np.float32)


def _read_safetensors(path: Path, mmap: bool) -> dict[str, np.ndarray]:
    """The library copies what it hands out, so the header is read here and the rest mapped."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = jsonio.parse(stream.read(length), path)
            header.pop("__metadata__", None)
            entries = {
                name: (
                    entry["dtype"],
                    list(map(int, entry["shape"])),
                    int(entry["data_offsets"][0]),
                )
                for name, entry in header.items()
            }
            if any(n < 0 for _, shape, begin in entries.values() for n in (*shape, begin)):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
            raise UserError(f"{path}: corrupt header. Copy the file again.") from None
    arrays = {}
    for name, (kind, shape, offset) in entries.items():
        if kind not in _DTYPES:
            raise UserError(f"{path}: '{name}' is of type {kind}; save it as float32.")
        begin = 8 + length + int(offset)
        arrays[name] = fasttext_bin.read_array(path, begin, shape, _DTYPES[kind], mmap)
    return arrays


def _read_npz(path: Path, mmap: bool) -> dict[str, np.ndarray]:
    arrays = {}
    try:
        with zipfile.ZipFile(path) as members:
            for info in members.infolist():
                name = info.filename.removesuffix(".npy")
                if info.compress_type != zipfile.ZIP_STORED:
                    arrays[name] = read_member(members, info.filename)
                    continue
                with path.open("rb") as stream:
                    # The local header ends with a name and an extra field of their own lengths.
                    stream.seek(info.header_offset + 26)
                    name_size, extra = np.frombuffer(stream.read(4), "<u2").tolist()
                    stream.seek(info.header_offset + 30 + name_size + extra)
                    arrays[name] = _read_npy(path, stream, mmap)
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{path}: broken .npz file ({describe_error(error)}). Copy it again."
        ) from error
    return arrays


def _read_npy(path: Path, stream: IO[bytes], mmap: bool) -> np.ndarray:
    """The array whose .npy header begins here."""
    try:
        shape, fortran, dtype = read_header(stream)
        order = shape[::-1] if fortran else shape
        array = fasttext_bin.read_array(path, stream.tell(), order, dtype, mmap)
        return array.T if fortran else array
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{path}: broken NumPy array ({describe_error(error)}). Save it again."
        ) from error
