"""Read weights from disk, with errors for incomplete files."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.tensorfile import DamagedFile, read_header

WEIGHTS = "weights.safetensors"


def read(kind: str, path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """Return the arrays of a weights file, which must be exactly the wanted ones."""
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
    """Return the error for a file that is missing, truncated, or does not match the others."""
    return UserError(
        f"{path}: incomplete '{kind}' model ({reason}). Copy the model folder again or retrain."
    )
