"""NumPy's files from strangers: what a header claims is checked before anything is allocated."""

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

# What NumPy and zipfile raise on damaged files; a header is Python source, so its errors too.
READ_ERRORS = (
    *(OSError, ValueError, EOFError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, RecursionError, MemoryError, SyntaxError, NotImplementedError, RuntimeError),
    *(tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile),
)
MAX_UNPACKED_BYTES = 1 << 28  # bytes from which an array that was packed very small is refused
MAX_COMPRESSION_RATIO = 50  # how much smaller; numbers of any use seldom pack to a tenth

Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]  # shape, column after column, type


def read_header(stream: IO[bytes]) -> Header:
    """The header of an .npy file; raises one of DAMAGE. Python objects are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers of Python 2
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        shape, fortran, dtype = read.get(version, np.lib.format.read_array_header_2_0)(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"a shape of {shape}")
    return shape, fortran, dtype


def read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an .npz file; raises one of DAMAGE, before anything is allocated for it."""
    info = archive.getinfo(name)
    if (
        info.file_size > MAX_UNPACKED_BYTES
        and info.file_size > MAX_COMPRESSION_RATIO * info.compress_size
    ):
        raise ValueError(
            f"{info.compress_size:,} bytes that claim to unpack to {info.file_size:,}; if they do, "
            "save it unpacked (numpy.savez)"
        )
    with archive.open(info) as stream:
        shape, fortran, dtype = read_header(stream)
        size = math.prod(shape) * dtype.itemsize
        if size > info.file_size:
            raise ValueError(f"an array of shape {shape} takes {size:,} bytes, not what is there")
        data = stream.read(size)
    if len(data) < size:
        raise ValueError("it is cut short")
    found = np.frombuffer(data, dtype)
    return found.reshape(shape[::-1]).T if fortran else found.reshape(shape)


def open_npy(path: str | Path) -> np.ndarray:
    """An .npy file, mapped; raises one of DAMAGE."""
    with open(path, "rb") as stream:
        shape, fortran, dtype = read_header(stream)
        offset = stream.tell()
        stream.seek(0, 2)
        size, there = math.prod(shape) * dtype.itemsize, stream.tell() - offset
    if size > there:
        raise ValueError(f"an array of shape {shape} takes {size:,} bytes; there are {there:,}")
    if not size:
        return np.zeros(shape, dtype)
    order = "F" if fortran else "C"
    return np.memmap(path, dtype, "r", offset, shape, order)  # type: ignore[call-overload]


class NpzArchive:
    """The arrays of an .npz file by name, each read when it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self._archive = zipfile.ZipFile(path)
        self._members = {name.removesuffix(".npy"): name for name in self._archive.namelist()}
        self.files = list(self._members)

    def __getitem__(self, name: str) -> np.ndarray:
        return read_member(self._archive, self._members[name])


def describe_error(error: BaseException) -> str:
    """What one of DAMAGE says, in a line."""
    if isinstance(error, UserError):
        return str(error)
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return "not enough memory" if isinstance(error, MemoryError) else said
