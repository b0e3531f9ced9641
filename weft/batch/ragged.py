"""Rows of different lengths as one padded array, without torch."""

from collections.abc import Sequence

import numpy as np


def pad(rows: Sequence[np.ndarray], lengths: np.ndarray, fill: int = 0) -> np.ndarray:
    """Rows of (length, ...) as one right-padded (B, T, ...) array, of int64 or of float32."""
    width = int(lengths.max()) if len(lengths) else 0
    rest = rows[0].shape[1:] if len(rows) else ()
    real = len(rows) > 0 and rows[0].dtype.kind == "f"
    out = np.full((len(rows), width, *rest), fill, dtype=np.float32 if real else np.int64)
    if len(rows):
        out[np.arange(width) < lengths[:, None]] = np.concatenate(rows)
    return out
