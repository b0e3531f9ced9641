"""Read untrusted NumPy files: headers are checked before anything is allocated."""

import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from weft.errors import UserError

# Raised by NumPy and zipfile on damaged files; a header is Python source, so its errors too.
READ_ERRORS = (
    *(OSError, ValueError, EOFError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, RecursionError, MemoryError, SyntaxError, NotImplementedError, RuntimeError),
    *(tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile),
)
MAX_UNPACKED_BYTES = 1 << 28  # of an array compressed more than MAX_COMPRESSION_RATIO
MAX_COMPRESSION_RATIO = 50  # useful numbers rarely compress to a tenth

Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]  # shape, Fortran order, any type


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of an .npy file; raise one of READ_ERRORS, also for Python objects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers of Python 2
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        shape, fortran, dtype = read.get(version, np.lib.format.read_array_header_2_0)(stream)
    if dtype.hasobject:
        raise ValueError("it contains Python objects, which are not read")
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"invalid shape {shape}")
    return shape, fortran, dtype


def read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read an array of an .npz file; raise one of READ_ERRORS before allocating it."""
    info = archive.getinfo(name)
    if (
        info.file_size > MAX_UNPACKED_BYTES
        and info.file_size > MAX_COMPRESSION_RATIO * info.compress_size
    ):
        raise ValueError(
            f"{info.compress_size:,} bytes claim to expand to {info.file_size:,}; if right, "
            "save it uncompressed (numpy.savez)"
        )
    with archive.open(info) as stream:
        shape, fortran, dtype = read_header(stream)
        size = math.prod(shape) * dtype.itemsize
        if size > info.file_size:
            raise ValueError(f"an array of shape {shape} takes {size:,} bytes, more than there are")
        data = stream.read(size)
    if len(data) < size:
        raise ValueError("it is truncated")
    values = np.frombuffer(data, dtype)
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


def open_npy(path: str | Path) -> np.ndarray:
    """Memory-map an .npy file; raise one of READ_ERRORS."""
    with open(path, "rb") as stream:
        shape, fortran, dtype = read_header(stream)
        offset = stream.tell()
        stream.seek(0, 2)
        size, available = math.prod(shape) * dtype.itemsize, stream.tell() - offset
    if size > available:
        raise ValueError(
            f"an array of shape {shape} takes {size:,} bytes; the file has {available:,}"
        )
    if not size:
        return np.zeros(shape, dtype)
    mapped: np.ndarray = np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    return mapped


class NpzArchive:
    """The arrays of an .npz file by name, read on access."""

    def __init__(self, path: str | Path) -> None:
        self._archive = zipfile.ZipFile(path)
        self._members = {name.removesuffix(".npy"): name for name in self._archive.namelist()}
        self.files = list(self._members)

    def __getitem__(self, name: str) -> np.ndarray:
        return read_member(self._archive, self._members[name])


def describe_error(error: BaseException) -> str:
    """Return one of READ_ERRORS as one line."""
    if isinstance(error, UserError):
        return str(error)
    message = " ".join(str(error).split())[:200] or type(error).__name__
    return "not enough memory" if isinstance(error, MemoryError) else message
