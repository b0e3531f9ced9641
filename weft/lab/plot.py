"""Plots of measurements: every seed is shown, the mean on top."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from weft.lab.experiment import Experiment, Means, Measurements, Point
from weft.report.charts.plots import INK, MUTED, SERIES, STYLE, to_svg

MARKERS = "osD^vP*Xhd"  # of series, so that they differ without colour too
MAX_LEGEND_NAME = 16  # characters of a series before the legend has fewer columns
FEW_DECADES = 100  # greatest by least value, up to which 2 and 5 of each decade are labelled too
MAX_NAME = 12  # characters of a category before its label is turned


def plot_experiment(experiment: Experiment, runs: Sequence[Measurements]) -> str:
    """Plot all seeds of an experiment as an SVG element: lines over numbers, dots over names."""
    with matplotlib.rc_context({**STYLE, "font.size": 10}):
        figure = Figure(figsize=(6.6, 3.5), layout="constrained")
        axes = figure.add_subplot()
        if is_numeric(runs[0]):
            _draw_lines(axes, runs)
            _scale_x(axes, experiment, runs[0])
        else:
            _draw_dots(axes, runs)
        _scale_y(axes, experiment)
        axes.set_xlabel(experiment.x)
        axes.set_ylabel(experiment.y)
        if len(runs[0]) > 1:
            columns = 4 if max(map(len, runs[0])) <= MAX_LEGEND_NAME else 3
            figure.legend(loc="outside upper left", ncols=columns, frameon=False)
        return to_svg(figure, f"lab-{experiment.name}")


def is_numeric(measurements: Measurements) -> bool:
    """Return True if the points of the x axis are numbers."""
    return all(not isinstance(x, str) for points in measurements.values() for x in points)


def series_points(measurements: Measurements) -> list[Point]:
    """Return every point of the x axis once, in order: numbers ascending, names as measured."""
    points = list(dict.fromkeys(x for series in measurements.values() for x in series))
    return sorted(points) if is_numeric(measurements) else points  # type: ignore[type-var]


def _draw_lines(axes: Axes, runs: Sequence[Measurements]) -> None:
    means = Means(runs)
    for i, name in enumerate(runs[0]):
        colour, marker = SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]
        points = list(runs[0][name])
        for run in runs:
            axes.plot(points, list(run[name].values()), color=colour, lw=0.8, alpha=0.35)
        middle = [means(name, x) for x in points]
        axes.plot(points, middle, color=colour, marker=marker, ms=5, lw=2, label=name)


def _draw_dots(axes: Axes, runs: Sequence[Measurements]) -> None:
    means, places = Means(runs), series_points(runs[0])
    width = 0.7 / len(runs[0])
    for i, name in enumerate(runs[0]):
        alone = len(runs[0]) == 1
        colour, marker = (INK if alone else SERIES[i % len(SERIES)]), MARKERS[i % len(MARKERS)]
        offset = (i - (len(runs[0]) - 1) / 2) * width
        for point in runs[0][name]:
            x = places.index(point) + offset
            spread = [x + width * 0.5 * ((k + 0.5) / len(runs) - 0.5) for k in range(len(runs))]
            values = [run[name][point] for run in runs]
            axes.plot(spread, values, marker, color=colour, ms=4.5, alpha=0.55, mew=0)
            mean = means(name, point)
            axes.plot([x - width * 0.38, x + width * 0.38], [mean] * 2, color=colour, lw=2.2)
        axes.plot([], [], marker=marker, color=colour, lw=2.2, label=name)
    names = [str(place) for place in places]
    axes.set_xticks(range(len(places)), names)
    if max(map(len, names)) > MAX_NAME and len(names) > 3:
        axes.tick_params(axis="x", labelrotation=18)
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.grid(False, axis="x")


def _scale_x(axes: Axes, experiment: Experiment, measurements: Measurements) -> None:
    points = [float(x) for x in series_points(measurements)]
    if experiment.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    if len(points) <= 9:  # each is a setting that was run: name it
        axes.set_xticks(points)
        axes.set_xticks([], minor=True)


def _scale_y(axes: Axes, experiment: Experiment) -> None:
    low, high = experiment.limits
    if experiment.log_y:
        axes.set_yscale("log")
        bottom, top = axes.get_ylim()
        if top / bottom <= FEW_DECADES:
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        else:
            axes.yaxis.set_major_locator(LogLocator(numticks=7))
        axes.yaxis.set_minor_formatter(NullFormatter())
        return
    if (low, high) == (0, 1):
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        axes.axhline(1, color=MUTED, lw=0.5)
    axes.yaxis.set_major_locator(MaxNLocator(6))
