"""Charts of gradient health: gradient strength by distance, and over a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from weft.report.charts.plots import ACCENT, INK, MUTED, STYLE, to_svg
from weft.train.gradients.verdict import VANISHED_GRADIENT, Curve, GradientHealth, memory_curve

MIN_STRENGTH = 1e-12  # weaker gradients are drawn here
LineOptions = Mapping[str, Any]  # keyword arguments of matplotlib's plot
LINE_STYLES: dict[str, LineOptions] = {
    "good": {"color": INK, "lw": 1.3},
    "warning": {"color": ACCENT, "lw": 1.4, "ls": (0, (5, 3))},
    "bad": {"color": ACCENT, "lw": 2.0},
}


def plot_by_distance(healths: Mapping[str, GradientHealth]) -> str:
    """Plot the relative gradient strength against distance, one labelled line per recipe."""
    lines = {
        name: _drop_gaps(memory_curve(health.distances)[1]) for name, health in healths.items()
    }
    lines = {name: curve for name, curve in lines.items() if curve}
    if not lines:
        return ""
    styles = {name: LINE_STYLES[healths[name].level] for name in lines}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, max(3.6, 0.24 * len(lines))), layout="constrained")
        axes = _draw_axes(figure, lines, styles)
        axes.set_xlabel("steps back from the end of the text")
        axes.set_ylabel("gradient, relative to the end")
        return to_svg(figure, "health")


def plot_history(healths: Sequence[GradientHealth]) -> str:
    """Plot the gradient strength at each evaluation of one run, by distance."""
    history = [(health.step, dict(memory_curve(health.distances)[1])) for health in healths]
    shared = set.intersection(*(set(curve) for _, curve in history)) if history else set()
    kept = _halving_distances(max(shared, default=0), shared)
    lines = {f"{d} steps": [(step, curve[d]) for step, curve in history] for d in kept}
    if not lines:
        return ""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5, 2.6), layout="constrained")
        styles = {name: {"color": INK, "lw": 1.2} for name in lines}
        styles[list(lines)[-1]] = {"color": ACCENT, "lw": 1.7}
        axes = _draw_axes(figure, lines, styles)
        axes.set_xlabel("updates")
        axes.set_ylabel("gradient, relative to the end")
        return to_svg(figure, f"health-{healths[0].step}")


def _drop_gaps(curve: Curve) -> Curve:
    """Drop steps that max pooling skipped: zero there, but not farther back."""
    last = max((i for i, (_, value) in enumerate(curve) if value > 0), default=-1)
    return [point for i, point in enumerate(curve) if point[1] > 0 or i > last]


def _halving_distances(far: int, shared: set[int]) -> list[int]:
    """Return the farthest distance, half of it, and so on down to 5 steps, nearest first."""
    kept: list[int] = []
    while far >= 5 or (far and not kept):
        if far in shared:
            kept.append(far)
        far //= 2
    return kept[::-1]


def _draw_axes(
    figure: Figure, lines: Mapping[str, Curve], styles: Mapping[str, LineOptions]
) -> Axes:
    axes = figure.add_subplot()
    axes.set_yscale("log")
    values = [max(value, MIN_STRENGTH) for curve in lines.values() for _, value in curve]
    low, high = min(*values, VANISHED_GRADIENT), max(*values, 1.0)
    axes.set_ylim(low / 2, high * 2)
    axes.axhspan(low / 2, VANISHED_GRADIENT, color=ACCENT, alpha=0.08, lw=0)
    axes.text(
        0.01, low / 1.7, "too weak to learn from", transform=axes.get_yaxis_transform(),
        va="bottom", color=MUTED, size=8,
    )  # fmt: skip
    for name, curve in lines.items():
        x, y = [x for x, _ in curve], [max(y, MIN_STRENGTH) for _, y in curve]
        axes.plot(x, y, marker="." if len(x) == 1 else None, **styles[name])
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    _draw_names(figure, axes, lines, styles)
    return axes


def _draw_names(
    figure: Figure, axes: Axes, lines: Mapping[str, Curve], styles: Mapping[str, LineOptions]
) -> None:
    """Label each line at its right end, with labels moved apart to avoid overlap."""
    ends = {name: (curve[-1][0], max(curve[-1][1], MIN_STRENGTH)) for name, curve in lines.items()}
    order = sorted(ends, key=lambda name: ends[name][1])
    gap = 15 / (72 * figure.get_figheight() * 0.8)  # height of a line of text, in axes units
    heights = spread_apart([_axes_height(axes, ends[name][1]) for name in order], gap)
    for name, height in zip(order, heights, strict=True):
        axes.annotate(
            name,
            ends[name],
            xytext=(1.035, height),
            textcoords="axes fraction",
            va="center",
            color=styles[name]["color"],
            size=9.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.5, "relpos": (0, 0.5)},
        )


def _axes_height(axes: Axes, value: float) -> float:
    """Return the height of a value in axes units, from 0 (bottom) to 1 (top)."""
    return float(axes.transAxes.inverted().transform(axes.transData.transform((0, value)))[1])


def spread_apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Move increasing heights minimally so that they are `gap` apart, within 0 to 1 if they fit."""
    gap = min(gap, 1 / max(len(wanted) - 1, 1))
    out: list[float] = []
    for height in wanted:
        out.append(max(height, out[-1] + gap) if out else max(height, 0.0))
    top = 1.0
    for i in reversed(range(len(out))):
        out[i] = min(out[i], top)
        top = out[i] - gap
    return out
