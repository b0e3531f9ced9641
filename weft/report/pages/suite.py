"""The report of `weft suite` as one self-contained HTML file."""

import datetime
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from weft import config as configuration
from weft import registry
from weft.compare.suite import Score, System, average_scores, reduce_error
from weft.config import Sections
from weft.report import html
from weft.report.charts.suite import plot_scores
from weft.run.train import versions


@dataclass(frozen=True)
class SuitePage:
    """The results of a suite: scores by system, in the order of the tasks."""

    systems: Sequence[System]
    scores: Mapping[str, Sequence[Score]]
    command: Sequence[str]
    seeds: int
    output: Path


def render(page: SuitePage) -> str:
    """Render the whole page."""
    averages = [average_scores(page.scores[system.name]) for system in page.systems]
    rows = list(zip(*(page.scores[system.name] for system in page.systems), strict=True))
    return html.render(
        "suite.html",
        page=page,
        rows=rows,
        averages=averages,
        gains=[_gain([score.mean for score in row]) for row in rows],
        average_gain=_gain([one.mean for one in averages]),
        chart=Markup(plot_scores(page.systems, page.scores)),
        failed=[score for row in rows for score in row if score.error],
        collapsed=[score for row in rows for score in row if score.collapsed],
        seconds=sum(score.seconds for row in rows for score in row),
        command=shlex.join(page.command),
        versions=list(versions().items()),
        made=datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
    )


def _gain(means: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the absolute gain over the baseline and the relative error reduction."""
    if len(means) < 2 or means[0] is None or means[1] is None:
        return None
    return means[1] - means[0], 100 * reduce_error(means[0], means[1])


def build_command(
    folder: str | Path, output: Path, options: Mapping[str, object], changes: Sections
) -> list[str]:
    """Return the command line that reproduces the suite; empty options are omitted."""
    words = ["weft", "suite", str(folder), "-o", str(output)]
    for option, value in options.items():
        text = ",".join(value) if isinstance(value, (list, tuple)) else str(value)
        words += [option, text] if text else []
    for key, value in changes.items():
        words += ["--set", f"{key}={configuration.to_toml(value)}"]
    trusted = registry.trusted_packages()
    return words + [word for package in trusted for word in ("--trust", package)]
