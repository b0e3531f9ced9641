"""Charts of a hyperparameter search: history, single hyperparameters, curves, restarts."""

from collections.abc import Callable, Sequence
from typing import Any  # for the keyword arguments of matplotlib

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from weft.compare.format import is_percent, metric_name
from weft.report.charts.plots import ACCENT, INK, MUTED, PAPER, STYLE, to_svg
from weft.tune.restart import Restart
from weft.tune.search import TuneResult
from weft.tune.space import Dimension, Range
from weft.tune.study import TrialRecord

MAX_CURVES = 60  # drawn; more are indistinguishable
MAX_LETTERS = 11  # of a choice, to fit under a small chart


def plot_history(tuned: TuneResult) -> str:
    """Plot every trial in the order of start, and the best value so far as a line."""
    scale = _scale(tuned.metric)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        axes = figure.add_subplot()
        _draw_trials(axes, tuned, lambda row: row.number)
        numbers: list[int] = []
        best: list[TrialRecord] = []
        for row in tuned.rows:
            if row.state != "complete" or row.value is None:
                continue
            better = min([row, *(best[-1:])], key=tuned.plan.rank)
            numbers.append(row.number)
            best.append(better)
        ends = [*numbers, len(tuned.rows)]
        heights = [(row.value or 0.0) * scale for row in [*best, best[-1]]]
        axes.step(ends, heights, where="post", color=ACCENT, lw=1.4)
        failed = [row.number for row in tuned.rows if row.state in ("failed", "killed")]
        if failed:
            floor = axes.get_ylim()[0]
            axes.plot(failed, [floor] * len(failed), "x", color=MUTED, ms=6)
        axes.set_xlabel("trial")
        axes.set_ylabel(_axis_title(tuned.metric))
        axes.set_xlim(0.4, max(2, len(tuned.rows)) + 0.6)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        return to_svg(figure, "history")


def plot_setting(tuned: TuneResult, dimension: Dimension, number: int) -> str:
    """Plot the metric against one hyperparameter, over all values of the others."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.9, 2.0), layout="constrained")
        axes = figure.add_subplot()
        if isinstance(dimension, Range):
            if dimension.log:
                _set_log_axis(axes, dimension)
            else:
                axes.xaxis.set_major_locator(MaxNLocator(5, integer=dimension.whole))
            _draw_trials(axes, tuned, lambda row: row.settings[dimension.key])
        else:
            names = [_truncate(value) for value in dimension.values]
            _draw_trials(
                axes, tuned, lambda row: dimension.values.index(row.settings[dimension.key])
            )
            wide = max(map(len, names)) * len(names) > 26
            axes.set_xticks(range(len(names)), names, rotation=30 if wide else 0)
            if wide:
                for label in axes.get_xticklabels():
                    label.set_horizontalalignment("right")
            axes.set_xlim(-0.6, len(names) - 0.4)
            axes.grid(False, axis="x")
        axes.yaxis.set_major_locator(MaxNLocator(4))
        return to_svg(figure, f"slice-{number}")


def plot_learning_curves(tuned: TuneResult) -> str:
    """Plot the dev metric over evaluations: pruned trials pale, the best one in colour."""
    scale = _scale(tuned.metric)
    rows = [row for row in tuned.rows if row.curve and row.over]
    if not rows:
        return ""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        axes = figure.add_subplot()
        order = {"pruned": 0, "failed": 0, "complete": 1}
        chosen = sorted(rows, key=lambda row: order[row.state])[-MAX_CURVES:]
        for row in [
            *(r for r in chosen if r != tuned.best),
            *(r for r in rows if r == tuned.best),
        ]:
            style: dict[str, Any] = {"color": INK, "lw": 1.1, "alpha": 0.65}
            if row.state != "complete":
                style = {"color": MUTED, "lw": 1.0, "alpha": 0.35}
            if row == tuned.best:
                style = {"color": ACCENT, "lw": 1.8}
            x, y = [at for at, _ in row.curve], [value * scale for _, value in row.curve]
            axes.plot(x, y, marker="." if len(x) == 1 else None, **style)
            if row.state == "pruned":
                axes.plot(x[-1:], y[-1:], "x", color=MUTED, ms=5, alpha=0.7)
        axes.set_xlabel("evaluation")
        axes.set_ylabel(_axis_title(tuned.metric))
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        return to_svg(figure, "curves")


def plot_restarts(tuned: TuneResult) -> str:
    """Plot one point per restart, with the mean ± one standard deviation of its group."""
    restarts = tuned.restarts
    if restarts is None:
        return ""
    scale = _scale(tuned.metric)
    groups: list[tuple[str, Sequence[Restart]]] = [("tuned", restarts.tuned)]
    if restarts.start:
        groups.append(("original", restarts.start))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 0.9 + 0.6 * len(groups)), layout="constrained")
        axes = figure.add_subplot()
        for height, (_, group) in enumerate(reversed(groups)):
            colour = ACCENT if group is restarts.tuned else INK
            spread = restarts.spread(
                "tuned" if group is restarts.tuned else "start", restarts.split
            )
            if spread is not None:
                low, high = spread.mean - spread.deviation, spread.mean + spread.deviation
                axes.plot([low * scale, high * scale], [height] * 2, color=colour, lw=9, alpha=0.16)
                ends = [height - 0.2, height + 0.2]
                axes.plot([spread.mean * scale] * 2, ends, color=colour, lw=1.6)
            for restart in group:
                value = restart.value(restarts.split)
                if value is not None:
                    shape = "x" if restart.collapsed else "o"
                    style: dict[str, Any] = {}
                    if not restart.collapsed:
                        style = {"mec": PAPER, "mew": 0.8}
                    axes.plot([value * scale], [height], shape, color=colour, ms=7, **style)
        axes.set_yticks(range(len(groups)), [name for name, _ in reversed(groups)])
        axes.set_ylim(-0.5, len(groups) - 0.5)
        axes.grid(False, axis="y")
        axes.margins(x=0.08)
        axes.xaxis.set_major_locator(MaxNLocator(8))
        axes.set_xlabel(f"{_axis_title(tuned.metric)} on {restarts.split}")
        return to_svg(figure, "strip")


def _draw_trials(axes: Axes, tuned: TuneResult, x_of: Callable[[TrialRecord], float]) -> None:
    """Draw complete trials filled, pruned ones hollow, the best in colour."""
    scale = _scale(tuned.metric)

    def draw(rows: Sequence[TrialRecord], **style: Any) -> None:
        x = [x_of(row) for row in rows]
        axes.plot(x, [(row.value or 0.0) * scale for row in rows], "o", **style)

    shown = [row for row in tuned.rows if row.value is not None and row.settings]
    draw([r for r in shown if r.state == "pruned"], mfc="none", mec=MUTED, ms=4.5, alpha=0.8)
    done = [r for r in shown if r.state == "complete" and r.number != tuned.best.number]
    draw(done, color=INK, mec=PAPER, mew=0.6, ms=5.5)
    draw([r for r in shown if r.number == tuned.best.number], color=ACCENT, ms=7.5)


def _set_log_axis(axes: Axes, dimension: Range) -> None:
    axes.set_xscale("log")
    many = dimension.high / dimension.low > 50
    axes.xaxis.set_major_locator(LogLocator(numticks=5) if many else LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(dimension.low / 1.15, dimension.high * 1.15)


def _truncate(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"


def _scale(metric: str) -> int:
    return 100 if is_percent(metric) else 1


def _axis_title(metric: str) -> str:
    return f"{metric_name(metric)} (%)" if is_percent(metric) else metric_name(metric)
