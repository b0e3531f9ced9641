"""The chart of a suite: the scores of every restart, by task and system."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure

from weft.compare.suite import Score, System
from weft.report.charts.plots import ACCENT, MUTED, STYLE, to_svg

MARKERS = ("o", "D")
OFFSETS = {1: (0.0,), 2: (0.13, -0.13)}  # of the systems from the line of their task


def plot_scores(systems: Sequence[System], scores: Mapping[str, Sequence[Score]]) -> str:
    """Plot one line per task: a dot per restart and a bar at the mean of each system."""
    tasks = [score.task for score in scores[systems[0].name]]
    colours = (ACCENT,) if len(systems) == 1 else (MUTED, ACCENT)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 1.0 + 0.34 * len(tasks)), layout="constrained")
        axes = figure.add_subplot()
        for system, colour, marker, offset in zip(
            systems, colours, MARKERS, OFFSETS[len(systems)], strict=False
        ):
            for position, score in enumerate(scores[system.name]):
                height = len(tasks) - 1 - position + offset
                axes.plot(
                    score.values, [height] * len(score.values), marker, color=colour, ms=4,
                    alpha=0.75, label=system.name if position == 0 else None,
                )  # fmt: skip
                if score.mean is not None:
                    axes.plot([score.mean] * 2, [height - 0.12, height + 0.12], color=colour, lw=2)
        axes.set_yticks(range(len(tasks)), tasks[::-1])
        axes.set_ylim(-0.6, len(tasks) - 0.4)
        axes.set_xlabel("score, 0 to 100")
        axes.grid(axis="x", alpha=0.3)
        if len(systems) > 1:
            axes.legend(loc="best", frameon=False)
        return to_svg(figure, "scores")
