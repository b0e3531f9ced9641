"""Student's t for the mean over seeds: an interval, and the p-value against a threshold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """The mean over seeds, its interval, and the one-sided p-value of "above the threshold"."""

    mean: float
    low: float
    high: float
    p: float


def estimate(values: Sequence[float], threshold: float, level: float) -> Estimate:
    """Estimate a mean; the interval leaves out `level` / 2 on either side.

    Values that are all the same have an interval without width. A single one has an infinite one,
    so that it decides nothing.
    """
    from scipy import stats

    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, -math.inf, math.inf, 0.5)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    error = math.sqrt(variance / count)
    if error == 0:
        p = 0.5 if mean == threshold else float(mean < threshold)
        return Estimate(mean, mean, mean, p)
    reach = float(stats.t.ppf(1 - level / 2, count - 1)) * error
    p = float(stats.t.sf((mean - threshold) / error, count - 1))
    return Estimate(mean, mean - reach, mean + reach, p)
