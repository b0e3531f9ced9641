"""Charts as inline SVG in the colours of the page, so that they follow light and dark mode."""

import dataclasses
import io
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from weft.compare import format
from weft.compare.format import is_percent, metric_name
from weft.compare.leaderboard import Recommendation, Row
from weft.report.charts.label_placement import GAP, LabelPlacer

# Placeholder colours, replaced by the page's CSS variables in the SVG.
INK, MUTED, LINE, ACCENT, PAPER = "#010101", "#020202", "#030303", "#040404", "#050505"
SERIES = tuple(f"#0a0a{i:02x}" for i in range(10))  # of lines that a legend names
VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "accent", PAPER: "paper"} | {
    colour: f"c{i}" for i, colour in enumerate(SERIES)
}
STYLE: Any = {  # matplotlib's stubs want every key as a literal
    "svg.fonttype": "none",  # text stays text: small, selectable, in the page's font
    "svg.hashsalt": "weft",  # same chart, same bytes
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "savefig.transparent": True,
}
MAX_POINTS = 200  # of a curve; more are indistinguishable
MAX_RADIUS, MIN_RADIUS = 20.0, 4.0  # of a point, by model size

Curve = Sequence[tuple[float, float]]


def plot_quality_vs_latency(rows: Sequence[Row], recommendation: Recommendation) -> str:
    """Plot quality against latency, one point per recipe with an area proportional to model size.

    The band is the margin of the best; the line is the Pareto front. An outlier is a triangle at
    the edge, labelled with its value, so that the others stay distinguishable.
    """
    shown, outliers = _clip_outliers(timed_rows(rows))
    scale = 100 if is_percent(recommendation.best.metric) else 1
    radii = _radii([row.size_bytes or 0 for row in shown])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.8), layout="constrained")
        axes = figure.add_subplot()
        best = (recommendation.best.quality or 0.0) * scale
        sign = 1 if recommendation.best.higher_is_better else -1
        axes.axhspan(
            best - sign * recommendation.margin * scale, best, color=ACCENT, alpha=0.12, lw=0
        )
        front = _front_line(shown, scale)
        axes.plot(*zip(*front, strict=True), color=MUTED, lw=1.1, ls=(0, (4, 3)))
        for row, radius in zip(shown, radii, strict=True):
            x, y = row.p50_ms or 0.0, (row.quality or 0.0) * scale
            chosen = row.recipe == recommendation.choice.recipe
            low, high = _error_bar(row)
            colour = ACCENT if chosen else INK
            axes.plot([x, x], [low * scale, high * scale], color=colour, lw=1.2, alpha=0.55)
            disc = axes.plot([x], [y], "o", color=colour, ms=2 * radius, alpha=0.28, mew=0)
            disc[0].set_clip_on(False)  # also at the very top
            axes.plot([x], [y], "v" if row.recipe in outliers else "o", color=colour, ms=4.5)
        _latency_axis(axes, [row.p50_ms or 0.0 for row in shown])
        axes.margins(0.14, 0.14)
        if scale == 100 and axes.get_ylim()[1] > 100:
            axes.set_ylim(top=101.5)  # space for a point at the very top, but no tick above it
        axes.set_ylabel(_axis_title(recommendation.best.metric))
        if not _use_log_scale(axes, recommendation.best.metric):
            axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        _draw_labels(figure, axes, shown, radii, front, recommendation.choice, scale)
        return to_svg(figure, "scatter")


