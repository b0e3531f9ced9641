"""The data doctor's findings as a page of their own."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from weft import __version__
from weft.doctor import Diagnosis
from weft.doctor.finding import Histogram, SentenceSketch
from weft.report import html
from weft.report.charts.plots import ACCENT, INK, STYLE, svg
from weft.report.drawings import dependency_svg, tagged_text

LABELS = 80  # shown; how many more there are is said


def page(diagnosis: Diagnosis, limit: int) -> str:
    """The whole page; everything that came from the user is escaped by the template."""
    name = ", ".join(Path(path).name for path in diagnosis.files.values()) or "data"
    return html.render(
        "check.html",
        name=name,
        diagnosis=diagnosis,
        sentence=sentence(diagnosis),
        limit=limit,
        names=_names(diagnosis),
        drawings={
            place.where: _drawn(place.sketch)
            for finding in diagnosis.findings
            for place in finding.places
            if place.sketch is not None
        },
        chart=_lengths(diagnosis.histogram, limit, "text"),
        targets=_lengths(diagnosis.targets.histogram, limit, "target") if diagnosis.targets else "",
        version=__version__,
    )


def sentence(diagnosis: Diagnosis) -> str:
    """The state of the data in words."""
    counts = Counter(finding.level for finding in diagnosis.findings)
    if not counts:
        return "Nothing to complain about."
    told = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    worst = diagnosis.findings[0].title
    listed = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
    return f"{listed}. {worst}"


def _drawn(sketch: SentenceSketch) -> Markup:
    if sketch.heads:
        return dependency_svg.dependencies(sketch.words, sketch.heads, sketch.relations)
    return tagged_text.tags(sketch.words, sketch.tags, sketch.right)


def _names(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Labels, and tags, relations and types, with their counts in each split as bars."""
    tables = ({"labels": diagnosis.labels} if diagnosis.labels else {}) | diagnosis.layers
    return [_table(kind, counted, diagnosis.rows) for kind, counted in tables.items()]


def _table(
    kind: str, counted: Mapping[str, Mapping[str, int]], splits: Iterable[str]
) -> dict[str, Any]:
    shown = list(counted.items())[:LABELS]
    most = max((sum(counts.values()) for _, counts in shown), default=1)
    return {
        "kind": kind,
        "rows": [
            (name, [counts.get(split, 0) for split in splits], sum(counts.values()) / most)
            for name, counts in shown
        ],
        "all": len(counted),
    }


def _lengths(histogram: Histogram, limit: int, what: str) -> Markup:
    """The share of texts by their number of words, a line a split."""
    edges, counts = histogram.edges, histogram.counts
    if not edges:
        return Markup("")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.6), layout="constrained")
        axes = figure.add_subplot()
        styles = ("-", "--", ":", "-.")
        for number, (split, row) in enumerate(counts.items()):
            total = sum(row) or 1
            # A bin is as wide as its edges say, so shares are drawn by height, not by area.
            shares = [100 * n / total for n in row]
            colour = ACCENT if number == 0 else INK
            axes.stairs(shares, edges, color=colour, lw=1.5, ls=styles[number % 4], label=split)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if limit <= edges[-1]:
            axes.axvline(limit, color=INK, lw=0.8, alpha=0.6)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"words a {what}")
        axes.set_ylabel(f"% of {what}s")
        if len(counts) > 1:
            axes.legend(frameon=False, fontsize=9)
        return Markup(svg(figure, f"lengths-{what}"))
