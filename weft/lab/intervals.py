"""Student's t for the typical run: an interval over seeds, and the p-value against a threshold.

Training fails now and then, in one run of ten perhaps, and one failure moves a mean by more than
its interval is wide. From MANY runs on, the lowest and the highest fifth are therefore left out of
the mean, and the interval is that of a trimmed mean (Tukey and McLaughlin 1963).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MANY = 8  # runs, of which a fifth on either side can be left out


@dataclass(frozen=True)
class Estimate:
    """The trimmed mean over seeds, its interval, and the p-value of "above the threshold"."""

    mean: float
    low: float
    high: float
    p: float


def count_trimmed(count: int) -> int:
    """Return how many runs of so many are left out on either side."""
    return count // 5 if count >= MANY else 0


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean of what is left when the extremes are left out."""
    cut = count_trimmed(len(values))
    middle = sorted(values)[cut : len(values) - cut]
    return math.fsum(middle) / len(middle)


def estimate(values: Sequence[float], threshold: float, level: float) -> Estimate:
    """Estimate a trimmed mean; the interval leaves out `level` / 2 on either side.

    Values that are all the same have an interval without width. A single one has an infinite one,
    so that it decides nothing.
    """
    from scipy import stats

    mean, count, cut = trimmed_mean(values), len(values), count_trimmed(len(values))
    if count == 1:
        return Estimate(mean, -math.inf, math.inf, 0.5)
    ordered = sorted(values)
    low, high = ordered[cut], ordered[-1 - cut]
    winsorised = [min(max(value, low), high) for value in ordered]  # extremes drawn in
    centre, kept = math.fsum(winsorised) / count, count - 2 * cut
    variance = math.fsum((value - centre) ** 2 for value in winsorised) / (count - 1)
    error = math.sqrt(variance * count) / kept
    if error == 0:
        p = 0.5 if mean == threshold else float(mean < threshold)
        return Estimate(mean, mean, mean, p)
    reach = float(stats.t.ppf(1 - level / 2, kept - 1)) * error
    p = float(stats.t.sf((mean - threshold) / error, kept - 1))
    return Estimate(mean, mean - reach, mean + reach, p)
