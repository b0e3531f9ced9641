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
    """What a file that begins like this is, or nothing."""
    if start.startswith(fasttext_bin.MAGIC):
        return "fastText model"
    if start.startswith(b"PK\x03\x04"):
        return ".npz file"
    if start.startswith(b"\x93NUMPY"):
        return ".npy file"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= _MAX_HEADER_BYTES:
        return ".safetensors file"
    return ""


def open_table(place: Path, mmap: bool = True) -> VectorTable | None:
    """The table in a file of such a format; None where it is of another."""
    with place.open("rb") as stream:
        kind = file_kind(stream.read(16))
    if not kind:
        return None
    if kind == "fastText model":
        return fasttext_bin.read(place, mmap)
    if kind == ".npy file":
        with place.open("rb") as stream:
            arrays = {"matrix": _read_npy(place, stream, mmap)}
        return _build_table(place, {**arrays, "words": _word_file(place)})
    return _build_table(
        place, (_read_safetensors if kind == ".safetensors file" else _read_npz)(place, mmap)
    )


def encode_words(words: list[str]) -> np.ndarray:
    """Words as an array of bytes, one a line."""
    text = "\n".join(words).encode("utf-8", "surrogateescape")
    return np.frombuffer(text, np.uint8)


def _decode_words(place: Path, array: np.ndarray) -> list[str]:
    if array.dtype == np.uint8:
        text = array.tobytes().decode("utf-8", "surrogateescape")
        return text.split("\n") if text else []
    if array.dtype.kind in "US" and array.ndim == 1:
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8", "surrogateescape")
        return [str(word) for word in array]
    raise UserError(
        f"{place}: 'words' is an array of {array.dtype}, shape {array.shape}. "
        "It should hold texts, or UTF-8 bytes with a word a line."
    )


def _word_file(place: Path) -> np.ndarray:
    words = place.with_suffix(".words")
    if not words.is_file():
        raise UserError(f"{place}: no words. They should stand, one a line, in {words}.")
    return np.frombuffer(words.read_bytes().removesuffix(b"\n"), np.uint8)


def _build_table(place: Path, arrays: dict[str, np.ndarray]) -> VectorTable:
    for name in ("matrix", "words"):
        if name not in arrays:
            raise UserError(
                f"{place}: no array '{name}'; found {sorted(arrays)}. A file of word vectors "
                "has 'matrix' (words × width) and 'words'."
            )
    words = _decode_words(place, arrays["words"])
    about = _metadata(place, arrays.get("about"))
    matrix = _check_array(place, "matrix", arrays["matrix"], len(words), _FLOATS)
    width = matrix.shape[1]
    table = VectorTable(words, matrix, record=about.get("record", {}))
    changes: dict[str, Any] = {}
    if "counts" in arrays:
        changes["counts"] = _check_array(place, "counts", arrays["counts"], len(words), _COUNTS)
    if "output" in arrays:
        changes["output"] = _check_array(place, "output", arrays["output"], None, _FLOATS, width)
    if "subwords" in arrays:
        rows = _check_array(place, "subwords", arrays["subwords"], None, _FLOATS, width)
        if len(rows) < len(words) or not {"shortest", "longest"} <= about.keys():
            raise UserError(f"{place}: 'subwords' has {len(rows)} rows for {len(words)} words.")
        changes["subwords"] = Subwords(rows, len(words), about["shortest"], about["longest"])
    return VectorTable(**{**vars(table), **changes})


def _metadata(place: Path, array: np.ndarray | None) -> dict[str, Any]:
    try:
        found = jsonio.parse(array.tobytes(), place) if array is not None else {}
    except UserError as error:
        raise UserError(f"{place}: 'about' is not JSON ({error}). Copy the file again.") from error
    if not isinstance(found, dict):
        raise UserError(f"{place}: 'about' should be a JSON object, found {found!r}.")
    return found


def _check_array(
    place: Path,
    name: str,
    array: np.ndarray,
    rows: int | None,
    kinds: str,
    width: int | None = None,
) -> np.ndarray:
    """The array with the shape and type it must have; a mapped one is read only to change type."""
    flat = kinds == _COUNTS
    good = array.ndim == (1 if flat else 2) and array.dtype.kind in kinds and array.shape[-1]
    if not good or (rows is not None and len(array) != rows):
        wanted = "whole numbers" if flat else "decimals, a row a word"
        words = "" if rows is None else f" for {rows} words"
        raise UserError(
            f"{place}: '{name}' is an array of {array.dtype}, shape {array.shape}{words}. "
            f"It should hold {wanted}."
        )
    if width is not None and array.shape[1] != width:
        raise UserError(f"{place}: '{name}' is {array.shape[1]} wide, but the matrix is {width}.")
    return np.asanyarray(array, np.int64 if flat else np.float32)


def _read_safetensors(place: Path, mmap: bool) -> dict[str, np.ndarray]:
    """The library copies what it hands out, so the header is read here and the rest mapped."""
    with place.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = jsonio.parse(stream.read(length), place)
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
            raise UserError(f"{place}: corrupt header. Copy the file again.") from None
    arrays = {}
    for name, (kind, shape, offset) in entries.items():
        if kind not in _DTYPES:
            raise UserError(f"{place}: '{name}' is of type {kind}; save it as float32.")
        begin = 8 + length + int(offset)
        arrays[name] = fasttext_bin.read_array(place, begin, shape, _DTYPES[kind], mmap)
    return arrays


def _read_npz(place: Path, mmap: bool) -> dict[str, np.ndarray]:
    arrays = {}
    try:
        with zipfile.ZipFile(place) as members:
            for info in members.infolist():
                name = info.filename.removesuffix(".npy")
                if info.compress_type != zipfile.ZIP_STORED:
                    arrays[name] = read_member(members, info.filename)
                    continue
                with place.open("rb") as stream:
                    # The local header ends with a name and an extra field of their own lengths.
                    stream.seek(info.header_offset + 26)
                    name_size, extra = np.frombuffer(stream.read(4), "<u2").tolist()
                    stream.seek(info.header_offset + 30 + name_size + extra)
                    arrays[name] = _read_npy(place, stream, mmap)
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{place}: broken .npz file ({describe_error(error)}). Copy it again."
        ) from error
    return arrays


def _read_npy(place: Path, stream: IO[bytes], mmap: bool) -> np.ndarray:
    """The array whose .npy header begins here."""
    try:
        shape, fortran, dtype = read_header(stream)
        order = shape[::-1] if fortran else shape
        found = fasttext_bin.read_array(place, stream.tell(), order, dtype, mmap)
        return found.T if fortran else found
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{place}: broken NumPy array ({describe_error(error)}). Save it again."
        ) from error
