"""Weights on disk: reading them back, and saying what is wrong with a file that is not whole."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.tensorfile import DamagedFile, read_header

WEIGHTS = "weights.safetensors"


def read(kind: str, path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """The arrays of a weights file, which must be those that are wanted."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        read_header(path)
        arrays = load_file(path)
    except FileNotFoundError:
        raise damaged_file_error(kind, path, "the file is missing") from None
    except DamagedFile as error:
        raise damaged_file_error(kind, path, error.reason) from error
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise damaged_file_error(kind, path, str(error)) from error
    if set(arrays) != set(wanted):
        raise damaged_file_error(kind, path, f"it holds {sorted(arrays)}, not {sorted(wanted)}")
    return arrays


def damaged_file_error(kind: str, path: Path, reason: str) -> UserError:
    """The error for a file that is missing, cut, or does not fit the others."""
    return UserError(
        f"{path}: not a whole '{kind}' model ({reason}). Copy the model folder again or train anew."
    )
