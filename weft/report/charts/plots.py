"""Charts as inline SVG whose colours are the page's own, so that they follow light and dark."""

import dataclasses
import io
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from weft.compare import format
from weft.compare.format import called, percent
from weft.compare.leaderboard import Row, Verdict
from weft.report.charts.label_placement import GAP, Labels

# Drawn in colours nobody uses, which become the page's variables in the written SVG.
INK, MUTED, LINE, ACCENT, PAPER = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "accent", PAPER: "paper"}
STYLE: Any = {
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
POINTS = 200  # of a curve; more cannot be told apart
LARGEST, LEAST = 20.0, 4.0  # radius of the largest model's point, and the smallest radius

Curve = Sequence[tuple[float, float]]


def scatter(rows: Sequence[Row], verdict: Verdict) -> str:
    """Quality against latency, a point a recipe whose area is the model's size on disk.

    The band is the margin of the best; the line joins the models that no other beats in both. An
    outlier is a triangle at the edge, with its value, so that the others can be told apart.
    """
    able, outliers = _without_outliers(drawable(rows))
    scale = 100 if percent(verdict.best.metric) else 1
    radii = _radii([row.size_bytes or 0 for row in able])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.8), layout="constrained")
        axes = figure.add_subplot()
        best = (verdict.best.quality or 0.0) * scale
        sign = 1 if verdict.best.higher_is_better else -1
        axes.axhspan(best - sign * verdict.margin * scale, best, color=ACCENT, alpha=0.12, lw=0)
        stairs = _stairs(able, scale)
        axes.plot(*zip(*stairs, strict=True), color=MUTED, lw=1.1, ls=(0, (4, 3)))
        for row, radius in zip(able, radii, strict=True):
            x, y = row.p50_ms or 0.0, (row.quality or 0.0) * scale
            chosen = row.recipe == verdict.choice.recipe
            low, high = _bar(row)
            colour = ACCENT if chosen else INK
            axes.plot([x, x], [low * scale, high * scale], color=colour, lw=1.2, alpha=0.55)
            disc = axes.plot([x], [y], "o", color=colour, ms=2 * radius, alpha=0.28, mew=0)
            disc[0].set_clip_on(False)  # whole, also at the very top
            axes.plot([x], [y], "v" if row.recipe in outliers else "o", color=colour, ms=4.5)
        _latency_axis(axes, [row.p50_ms or 0.0 for row in able])
        axes.margins(0.14, 0.14)
        if scale == 100 and axes.get_ylim()[1] > 100:
            axes.set_ylim(top=101.5)  # room for a point at the very top, but no tick above it
        axes.set_ylabel(_metric(verdict.best.metric))
        if not _logarithmic(axes, verdict.best.metric):
            axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        _labels(figure, axes, able, radii, stairs, verdict.choice, scale)
        return svg(figure, "scatter")


def drawable(rows: Sequence[Row]) -> list[Row]:
    """Return the ranked rows that have a point: those that were timed."""
    return [r for r in rows if r.status == "ranked" and None not in (r.quality, r.p50_ms)]


