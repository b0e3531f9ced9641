"""Charts of predictions and data: calibration, regression, text lengths."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from weft.metrics.calibration import Calibration, RiskCoverage
from weft.report.charts.plots import ACCENT, INK, LINE, MUTED, STYLE, to_svg

MAX_DOTS = 1500  # of a scatter plot; more only grow the page
N_BINS = 31  # of a histogram

Histogram = tuple[Sequence[float], Sequence[int]]  # edges and counts, one edge more than counts


def plot_reliability(calibration: Calibration, before: Calibration | None = None) -> str:
    """Plot accuracy against confidence, above the number of predictions per bin.

    `before` is drawn in hollow dots: the same without a temperature.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
        above.plot([0, 100], [0, 100], color=MUTED, lw=1, ls=(0, (4, 3)))
        for one in (b for b in calibration.bins if b.count):
            left, width = 100 * one.low, 100 * (one.high - one.low)
            # A line from the diagonal to the accuracy: its length is the calibration error.
            confidence, accuracy = 100 * one.confidence, 100 * one.accuracy
            above.bar(left, accuracy, width, align="edge", color=MUTED, alpha=0.28, lw=0)
            above.plot(
                [confidence, confidence],
                [confidence, accuracy],
                color=ACCENT,
                lw=2.2,
                solid_capstyle="butt",
            )
            above.plot([confidence], [accuracy], "o", color=INK, ms=3.6)
            below.bar(left, one.count, width * 0.9, align="edge", color=MUTED, alpha=0.6, lw=0)
        if before is not None:
            bins = [one for one in before.bins if one.count]
            dots = [100 * b.confidence for b in bins], [100 * b.accuracy for b in bins]
            above.plot(*dots, "o", mfc="none", mec=MUTED, ms=4.2, label="before the temperature")
            above.plot([], [], "o", color=INK, ms=3.6, label="after")
            above.legend(loc="upper left", frameon=False)
        above.set_ylabel("accuracy (%)")
        above.set_xlim(0, 100)
        above.set_ylim(0, 102)
        below.set_ylabel("texts")
        below.set_xlabel("confidence (%)")
        below.grid(False)
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        figure.align_ylabels()
        return to_svg(figure, "reliability")


def plot_risk_coverage(curve: RiskCoverage, accuracies: Sequence[float] = (0.9, 0.95)) -> str:
    """Plot the accuracy of the most confident answers against the fraction that is answered."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        thin = curve.thin()
        axes.plot(100 * thin.coverage, 100 * thin.accuracy, color=ACCENT, lw=1.8)
        lowest = min(100 * float(thin.accuracy.min(initial=1.0)), 100 * min(accuracies))
        for accuracy in accuracies:
            coverage = curve.coverage_at(accuracy)
            axes.axhline(100 * accuracy, color=MUTED, lw=1, ls=(0, (4, 3)))
            if coverage:
                axes.plot([100 * coverage], [100 * accuracy], "o", color=INK, ms=4)
                axes.annotate(
                    f"{100 * coverage:.0f} % at {100 * accuracy:.0f} %",
                    (100 * coverage, 100 * accuracy),
                    # Beside the curve, which falls: above it on its right, below it on its left.
                    xytext=(-6, -13) if coverage > 0.6 else (6, 4),
                    textcoords="offset points",
                    ha="right" if coverage > 0.6 else "left",
                )
        axes.set_xlim(0, 101)
        axes.set_ylim(lowest - 2, 101)
        axes.set_xlabel("answered (%), most confident first")
        axes.set_ylabel("accuracy of the answers (%)")
        return to_svg(figure, "risk-coverage")


def plot_predicted_vs_gold(pairs: np.ndarray, seed: int = 0) -> str:
    """Plot predicted against gold numbers, with the diagonal."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.3), layout="constrained")
        axes = figure.add_subplot()
        low, high = float(pairs.min()), float(pairs.max())
        axes.plot([low, high], [low, high], color=MUTED, lw=1, ls=(0, (4, 3)))
        chosen = np.random.default_rng(seed).permutation(len(pairs))[:MAX_DOTS]
        gold, predicted = pairs[np.sort(chosen)].T
        axes.plot(gold, predicted, "o", color=ACCENT, ms=3.4, alpha=0.45, mew=0)
        axes.set_xlabel("gold")
        axes.set_ylabel("predicted")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        return to_svg(figure, "against")


def plot_residuals(pairs: np.ndarray) -> str:
    """Plot a histogram of the residuals."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.3), layout="constrained")
        axes = figure.add_subplot()
        residuals = pairs[:, 1] - pairs[:, 0]
        reach = float(np.abs(residuals).max()) or 1.0  # symmetric, so that a bias is visible
        counts, edges = np.histogram(residuals, N_BINS, (-reach, reach))
        width = edges[1] - edges[0]
        axes.bar(edges[:-1], counts, width * 0.92, align="edge", color=MUTED, alpha=0.6, lw=0)
        axes.axvline(0, color=LINE, lw=1)
        axes.axvline(float(residuals.mean()), color=ACCENT, lw=1.6)
        axes.grid(False, axis="x")
        axes.set_xlabel("predicted − gold; the line is the mean")
        axes.set_ylabel("texts")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        return to_svg(figure, "residuals")


def plot_distributions(
    histograms: Mapping[str, Histogram], unit: str, doubling: bool = False
) -> str:
    """Plot the distribution of a number in each split, as comparable percentages.

    With `doubling`, bins and axis are logarithmic.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.1), layout="constrained")
        row = figure.subplots(1, len(histograms), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (split, (edges, counts)) in zip(row, histograms.items(), strict=True):
            left, right = np.asarray(edges[:-1], float), np.asarray(edges[1:], float)
            percent = 100 * np.asarray(counts, float) / max(sum(counts), 1)
            axes.bar(
                left, percent, (right - left) * 0.94, align="edge", color=MUTED, alpha=0.6, lw=0
            )
            axes.grid(False, axis="x")
            axes.set_title(split, loc="left", size=9, weight="bold")
            axes.set_xlabel(unit)
            if doubling:
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
                axes.xaxis.set_minor_locator(NullLocator())
            else:
                axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.yaxis.set_major_locator(MaxNLocator(4))
        row[0].set_ylabel("texts (%)")
        return to_svg(figure, f"shares-{unit.replace(' ', '-')}")
