"""Charts of what was answered: calibration, numbers against the right ones, lengths of texts."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from weft.report.analysis.predictions import Calibration
from weft.report.charts.plots import ACCENT, INK, LINE, MUTED, STYLE, svg

DOTS = 1500  # of a scatter; more only grow the page
COLUMNS = 31  # of a histogram

Histogram = tuple[Sequence[float], Sequence[int]]  # edges and counts, one edge more than counts


def reliability(found: Calibration) -> str:
    """How often answers are right against how sure they were, above how many there are of each."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
        above.plot([0, 100], [0, 100], color=MUTED, lw=1, ls=(0, (4, 3)))
        for one in (b for b in found.bins if b.count):
            left, width = 100 * one.low, 100 * (one.high - one.low)
            # A bar from the line of honesty to the truth: its length is what is wrong.
            sure, right = 100 * one.confidence, 100 * one.accuracy
            above.bar(left, right, width, align="edge", color=MUTED, alpha=0.28, lw=0)
            above.plot([sure, sure], [sure, right], color=ACCENT, lw=2.2, solid_capstyle="butt")
            above.plot([sure], [right], "o", color=INK, ms=3.6)
            below.bar(left, one.count, width * 0.9, align="edge", color=MUTED, alpha=0.6, lw=0)
        above.set_ylabel("right (%)")
        above.set_xlim(0, 100)
        above.set_ylim(0, 102)
        below.set_ylabel("texts")
        below.set_xlabel("probability of the answer (%)")
        below.grid(False)
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        figure.align_ylabels()
        return svg(figure, "reliability")


def against(pairs: np.ndarray, seed: int = 0) -> str:
    """Each number the model gave against the right one, around the line where they are equal."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.3), layout="constrained")
        axes = figure.add_subplot()
        low, high = float(pairs.min()), float(pairs.max())
        axes.plot([low, high], [low, high], color=MUTED, lw=1, ls=(0, (4, 3)))
        chosen = np.random.default_rng(seed).permutation(len(pairs))[:DOTS]
        true, said = pairs[np.sort(chosen)].T
        axes.plot(true, said, "o", color=ACCENT, ms=3.4, alpha=0.45, mew=0)
        axes.set_xlabel("right number")
        axes.set_ylabel("answer")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        return svg(figure, "against")


def residuals(pairs: np.ndarray) -> str:
    """How far off the numbers are, and to which side."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.3), layout="constrained")
        axes = figure.add_subplot()
        off = pairs[:, 1] - pairs[:, 0]
        reach = float(np.abs(off).max()) or 1.0  # the same both ways, so that a lean can be seen
        counts, edges = np.histogram(off, COLUMNS, (-reach, reach))
        width = edges[1] - edges[0]
        axes.bar(edges[:-1], counts, width * 0.92, align="edge", color=MUTED, alpha=0.6, lw=0)
        axes.axvline(0, color=LINE, lw=1)
        axes.axvline(float(off.mean()), color=ACCENT, lw=1.6)
        axes.grid(False, axis="x")
        axes.set_xlabel("answer − right number; the line is the mean")
        axes.set_ylabel("texts")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        return svg(figure, "residuals")


def shares(histograms: Mapping[str, Histogram], unit: str, doubling: bool = False) -> str:
    """How a number is spread in each split, as shares, so that splits can be compared.

    With `doubling`, the ranges grow as the numbers do, and so does the scale.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.1), layout="constrained")
        row = figure.subplots(1, len(histograms), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (split, (edges, counts)) in zip(row, histograms.items(), strict=True):
            left, right = np.asarray(edges[:-1], float), np.asarray(edges[1:], float)
            share = 100 * np.asarray(counts, float) / max(sum(counts), 1)
            axes.bar(left, share, (right - left) * 0.94, align="edge", color=MUTED, alpha=0.6, lw=0)
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
        row[0].set_ylabel("share of texts (%)")
        return svg(figure, f"shares-{unit.replace(' ', '-')}")
