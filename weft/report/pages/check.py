"""The page of `weft check`: the findings of the data check."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from weft import __version__
from weft.doctor import Diagnosis
from weft.doctor.finding import Histogram, SentenceSketch
from weft.report import html
from weft.report.charts.plots import ACCENT, INK, STYLE, to_svg
from weft.report.drawings import dependency_svg, tagged_text

MAX_LABELS = 80  # shown; the number of others is given


def render_page(diagnosis: Diagnosis, max_words: int) -> str:
    """Render the whole page."""
    name = ", ".join(Path(path).name for path in diagnosis.files.values()) or "data"
    return html.render(
        "check.html",
        name=name,
        diagnosis=diagnosis,
        sentence=summarise(diagnosis),
        max_words=max_words,
        names=_label_tables(diagnosis),
        drawings=draw_sketches(diagnosis),
        chart=_plot_lengths(diagnosis.histogram, max_words, "text"),
        targets=_plot_lengths(diagnosis.targets.histogram, max_words, "target")
        if diagnosis.targets
        else "",
        version=__version__,
    )


def summarise(diagnosis: Diagnosis) -> str:
    """Summarise the findings in a sentence."""
    counts = Counter(finding.level for finding in diagnosis.findings)
    if not counts:
        return "No problems found."
    counted = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    worst = diagnosis.findings[0].title
    listed = counted[0] if len(counted) == 1 else f"{', '.join(counted[:-1])} and {counted[-1]}"
    return f"{listed}. {worst}"


def draw_sketches(diagnosis: Diagnosis) -> dict[str, Markup]:
    """Draw the sentences of findings, by their place."""
    return {
        place.where: _draw(place.sketch)
        for finding in diagnosis.findings
        for place in finding.places
        if place.sketch is not None
    }


def _draw(sketch: SentenceSketch) -> Markup:
    if sketch.heads:
        return dependency_svg.draw_dependencies(sketch.words, sketch.heads, sketch.relations)
    return tagged_text.draw_tags(sketch.words, sketch.tags, sketch.right)


def _label_tables(diagnosis: Diagnosis) -> list[dict[str, object]]:
    """Return tables of labels, tags, relations and types with their counts per split."""
    tables = ({"labels": diagnosis.labels} if diagnosis.labels else {}) | diagnosis.layers
    return [_label_table(kind, counted, diagnosis.rows) for kind, counted in tables.items()]


def _label_table(
    kind: str, counted: Mapping[str, Mapping[str, int]], splits: Iterable[str]
) -> dict[str, object]:
    shown = list(counted.items())[:MAX_LABELS]
    most = max((sum(counts.values()) for _, counts in shown), default=1)
    return {
        "kind": kind,
        "rows": [
            (name, [counts.get(split, 0) for split in splits], sum(counts.values()) / most)
            for name, counts in shown
        ],
        "all": len(counted),
    }


def _plot_lengths(histogram: Histogram, max_words: int, unit: str) -> Markup:
    """Plot the distribution of text lengths in words, one line per split."""
    edges, counts = histogram.edges, histogram.counts
    if not edges:
        return Markup("")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.6), layout="constrained")
        axes = figure.add_subplot()
        styles = ("-", "--", ":", "-.")
        for number, (split, row) in enumerate(counts.items()):
            total = sum(row) or 1
            # Bins differ in width, so percentages are drawn by height, not by area.
            percentages = [100 * n / total for n in row]
            colour = ACCENT if number == 0 else INK
            axes.stairs(
                percentages, edges, color=colour, lw=1.5, ls=styles[number % 4], label=split
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if max_words <= edges[-1]:
            axes.axvline(max_words, color=INK, lw=0.8, alpha=0.6)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"words per {unit}")
        axes.set_ylabel(f"% of {unit}s")
        if len(counts) > 1:
            axes.legend(frameon=False, fontsize=9)
        return Markup(to_svg(figure, f"lengths-{unit}"))
