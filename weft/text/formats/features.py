"""Load the feature matrices that texts refer to: image regions, speech frames, any vectors.

T vectors of a matrix   F numbers of a vector
"""

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from weft import jsonio
from weft.errors import UserError
from weft.text.audio.log_mel import LogMel
from weft.text.audio.wav import read_wav
from weft.text.example import Example
from weft.text.formats.npy import READ_ERRORS, NpzArchive, describe_error, open_npy
from weft.text.formats.recognise import MATRIX_ENDINGS, RECORDING_ENDING
from weft.text.images import MAX_CHANNELS, Patches, as_image
from weft.text.line_source import file_not_found
from weft.text.location import MEMORY_PREFIX
from weft.untrusted import check_regular, parse_integer

Frontend = LogMel | Patches  # how recordings or images become vectors

STACKED_AXES = (3, 4)  # of an .npy file with several matrices, or with several images

REFERENCE_FORMS = "a .npy file, FILE.npz:KEY, FILE.npy:NUMBER, or the numbers as JSON"


class MatrixError(UserError):
    """An unusable matrix; `kind` names the fault, `reason` explains it."""

    def __init__(self, kind: str, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.kind, self.reason = kind, reason


def is_matrix_reference(text: str) -> bool:
    """Return whether a text looks like a reference for `load_matrix`, without opening it."""
    text = text.strip()
    if not text.startswith("[["):
        return text.endswith(MATRIX_ENDINGS) or text.rpartition(":")[0].endswith(MATRIX_ENDINGS)
    try:
        return isinstance(jsonio.parse(text, "")[0][0], (int, float))
    except (ValueError, LookupError, TypeError):
        return False


def list_matrices(path: str | os.PathLike[str]) -> Iterator[Example]:
    """Yield an Example for each matrix of a file: the arrays of an .npz, or stacked in an .npy."""
    name = os.fspath(path)
    if name.endswith(RECORDING_ENDING):
        yield Example(Path(name).name, None, "", name, 1)
        return
    archive = _open(name)
    if isinstance(archive, np.ndarray):
        keys = [str(i) for i in range(len(archive))] if archive.ndim in STACKED_AXES else [""]
    else:
        keys = list(archive.files)
    if not keys:
        raise UserError(f"{name}: no matrix. Save at least one.")
    file = Path(name).name
    for number, key in enumerate(keys, 1):
        yield Example(file if key == "" else f"{file}:{key}", None, "", name, number)


def not_text_error(path: str | os.PathLike[str]) -> UserError:
    """Return the error for a matrix file passed instead of texts."""
    return UserError(
        f"{os.fspath(path)}: a matrix file, but texts are needed here. Pass a text file; to train "
        "on vectors, use --recipe seq2seq-vectors."
    )


def names_recording(text: str) -> bool:
    """Return whether a text looks like the name of a recording."""
    return text.strip().endswith(RECORDING_ENDING)


def names_image(example: Example) -> bool:
    """Return whether an example refers to an image: an array with three axes, rows to channels."""
    values = example.vectors
    try:
        if values is None and is_matrix_reference(example.text):
            values = None if names_recording(example.text) else _load_reference(example, "")
    except UserError:
        return False  # loading it will report the error
    shape = np.shape(() if values is None else values)
    return len(shape) == 3 and shape[2] <= MAX_CHANNELS


def needs_frontend(example: Example) -> bool:
    """Return whether an example refers to a recording or an image."""
    return names_recording(example.text) or names_image(example)


def load_matrix(
    example: Example, features: int = 0, where: str = "", frontend: Frontend | None = None
) -> np.ndarray:
    """Return the validated matrix (T, F) that an example refers to or carries.

    A relative path is resolved next to the referring file, then in the working directory. The
    `frontend` turns recordings or images into vectors. A recording must be in the folder of the
    referring file.
    """
    where = example.where if example.file else where or "input"
    values = example.vectors
    if values is None and names_recording(example.text):
        values = _load_recording(example, where, frontend)
    elif values is None:
        values = _load_reference(example, where)
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise MatrixError("no numbers", where, f"the matrix holds {values.dtype}, not numbers.")
    if isinstance(frontend, Patches):
        values = _cut_image(values, where, frontend)
    if values.ndim == 3 and 0 < values.shape[2] <= MAX_CHANNELS:
        reason = "an image (rows, columns, channels), and this model reads matrices. Use the "
        reason += "embedder 'image', as --recipe caption does."
        raise MatrixError("other axes", where, reason)
    if values.ndim != 2:
        shape = " × ".join(map(str, values.shape)) or "one number"
        reason = f"a matrix needs two axes, vectors by numbers; found {shape}. Reshape it."
        raise MatrixError("other axes", where, reason)
    if not values.size:
        rows, wide = values.shape
        raise MatrixError("empty matrix", where, f"empty matrix ({rows} × {wide}). Remove it.")
    if features and values.shape[1] != features:
        raise UserError(
            f"{where}: vectors of {values.shape[1]} numbers; this model reads {features}. "
            "Compute the features it was trained on."
        )
    with np.errstate(over="ignore"):  # overflow is reported below
        out = values.astype(np.float32)
    if not np.isfinite(out).all():
        row, column = np.argwhere(~np.isfinite(out))[0].tolist()
        reason = f"vector {row + 1} of the matrix is not finite: number {column + 1} is "
        reason += f"{out[row, column]}. Correct it, or remove the matrix."
        raise MatrixError("not finite", where, reason)
    return out


def format_matrix(values: np.ndarray) -> str:
    """Format a matrix as a text that `load_matrix` reads."""
    return json.dumps([[float(f"{number:.6g}") for number in row] for row in values.tolist()])


def _load_recording(example: Example, where: str, frontend: Frontend | None) -> np.ndarray:
    """Return the log-mel vectors of the recording that an example names."""
    name = example.text.strip()
    if not isinstance(frontend, LogMel):
        reads = "matrices" if frontend is None else "images"
        raise UserError(
            f"{where}: '{name[-60:]}' is a recording, and this model reads {reads}. Use the "
            "embedder 'log-mel', as --recipe ctc-speech does."
        )
    path = recording_path(example, where)
    try:
        return frontend.vectors(*read_wav(path))
    except UserError as error:
        raise MatrixError("unreadable matrix", where, str(error)) from None


def recording_path(example: Example, where: str = "") -> str:
    """Return the path of the recording that an example names, below the folder of its file."""
    where = where or example.where
    path = name = example.text.strip()
    if example.file not in ("", "-") and not example.file.startswith(MEMORY_PREFIX):
        folder = os.path.realpath(Path(example.file).parent)
        path = os.path.join(folder, name)
        if os.path.isabs(name) or not Path(os.path.realpath(path)).is_relative_to(folder):
            reason = f"'{name[-60:]}' is not in the folder of {example.file}. Put recordings "
            reason += "there or below, and name them by relative paths."
            raise MatrixError("unreadable matrix", where, reason)
    return path


def load_image(example: Example) -> np.ndarray:
    """Return the array (H, W, C) of the image that an example refers to or carries."""
    values = example.vectors
    if values is None and names_recording(example.text):
        raise MatrixError("other axes", example.where, "a recording, not an image.")
    image = as_image(
        np.asarray(_load_reference(example, example.where) if values is None else values)
    )
    check_image(image, example.where)
    return image


def _cut_image(values: np.ndarray, where: str, patches: Patches) -> np.ndarray:
    """Return the patches of an image as vectors."""
    image = as_image(values)
    check_image(image, where)
    try:
        return patches.vectors(image)
    except UserError as error:
        raise MatrixError("other size", where, str(error)) from None


def check_image(image: np.ndarray, where: str) -> None:
    """Raise MatrixError for an array that is no image."""
    if image.ndim != 3 or not 0 < image.shape[2] <= MAX_CHANNELS:
        shape = " × ".join(map(str, image.shape)) or "one number"
        reason = "an image needs three axes, rows, columns and 1 to 4 channels; "
        reason += f"found {shape}. Reshape it."
        raise MatrixError("other axes", where, reason)
    if image.dtype.kind not in "fiub":
        raise MatrixError("no numbers", where, f"the image holds {image.dtype}, not numbers.")
    if not image.size:
        raise MatrixError("empty matrix", where, "empty image. Remove it.")
    if not np.isfinite(image).all():
        reason = "the image has numbers that are not finite. Correct them, or remove the image."
        raise MatrixError("not finite", where, reason)


def _load_reference(example: Example, where: str) -> np.ndarray:
    text = example.text.strip()
    if text.startswith("["):
        try:
            return np.array(jsonio.parse(text, where), dtype=float)
        except READ_ERRORS as error:
            raise UserError(
                f"{where}: not a JSON matrix of numbers: {describe_error(error)}."
            ) from None
    path, key = text, ""
    if not text.endswith(MATRIX_ENDINGS):
        path, _, key = text.rpartition(":")
    if not path.endswith(MATRIX_ENDINGS):
        raise UserError(
            f"{where}: '{text[:60]}' is not a matrix reference. Pass {REFERENCE_FORMS}."
        )
    beside = Path(example.file).parent / path if example.file else Path(path)
    try:
        in_cwd = os.path.exists(path) and not beside.exists()
        opened = _open(path if in_cwd else str(beside))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return _select_matrix(opened, path, key, where)


def _select_matrix(opened: np.ndarray | NpzArchive, path: str, key: str, where: str) -> np.ndarray:
    """Return one of the matrices of a file."""
    if isinstance(opened, np.ndarray):
        if not key:
            return opened
        number = parse_integer(key)
        stacked = opened.ndim in STACKED_AXES
        if not stacked or number is None or number >= len(opened):
            many = f"matrices 0 to {len(opened) - 1}" if stacked else "one matrix"
            raise UserError(f"{where}: no matrix '{key}' in {path}, which has {many}.")
        matrix: np.ndarray = opened[number]
        return matrix
    names = opened.files
    if not key and len(names) == 1:
        key = names[0]
    if key not in names:
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        problem = f"no matrix '{key}'" if key else "several matrices"
        raise UserError(f"{where}: {problem} in {path}; it has {shown}. Write {path}:KEY.")
    try:
        return opened[key]  # read only now
    except READ_ERRORS as error:
        reason = f"matrix '{key:.60}' of {path} cannot be read: {describe_error(error)}"
        raise UserError(f"{where}: {reason}.") from None


def _open(path: str) -> np.ndarray | NpzArchive:
    check_regular(path)
    try:
        return _open_cached(path, os.stat(path).st_mtime_ns)
    except FileNotFoundError:
        raise file_not_found(path) from None
    except READ_ERRORS as error:
        raise UserError(f"{path}: not a readable matrix file: {describe_error(error)}.") from None


@lru_cache(maxsize=4)  # an .npz lists its contents each time it is opened
def _open_cached(path: str, changed: int) -> np.ndarray | NpzArchive:
    return open_npy(path) if path.endswith(".npy") else NpzArchive(path)
