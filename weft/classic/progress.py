"""Progress of a fit, reported to a callback."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.text.example import Example


@dataclass(frozen=True)
class FitProgress:
    """A step of a fit and the fraction completed."""

    share: float
    what: str
    epoch: int = 0  # the epoch that has just ended; 0: none
    loss: float = math.nan  # the mean of that epoch


DevSplit = tuple[Sequence[str | Example], np.ndarray]  # texts and their targets
ProgressCallback = Callable[[FitProgress], bool]  # returns True to continue


def no_callback(progress: FitProgress) -> bool:
    """Ignore the progress and continue."""
    return True
