"""Progress of a fit, reported to a callback."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """A step of a fit and the fraction completed."""

    share: float
    what: str
    epoch: int = 0  # that has just ended; 0: none
    loss: float = math.nan  # mean over that epoch


ProgressCallback = Callable[[Progress], bool]  # whether to go on


def no_callback(progress: Progress) -> bool:
    """Hears nothing and lets it go on."""
    return True
