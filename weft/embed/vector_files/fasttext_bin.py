"""fastText's .bin model: its layout, and reading it without reading its matrices.

Little-endian throughout: magic, version; the settings; the dictionary; a flag and the input
matrix (words, then buckets of n-grams); a flag and the output matrix.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.embed.subwords import Subwords
from weft.embed.vector_files.table import VectorTable
from weft.errors import UserError

MAGIC_NUMBER, VERSION = 793712314, 12
MAGIC = MAGIC_NUMBER.to_bytes(4, "little")
START = struct.Struct("<ii")  # magic, version
SETTINGS = struct.Struct("<12id")
NAMES = (
    *("dim", "ws", "epoch", "minCount", "neg", "wordNgrams", "loss", "model", "bucket"),
    *("minn", "maxn", "lrUpdateRate", "t"),
)
SIZES = struct.Struct("<iiiqq")  # entries, words, labels, tokens, pruned n-grams or -1
ENTRY = struct.Struct("<qb")  # after the word and its zero byte: count, 0 = word or 1 = label
SHAPE = struct.Struct("<?qq")  # quantised, rows, columns
SUPERVISED = 3  # of 'model'; 1 is cbow, 2 skipgram


def read_array(
    path: Path, offset: int, shape: Sequence[int], dtype: str | np.dtype[Any], mapped: bool
) -> np.ndarray:
    """The part of a file that is an array, mapped or read."""
    kind = np.dtype(dtype)
    count = math.prod(shape)
    size = path.stat().st_size
    if offset + count * kind.itemsize > size:
        raise UserError(
            f"{path}: an array of shape {tuple(shape)} should end at byte "
            f"{offset + count * kind.itemsize:,}, but the file has {size:,}. "
            "It is truncated; copy it again."
        )
    if mapped and count:
        return np.memmap(path, kind, "r", offset, tuple(shape))
    with path.open("rb") as stream:
        stream.seek(offset)
        return np.fromfile(stream, kind, count).reshape(shape)


def read(path: Path, mapped: bool = True) -> VectorTable:
    """The words of a model with their rows and sub-words; the matrix is left to be composed."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            settings, at = _settings(path, data)
            tokens, words, counts, at = _dictionary(path, data, at)
            table, at = _matrix(path, data, at, mapped)
            output, _ = _matrix(path, data, at, mapped)
        except (struct.error, OverflowError) as error:
            raise UserError(
                f"{path}: a fastText model that is truncated or corrupt. Copy it again."
            ) from error
    sizes = f"{len(words)} words and {settings['bucket']} buckets of width {settings['dim']}"
    if table.shape[1] != settings["dim"] or len(table) < len(words):
        raise UserError(f"{path}: {sizes}, but the matrix has shape {table.shape}. Copy it again.")
    record = {"fasttext": {**settings, "tokens": tokens}}
    if settings["maxn"] <= 0:
        return VectorTable(words, table[: len(words)], counts, output=output, record=record)
    if len(table) != len(words) + settings["bucket"]:
        raise UserError(f"{path}: {sizes}, but the matrix has shape {table.shape}. Copy it again.")
    subwords = Subwords(table, len(words), settings["minn"], settings["maxn"])
    return VectorTable(words, None, counts, subwords, output, record)


def _settings(path: Path, data: mmap.mmap) -> tuple[dict[str, Any], int]:
    _, version = START.unpack_from(data, 0)
    if version not in (11, VERSION):
        raise UserError(
            f"{path}: a fastText model of version {version}; {VERSION} and 11 are known. "
            "Convert it with the fastText that wrote it."
        )
    settings = dict(zip(NAMES, SETTINGS.unpack_from(data, START.size), strict=True))
    if version == 11 and settings["model"] == SUPERVISED:
        settings["maxn"] = 0  # those classifiers did not use character n-grams
    return settings, START.size + SETTINGS.size


def _dictionary(path: Path, data: mmap.mmap, at: int) -> tuple[int, list[str], np.ndarray, int]:
    """Tokens seen, words, their counts, and where the dictionary ends; labels are passed over."""
    entries, words, labels, tokens, pruned = SIZES.unpack_from(data, at)
    at += SIZES.size
    if entries != words + labels or min(entries, words, labels) < 0:
        raise UserError(
            f"{path}: corrupt header: {entries} entries, {words} words and {labels} labels."
        )
    vocabulary: list[str] = []
    counts: list[int] = []
    for number in range(entries):
        end = data.find(b"\0", at)
        if end < 0:
            raise UserError(f"{path}: truncated in entry {number + 1} of {entries}. Copy it again.")
        count, kind = ENTRY.unpack_from(data, end + 1)
        if kind == 0:
            vocabulary.append(data[at:end].decode("utf-8", "surrogateescape"))
            counts.append(count)
        at = end + 1 + ENTRY.size
    if len(vocabulary) != words:
        raise UserError(f"{path}: corrupt: {words} words promised, {len(vocabulary)} found.")
    at += 8 * max(pruned, 0)
    return tokens, vocabulary, np.array(counts, np.int64), at


def _matrix(path: Path, data: mmap.mmap, at: int, mapped: bool) -> tuple[np.ndarray, int]:
    quantised, rows, columns = SHAPE.unpack_from(data, at)
    if quantised:
        raise UserError(
            f"{path}: a quantised fastText model (.ftz): its vectors were thrown away for short "
            "codes. Give the model before quantising, the .bin file."
        )
    at += SHAPE.size
    if rows < 0 or columns < 0:
        raise UserError(f"{path}: corrupt: a matrix of {rows} × {columns}. Copy it again.")
    return read_array(path, at, (rows, columns), "<f4", mapped), at + 4 * rows * columns
