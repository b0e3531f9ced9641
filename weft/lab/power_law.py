"""Power laws y = factor · x^exponent, fitted by least squares on logarithms, with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import UserError

LEVEL = 0.05


@dataclass(frozen=True)
class PowerLaw:
    """A fitted power law; `low` and `high` enclose the exponent with 95 % confidence."""

    exponent: float
    low: float
    high: float
    factor: float
    points: int
    deviation: float  # of log y from the line
    mean_log_x: float
    spread: float  # sum of squares of log x around its mean

    def at(self, x: float) -> float:
        """Return the value on the line."""
        return float(self.factor * x**self.exponent)

    def interval(self, x: float) -> tuple[float, float]:
        """Return the 95 % interval of one new measurement at x."""
        from scipy import stats

        distance = (math.log(x) - self.mean_log_x) ** 2 / self.spread
        error = self.deviation * math.sqrt(1 + 1 / self.points + distance)
        reach = float(stats.t.ppf(1 - LEVEL / 2, self.points - 2)) * error
        middle = math.log(self.at(x))
        return math.exp(middle - reach), math.exp(middle + reach)


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """Fit a power law to three points or more, all above zero."""
    from scipy import stats

    if len(x) != len(y) or len(set(x)) < 3:
        raise UserError(
            f"A power law with an interval needs three different sizes or more, got {len(set(x))}."
        )
    if min(*x, *y) <= 0:
        raise UserError("A power law needs sizes and measurements above zero.")
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    middle = float(log_x.mean())
    spread = float(((log_x - middle) ** 2).sum())
    exponent = float(((log_x - middle) * (log_y - log_y.mean())).sum() / spread)
    constant = float(log_y.mean()) - exponent * middle
    residuals = log_y - constant - exponent * log_x
    deviation = math.sqrt(float((residuals**2).sum()) / (len(x) - 2))
    reach = float(stats.t.ppf(1 - LEVEL / 2, len(x) - 2)) * deviation / math.sqrt(spread)
    return PowerLaw(
        exponent, exponent - reach, exponent + reach, math.exp(constant), len(x), deviation,
        middle, spread,
    )  # fmt: skip
