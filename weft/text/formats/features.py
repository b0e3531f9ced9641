"""Matrices that the texts of a file name: regions of pictures, frames of speech, any vectors.

T vectors of a matrix   F numbers of a vector
"""

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from weft import jsonio
from weft.errors import UserError
from weft.text.example import Example
from weft.text.formats.npy import READ_ERRORS, NpzArchive, describe_error, open_npy
from weft.text.formats.recognise import MATRIX_ENDINGS
from weft.text.line_source import file_not_found
from weft.untrusted import check_regular, parse_integer

REFERENCE_FORMS = "a .npy file, FILE.npz:KEY, FILE.npy:NUMBER, or the numbers as JSON"


class MatrixError(UserError):
    """A matrix that nothing can be learned from; `kind` names what is wrong, `told` says it."""

    def __init__(self, kind: str, where: str, told: str) -> None:
        super().__init__(f"{where}: {told}")
        self.kind, self.told = kind, told


def is_matrix_reference(text: str) -> bool:
    """Whether a text looks like one that `matrix` reads; what it names is not looked for."""
    text = text.strip()
    if not text.startswith("[["):
        return text.endswith(MATRIX_ENDINGS) or text.rpartition(":")[0].endswith(MATRIX_ENDINGS)
    try:
        return isinstance(jsonio.parse(text, "")[0][0], (int, float))
    except (ValueError, LookupError, TypeError):
        return False


def list_matrices(path: str | os.PathLike[str]) -> Iterator[Example]:
    """An Example for each matrix of a file: the arrays of an .npz, those stacked in an .npy."""
    name = os.fspath(path)
    found = _open(name)
    if isinstance(found, np.ndarray):
        places: list[Any] = [""] if found.ndim != 3 else list(range(len(found)))
    else:
        places = list(found.files)
    if not places:
        raise UserError(f"{name}: there is no matrix in it. Save at least one.")
    own = Path(name).name
    for number, place in enumerate(places, 1):
        yield Example(own if place == "" else f"{own}:{place}", None, "", name, number)


def not_text_error(path: str | os.PathLike[str]) -> UserError:
    """What to say where a file of matrices is given in the place of texts."""
    return UserError(
        f"{os.fspath(path)}: a file of matrices, and texts are read here. Give a file of texts; "
        "what reads vectors is trained with --recipe seq2seq-vectors."
    )


def load_matrix(example: Example, features: int = 0, where: str = "") -> np.ndarray:
    """(T, F) the matrix that an example's text names, or that it has with it, checked.

    A relative path is looked for beside the file that names it, then where we are.
    """
    where = example.where if example.file else where or "input"
    found = example.vectors if example.vectors is not None else _load_reference(example, where)
    found = np.asarray(found)
    if found.dtype.kind not in "fiub":
        raise MatrixError("no numbers", where, f"the matrix holds {found.dtype}, not numbers.")
    if found.ndim != 2:
        shape = " × ".join(map(str, found.shape)) or "one number"
        told = f"a matrix has two axes, vectors by numbers; found {shape}. Reshape it."
        raise MatrixError("other axes", where, told)
    if not found.size:
        rows, wide = found.shape
        raise MatrixError(
            "empty matrix", where, f"the matrix is empty ({rows} × {wide}). Leave it out."
        )
    if features and found.shape[1] != features:
        raise UserError(
            f"{where}: vectors of {found.shape[1]} numbers; this model reads vectors of {features}."
            " Make them as those it was trained on."
        )
    with np.errstate(over="ignore"):  # what is too large is told below
        out = found.astype(np.float32)
    if not np.isfinite(out).all():
        row, column = np.argwhere(~np.isfinite(out))[0].tolist()
        told = f"vector {row + 1} of the matrix is not finite: number {column + 1} is "
        told += f"{out[row, column]}. Mend it, or leave the matrix out."
        raise MatrixError("not finite", where, told)
    return out


def format_matrix(found: np.ndarray) -> str:
    """A matrix as a text that `matrix` reads."""
    return json.dumps([[float(f"{number:.6g}") for number in row] for row in found.tolist()])


def _load_reference(example: Example, where: str) -> Any:
    text = example.text.strip()
    if text.startswith("["):
        try:
            return np.array(jsonio.parse(text, where), dtype=float)
        except READ_ERRORS as error:
            raise UserError(
                f"{where}: no matrix of numbers as JSON: {describe_error(error)}."
            ) from None
    path, key = text, ""
    if not text.endswith(MATRIX_ENDINGS):
        path, _, key = text.rpartition(":")
    if not path.endswith(MATRIX_ENDINGS):
        raise UserError(f"{where}: '{text[:60]}' names no matrix. Give {REFERENCE_FORMS}.")
    beside = Path(example.file).parent / path if example.file else Path(path)
    try:
        here = os.path.exists(path) and not beside.exists()
        found = _open(path if here else str(beside))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return _select_matrix(found, path, key, where)


def _select_matrix(found: Any, path: str, key: str, where: str) -> Any:
    """One of the matrices of a file."""
    if isinstance(found, np.ndarray):
        if not key:
            return found
        number = parse_integer(key)
        if found.ndim != 3 or number is None or number >= len(found):
            many = f"numbers 0 to {len(found) - 1}" if found.ndim == 3 else "one matrix"
            raise UserError(f"{where}: no matrix '{key}' in {path}, which has {many}.")
        return found[number]
    names = found.files
    if not key and len(names) == 1:
        key = names[0]
    if key not in names:
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        asked = f"no matrix '{key}'" if key else "several matrices"
        raise UserError(f"{where}: {asked} in {path}; it has {shown}. Write {path}:KEY.")
    try:
        return found[key]  # read only now
    except READ_ERRORS as error:
        told = f"matrix '{key:.60}' of {path} cannot be read: {describe_error(error)}"
        raise UserError(f"{where}: {told}.") from None


def _open(path: str) -> Any:
    check_regular(path)
    try:
        return _open_cached(path, os.stat(path).st_mtime_ns)
    except FileNotFoundError:
        raise file_not_found(path) from None
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read as matrices: {describe_error(error)}.") from None


@lru_cache(maxsize=4)  # an .npz lists its contents each time it is opened
def _open_cached(path: str, changed: int) -> Any:
    return open_npy(path) if path.endswith(".npy") else NpzArchive(path)