def bulk(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the values without outliers, of which there are a quarter at most.

    The lowest are outliers where the others together take less than a quarter of the whole range.
    """
    known = sorted(values)
    for dropped in range(1, len(known) // 4 + 1):
        low, high = known[dropped], known[-1]
        if high - low < (high - known[0]) / 4:
            return low, high
    return (known[0], known[-1]) if known else (0.0, 1.0)


def _without_outliers(rows: Sequence[Row]) -> tuple[list[Row], set[str]]:
    """Move rows far below the others to the edge, their value behind their name; and their names.

    Of perplexities, where lower is better, the axis is logarithmic, and nothing is moved.
    """
    if not all(row.higher_is_better for row in rows):
        return list(rows), set()
    low, high = bulk([row.quality or 0.0 for row in rows])
    edge = low - 0.15 * (high - low)
    out = []
    for row in rows:
        quality, (least, most) = row.quality or 0.0, _bar(row)
        if quality < low:
            named = f"{row.recipe} {format.figure(quality, row.metric)} ↓"
            row = dataclasses.replace(row, recipe=named, quality=edge, spread=0.0)
        elif least < edge:
            row = dataclasses.replace(row, spread=None, low=max(least, edge), high=most)
        out.append(row)
    return out, {row.recipe for row in out if row.recipe.endswith(" ↓")}


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front, fastest first: nothing is as fast and better, or as good and faster."""
    out: list[Row] = []
    for row in sorted(rows, key=lambda r: (r.p50_ms or 0.0, -_goodness(r))):
        if not out or _goodness(row) > _goodness(out[-1]):
            out.append(row)
    return out


def curves(
    recipe: str,
    own: Sequence[Curve],
    others: Sequence[Curve],
    metric: str,
    limits: tuple[float, float] | None = None,
) -> str:
    """The dev metric of one recipe's trainings over epochs, with the other recipes in grey.

    The band reaches from the worst training to the best, the thick line is their mean.
    """
    scale = 100 if percent(metric) else 1
    with matplotlib.rc_context({**STYLE, "font.size": 9}):
        figure = Figure(figsize=(2.9, 1.75), layout="constrained")
        axes = figure.add_subplot()
        alone = len(own) == 1
        for curve, colour, width, alpha in (
            *((curve, MUTED, 1.0, 0.35) for curve in others),
            *((curve, ACCENT, 1.7 if alone else 0.7, 1.0 if alone else 0.6) for curve in own),
        ):
            kept = curve[:: -(-len(curve) // POINTS)]
            marker = "." if len(kept) == 1 else None
            x, y = [x for x, _ in kept], [y * scale for _, y in kept]
            axes.plot(x, y, color=colour, lw=width, alpha=alpha, marker=marker)
        if not alone:
            grid, low, mean, high = spread(own)
            axes.fill_between(grid, low * scale, high * scale, color=ACCENT, alpha=0.16, lw=0)
            axes.plot(grid, mean * scale, color=ACCENT, lw=1.8)
        if limits is not None:
            room = 0.06 * (limits[1] - limits[0]) or 0.05
            axes.set_ylim((limits[0] - room) * scale, (limits[1] + room) * scale)
            if "perplexity" in metric:
                axes.set_ylim(0.94 * limits[0], 1.06 * limits[1])
        axes.grid(False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        if not _logarithmic(axes, metric):
            axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel("epochs")
        return svg(figure, f"curve-{recipe}")


def spread(own: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Epochs, and the lowest, mean and highest of the trainings there, while all of them last."""
    end = min(curve[-1][0] for curve in own)
    begin = max(curve[0][0] for curve in own)
    grid = np.unique([x for curve in own for x, _ in curve if begin <= x <= end] or [end])
    grid = grid[:: -(-len(grid) // POINTS)]
    values = np.array([np.interp(grid, *np.transpose(curve)) for curve in own])
    return grid, values.min(0), values.mean(0), values.max(0)


def svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element to stand in a page: no references outside, ids of its own."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)  # type: ignore[arg-type]
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


def _stairs(rows: Sequence[Row], scale: float) -> list[tuple[float, float]]:
    """The front as a line: to the right until a slower model is better, then to that one."""
    corners: list[tuple[float, float]] = []
    for row in front(rows):
        x, y = row.p50_ms or 0.0, (row.quality or 0.0) * scale
        corners += [(x, corners[-1][1])] if corners else []
        corners.append((x, y))
    return corners


def _radii(sizes: Sequence[int]) -> list[float]:
    """Radius of each point: areas are as the sizes, but the smallest can still be seen."""
    largest = max(sizes, default=0) or 1
    return [max(LEAST, LARGEST * (size / largest) ** 0.5) for size in sizes]


def _bar(row: Row) -> tuple[float, float]:
    """From where to where the error bar goes: the spread over trials, or one trial's interval."""
    middle = row.quality or 0.0
    if row.spread is not None:
        return middle - row.spread, middle + row.spread
    return (middle if row.low is None else row.low), (middle if row.high is None else row.high)


def _metric(name: str) -> str:
    return f"{called(name)} (%)" if percent(name) else called(name)


def _logarithmic(axes: Any, metric: str) -> bool:
    """Perplexities on a scale where equal steps are equal factors; whether this is one."""
    low, high = axes.get_ylim()
    if "perplexity" not in metric or low <= 0 or high < 5 * low:
        return False
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return True


def _latency_axis(axes: Any, values: Sequence[float]) -> None:
    axes.set_xlabel("milliseconds for one text (p50)")
    if min(values) > 0 and max(values) > 5 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _labels(
    figure: Any,
    axes: Any,
    rows: Sequence[Row],
    radii: Sequence[float],
    stairs: Curve,
    choice: Row,
    scale: float,
) -> None:
    """Write each name beside its point, in the nearest place where nothing else stands."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # decides where the axes are
    figure.set_layout_engine("none")  # and there they stay
    renderer, frame = canvas.get_renderer(), axes.get_window_extent().extents
    points = [
        axes.transData.transform((row.p50_ms or 0.0, (row.quality or 0.0) * scale)) for row in rows
    ]
    dots = 100 / 72  # pixels of the renderer in a point
    around = [radius * dots for radius in radii]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, around, strict=True)]
    for row, (x, _) in zip(rows, points, strict=True):
        low, high = (axes.transData.transform((1, end * scale))[1] for end in _bar(row))
        taken.append((x - 1, low, x + 1, high))
    corners = axes.transData.transform(np.array(stairs))
    for (x0, y0), (x1, y1) in pairwise(corners):
        taken.append((x0 - 1, min(y0, y1) - 1, x1 + 1, max(y0, y1) + 1))
    labels = Labels(tuple(frame), taken)
    for row, (x, y), r in zip(rows, points, around, strict=True):
        bold = "bold" if row.recipe == choice.recipe else "normal"
        colour = ACCENT if row.recipe == choice.recipe else INK
        text = figure.text(0, 0, row.recipe, weight=bold, size=9.5)
        box = text.get_window_extent(renderer)
        text.remove()
        found = labels.place(x, y, r, box.width, box.height)
        # A point without its name says nothing: where all is full it is written all the same.
        dx, dy = found or (r + GAP, -box.height / 2)
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
