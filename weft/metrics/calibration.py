"""Agreement of confidence and accuracy: reliability bins, ECE, and the risk-coverage curve.

n predictions
"""

import math
from dataclasses import dataclass

import numpy as np

N_BINS = 15  # of the reliability diagram, as in Guo et al. 2017
MAX_CURVE_POINTS = 200  # of a drawn risk-coverage curve


@dataclass(frozen=True)
class CalibrationBin:
    """The predictions with a probability in (low, high]."""

    low: float
    high: float
    count: int
    confidence: float  # mean probability
    accuracy: float  # fraction correct


@dataclass(frozen=True)
class Calibration:
    """The agreement of confidence and accuracy."""

    bins: tuple[CalibrationBin, ...]
    error: float  # expected calibration error: mean gap of the bins, weighted by their counts
    confidence: float  # mean over all predictions
    accuracy: float


class CalibrationBins:
    """Sums for the reliability diagram, in equal-width bins (low, high]."""

    def __init__(self, count: int = N_BINS) -> None:
        self.counts, self.right = [0] * count, [0] * count
        self.prob_sums = [0.0] * count

    def add(self, prob: float, right: bool) -> None:
        size = len(self.counts)
        i = min(max(math.ceil(prob * size) - 1, 0), size - 1)
        self.counts[i] += 1
        self.right[i] += right
        self.prob_sums[i] += prob

    def calibration(self) -> Calibration:
        n, size = max(sum(self.counts), 1), len(self.counts)
        rows = zip(self.counts, self.prob_sums, self.right, strict=True)
        bins = tuple(
            CalibrationBin(
                i / size, (i + 1) / size, count, prob / (count or 1), right / (count or 1)
            )
            for i, (count, prob, right) in enumerate(rows)
        )
        error = sum(b.count / n * abs(b.accuracy - b.confidence) for b in bins)
        return Calibration(bins, error, sum(self.prob_sums) / n, sum(self.right) / n)


def expected_calibration_error(
    confidences: np.ndarray, right: np.ndarray, count: int = N_BINS
) -> float:
    """Return the ECE: the mean gap of accuracy and confidence over bins (low, high]."""
    if not len(confidences):
        return 0.0
    bins = np.clip(np.ceil(confidences * count).astype(np.int64) - 1, 0, count - 1)  # (n,)
    gaps = np.bincount(bins, right.astype(np.float64) - confidences, count)
    return float(np.abs(gaps).sum() / len(confidences))


@dataclass(frozen=True)
class RiskCoverage:
    """The accuracy of the most confident predictions, for every fraction that is answered.

    Equal confidences are answered together, so a point is a threshold that can be applied.
    """

    coverage: np.ndarray  # fraction answered, rising to 1
    accuracy: np.ndarray  # of those

    @property
    def area(self) -> float:
        """The area under risk (1 − accuracy) over coverage, AURC (Geifman et al. 2019)."""
        widths = np.diff(self.coverage, prepend=0.0)
        return float(((1 - self.accuracy) * widths).sum())

    def coverage_at(self, accuracy: float) -> float:
        """Return the largest fraction that is answered with at least this accuracy."""
        kept = self.coverage[self.accuracy >= accuracy]
        return float(kept.max(initial=0.0))

    def thin(self) -> "RiskCoverage":
        """Return the curve with few enough points to draw."""
        if len(self.coverage) <= MAX_CURVE_POINTS:
            return self
        points = np.linspace(0, len(self.coverage) - 1, MAX_CURVE_POINTS).round().astype(np.int64)
        return RiskCoverage(self.coverage[points], self.accuracy[points])


def risk_coverage(confidences: np.ndarray, right: np.ndarray) -> RiskCoverage:
    """Return the curve of predictions with these confidences, of which `right` are correct."""
    order = np.argsort(-confidences, kind="stable")
    ordered = confidences[order]
    last = np.append(ordered[1:] < ordered[:-1], True)[: len(ordered)]  # ties stay together
    answered = np.arange(1, len(ordered) + 1)
    accuracy = np.cumsum(right[order]) / answered
    return RiskCoverage((answered / max(len(ordered), 1))[last], accuracy[last])