def timed_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the ranked rows that were timed."""
    return [r for r in rows if r.status == "ranked" and None not in (r.quality, r.p50_ms)]


def range_without_outliers(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the values without outliers, at most a quarter of the values.

    The lowest values are outliers if the others span less than a quarter of the whole range.
    """
    ordered = sorted(values)
    for dropped in range(1, len(ordered) // 4 + 1):
        low, high = ordered[dropped], ordered[-1]
        if high - low < (high - ordered[0]) / 4:
            return low, high
    return (ordered[0], ordered[-1]) if ordered else (0.0, 1.0)


def _clip_outliers(rows: Sequence[Row]) -> tuple[list[Row], set[str]]:
    """Move outliers to the edge, with their value in the name; return the rows and their names.

    Perplexities, where lower is better, have a logarithmic axis and are not moved.
    """
    if not all(row.higher_is_better for row in rows):
        return list(rows), set()
    low, high = range_without_outliers([row.quality or 0.0 for row in rows])
    edge = low - 0.15 * (high - low)
    out = []
    for row in rows:
        quality, (least, most) = row.quality or 0.0, _error_bar(row)
        if quality < low:
            named = f"{row.recipe} {format.format_metric(quality, row.metric)} ↓"
            row = dataclasses.replace(row, recipe=named, quality=edge, spread=0.0)
        elif least < edge:
            row = dataclasses.replace(row, spread=None, low=max(least, edge), high=most)
        out.append(row)
    return out, {row.recipe for row in out if row.recipe.endswith(" ↓")}


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """Return the Pareto front, fastest first: no row is at least as fast and as good."""
    out: list[Row] = []
    for row in sorted(rows, key=lambda r: (r.p50_ms or 0.0, -_goodness(r))):
        if not out or _goodness(row) > _goodness(out[-1]):
            out.append(row)
    return out


def plot_learning_curves(
    recipe: str,
    recipe_curves: Sequence[Curve],
    others: Sequence[Curve],
    metric: str,
    limits: tuple[float, float] | None = None,
) -> str:
    """Plot the dev metric of one recipe's runs over epochs, with the other recipes in grey.

    The band reaches from the worst to the best run; the thick line is the mean.
    """
    scale = 100 if is_percent(metric) else 1
    with matplotlib.rc_context({**STYLE, "font.size": 9}):
        figure = Figure(figsize=(2.9, 1.75), layout="constrained")
        axes = figure.add_subplot()
        alone = len(recipe_curves) == 1
        for curve, colour, width, alpha in (
            *((curve, MUTED, 1.0, 0.35) for curve in others),
            *(
                (curve, ACCENT, 1.7 if alone else 0.7, 1.0 if alone else 0.6)
                for curve in recipe_curves
            ),
        ):
            kept = curve[:: -(-len(curve) // MAX_POINTS)]
            marker = "." if len(kept) == 1 else None
            x, y = [x for x, _ in kept], [y * scale for _, y in kept]
            axes.plot(x, y, color=colour, lw=width, alpha=alpha, marker=marker)
        if not alone:
            grid, low, mean, high = curve_spread(recipe_curves)
            axes.fill_between(grid, low * scale, high * scale, color=ACCENT, alpha=0.16, lw=0)
            axes.plot(grid, mean * scale, color=ACCENT, lw=1.8)
        if limits is not None:
            margin = 0.06 * (limits[1] - limits[0]) or 0.05
            axes.set_ylim((limits[0] - margin) * scale, (limits[1] + margin) * scale)
            if "perplexity" in metric:
                axes.set_ylim(0.94 * limits[0], 1.06 * limits[1])
        axes.grid(False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        if not _use_log_scale(axes, metric):
            axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel("epochs")
        return to_svg(figure, f"curve-{recipe}")


def curve_spread(
    recipe_curves: Sequence[Curve],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return epochs, and the minimum, mean and maximum over runs, while all runs last."""
    end = min(curve[-1][0] for curve in recipe_curves)
    begin = max(curve[0][0] for curve in recipe_curves)
    grid = np.unique([x for curve in recipe_curves for x, _ in curve if begin <= x <= end] or [end])
    grid = grid[:: -(-len(grid) // MAX_POINTS)]
    values = np.array([np.interp(grid, *np.transpose(curve)) for curve in recipe_curves])
    return grid, values.min(0), values.mean(0), values.max(0)


def to_svg(figure: Figure, name: str) -> str:
    """Return the figure as an inline SVG element, self-contained, with unique ids."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    return text


def _goodness(row: Row) -> float:
    return (row.quality or 0.0) * (1 if row.higher_is_better else -1)


def _front_line(rows: Sequence[Row], scale: float) -> list[tuple[float, float]]:
    """Return the Pareto front as a step line."""
    corners: list[tuple[float, float]] = []
    for row in pareto_front(rows):
        x, y = row.p50_ms or 0.0, (row.quality or 0.0) * scale
        corners += [(x, corners[-1][1])] if corners else []
        corners.append((x, y))
    return corners


def _radii(sizes: Sequence[int]) -> list[float]:
    """Return radii for areas proportional to the sizes, with a visible minimum."""
    largest = max(sizes, default=0) or 1
    return [max(MIN_RADIUS, MAX_RADIUS * (size / largest) ** 0.5) for size in sizes]


def _error_bar(row: Row) -> tuple[float, float]:
    """Return the ends of the error bar: ± the deviation over trials, or one trial's interval."""
    middle = row.quality or 0.0
    if row.spread is not None:
        return middle - row.spread, middle + row.spread
    return (middle if row.low is None else row.low), (middle if row.high is None else row.high)


def _axis_title(name: str) -> str:
    return f"{metric_name(name)} (%)" if is_percent(name) else metric_name(name)


def _use_log_scale(axes: Axes, metric: str) -> bool:
    """Use a logarithmic axis for a wide range of perplexities; return True if so."""
    low, high = axes.get_ylim()
    if "perplexity" not in metric or low <= 0 or high < 5 * low:
        return False
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return True


def _latency_axis(axes: Axes, values: Sequence[float]) -> None:
    axes.set_xlabel("latency per text (ms, p50)")
    if min(values) > 0 and max(values) > 5 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_labels(
    figure: Figure,
    axes: Axes,
    rows: Sequence[Row],
    radii: Sequence[float],
    stairs: Curve,
    choice: Row,
    scale: float,
) -> None:
    """Label each point at the nearest free position."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # fixes the position of the axes
    figure.set_layout_engine("none")  # and keeps it
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]  # not in the stubs
    left, bottom, right, top = axes.get_window_extent().extents
    points = [
        axes.transData.transform((row.p50_ms or 0.0, (row.quality or 0.0) * scale)) for row in rows
    ]
    dots = 100 / 72  # pixels of the renderer in a point
    around = [radius * dots for radius in radii]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, around, strict=True)]
    for row, (x, _) in zip(rows, points, strict=True):
        low, high = (axes.transData.transform((1, end * scale))[1] for end in _error_bar(row))
        taken.append((x - 1, low, x + 1, high))
    corners = axes.transData.transform(np.array(stairs))
    for (x0, y0), (x1, y1) in pairwise(corners):
        taken.append((x0 - 1, min(y0, y1) - 1, x1 + 1, max(y0, y1) + 1))
    labels = LabelPlacer((left, bottom, right, top), taken)
    for row, (x, y), r in zip(rows, points, around, strict=True):
        bold = "bold" if row.recipe == choice.recipe else "normal"
        colour = ACCENT if row.recipe == choice.recipe else INK
        text = figure.text(0, 0, row.recipe, weight=bold, size=9.5)
        box = text.get_window_extent(renderer)
        text.remove()
        offset = labels.place(x, y, r, box.width, box.height)
        # A point without its name is useless: without free space, the name overlaps.
        dx, dy = offset or (r + GAP, -box.height / 2)
        far = abs(dy + box.height / 2) > r + 20
        axes.annotate(
            row.recipe,
            (row.p50_ms or 0.0, (row.quality or 0.0) * scale),
            xytext=(dx / dots, dy / dots),
            textcoords="offset points",
            va="bottom",
            color=colour,
            weight=bold,
            size=9.5,
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.6} if far else None,
        )
