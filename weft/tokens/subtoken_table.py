"""Tokens of running text together with the pieces they consist of, one row of numbers each.

N tokens   W pieces of a token
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np


def append_subtokens(ids: np.ndarray, pieces: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """(N, 1 + width) the id of each token, then its pieces, then zeros."""
    out = np.zeros((len(ids), 1 + width), np.int32)
    out[:, 0] = ids
    counts = np.array([len(own) for own in pieces], np.int64)
    inside = np.arange(width) < counts[:, None]
    out[:, 1:][inside] = np.fromiter(chain.from_iterable(pieces), np.int32, counts.sum())
    return out
