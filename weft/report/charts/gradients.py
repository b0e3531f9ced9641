"""Charts of gradient health: how strong a gradient is after so many steps, and over a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from weft.report.charts.plots import ACCENT, INK, MUTED, STYLE, svg
from weft.train.gradient_verdict import VANISHED_GRADIENT, Curve, GradientHealth, memory_curve

FLOOR = 1e-12  # what is weaker is drawn here
LOOKS: dict[str, dict[str, Any]] = {
    "good": {"color": INK, "lw": 1.3},
    "warning": {"color": ACCENT, "lw": 1.4, "ls": (0, (5, 3))},
    "bad": {"color": ACCENT, "lw": 2.0},
}


def panel(healths: Mapping[str, GradientHealth]) -> str:
    """Relative strength of the gradient against distance, one labelled line a recipe."""
    lines = {name: _chosen(memory_curve(health.distances)[1]) for name, health in healths.items()}
    lines = {name: curve for name, curve in lines.items() if curve}
    if not lines:
        return ""
    looks = {name: LOOKS[healths[name].level] for name in lines}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, max(3.6, 0.24 * len(lines))), layout="constrained")
        axes = _axes(figure, lines, looks)
        axes.set_xlabel("steps back from the end of the text")
        axes.set_ylabel("gradient, relative to the end")
        return svg(figure, "health")


def histories(healths: Sequence[GradientHealth]) -> str:
    """How far the gradient reached at each evaluation of one training, by distance."""
    found = [(health.step, dict(memory_curve(health.distances)[1])) for health in healths]
    shared = set.intersection(*(set(curve) for _, curve in found)) if found else set()
    kept = _doubling(max(shared, default=0), shared)
    lines = {f"{d} steps": [(step, curve[d]) for step, curve in found] for d in kept}
    if not lines:
        return ""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5, 2.6), layout="constrained")
        looks = {name: {"color": INK, "lw": 1.2} for name in lines}
        looks[list(lines)[-1]] = {"color": ACCENT, "lw": 1.7}
        axes = _axes(figure, lines, looks)
        axes.set_xlabel("updates")
        axes.set_ylabel("gradient, relative to the end")
        return svg(figure, f"health-{healths[0].step}")


def _chosen(curve: Curve) -> Curve:
    """Without the steps that a maximum passed over: nothing there, but something farther back."""
    last = max((i for i, (_, value) in enumerate(curve) if value > 0), default=-1)
    return [point for i, point in enumerate(curve) if point[1] > 0 or i > last]


def _doubling(far: int, shared: set[int]) -> list[int]:
    """The farthest distance, half of it, half of that… down to 5 steps, nearest first."""
    kept: list[int] = []
    while far >= 5 or (far and not kept):
        if far in shared:
            kept.append(far)
        far //= 2
    return kept[::-1]


def _axes(
    figure: Figure, lines: Mapping[str, Curve], looks: Mapping[str, Mapping[str, Any]]
) -> Any:
    axes = figure.add_subplot()
    axes.set_yscale("log")
    values = [max(value, FLOOR) for curve in lines.values() for _, value in curve]
    low, high = min(*values, VANISHED_GRADIENT), max(*values, 1.0)
    axes.set_ylim(low / 2, high * 2)
    axes.axhspan(low / 2, VANISHED_GRADIENT, color=ACCENT, alpha=0.08, lw=0)
    axes.text(
        0.01, low / 1.7, "too weak to learn from", transform=axes.get_yaxis_transform(),
        va="bottom", color=MUTED, size=8,
    )  # fmt: skip
    for name, curve in lines.items():
        x, y = [x for x, _ in curve], [max(y, FLOOR) for _, y in curve]
        axes.plot(x, y, marker="." if len(x) == 1 else None, **looks[name])
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    _names(figure, axes, lines, looks)
    return axes


def _names(
    figure: Figure, axes: Any, lines: Mapping[str, Curve], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write each name right of its line's end, moved up or down until none covers another."""
    ends = {name: (curve[-1][0], max(curve[-1][1], FLOOR)) for name, curve in lines.items()}
    order = sorted(ends, key=lambda name: ends[name][1])
    gap = 15 / (72 * figure.get_figheight() * 0.8)  # of a line of text, in heights of the axes
    places = spaced([_height(axes, ends[name][1]) for name in order], gap)
    for name, place in zip(order, places, strict=True):
        axes.annotate(
            name,
            ends[name],
            xytext=(1.035, place),
            textcoords="axes fraction",
            va="center",
            color=looks[name]["color"],
            size=9.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.5, "relpos": (0, 0.5)},
        )


def _height(axes: Any, value: float) -> float:
    """Where a value lies between the bottom (0) and the top (1) of the axes."""
    return float(axes.transAxes.inverted().transform(axes.transData.transform((0, value)))[1])


def spaced(wanted: Sequence[float], gap: float) -> list[float]:
    """Rising heights moved as little as it takes to stand `gap` apart, inside 0 … 1 if they fit."""
    gap = min(gap, 1 / max(len(wanted) - 1, 1))
    out: list[float] = []
    for height in wanted:
        out.append(max(height, out[-1] + gap) if out else max(height, 0.0))
    top = 1.0
    for i in reversed(range(len(out))):
        out[i] = min(out[i], top)
        top = out[i] - gap
    return out
