"""The report as one HTML file that opens anywhere, offline."""

import datetime
import os
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from weft.report import charts, html
from weft.report.facts import Facts
from weft.report.latency import SINGLE, TOGETHER, WARM_UP
from weft.report.leaderboard import Row, Verdict, ordered, verdict
from weft.report.trial import Result, Trial
from weft.report.words import PERCENT

LABELS = 30  # shown; how many more there are is said
CURVES = 10  # of one recipe
BAR = 120  # width of an error bar in the table


@dataclass(frozen=True)
class Page:
    """Everything the report tells."""

    rows: Sequence[Row]
    finished: Sequence[tuple[Trial, Result]]
    facts: Facts
    command: Sequence[str]
    seeds: int
    output: Path


def render(page: Page) -> str:
    """The whole page; everything that came from the user is escaped by the template."""
    rows = ordered(page.rows)
    found = verdict(rows)
    metric = next((row.metric for row in rows if row.metric), "quality")
    return html.render(
        "page.html",
        rows=rows,
        bars=_bars(rows),
        verdict=found,
        metric=metric,
        unit=" %" if metric in PERCENT else "",
        scatter=Markup(charts.scatter(rows, found)) if found else "",
        panels=_panels(rows, page.finished, metric),
        facts=page.facts,
        labels=_labels(page.facts),
        notes=_notes(page),
        seeds=page.seeds,
        trials=len(page.finished),
        folds=max((row.folds for row in rows), default=0),
        texts={"warm": WARM_UP, "single": SINGLE, "together": TOGETHER},
        command=shlex.join(page.command),
        use=_use(page, found),
        versions=_versions(page.finished),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _bars(rows: Sequence[Row]) -> list[dict[str, float] | None]:
    """Where on a common scale each row's interval, spread and mean lie."""
    ends = [end for row in rows for end in _ends(row)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    reach = (high - low) or 1.0

    def at(value: float) -> float:
        return round(4 + (BAR - 8) * (value - low) / reach, 1)

    out: list[dict[str, float] | None] = []
    for row in rows:
        if row.quality is None or row.low is None or row.high is None:
            out.append(None)
            continue
        spread = row.spread or 0.0
        out.append(
            {
                "low": at(row.low),
                "high": at(row.high),
                "from": at(row.quality - spread),
                "to": at(row.quality + spread),
                "mean": at(row.quality),
            }
        )
    return out


def _ends(row: Row) -> list[float]:
    if row.quality is None or row.low is None or row.high is None:
        return []
    spread = row.spread or 0.0
    return [row.low, row.high, row.quality - spread, row.quality + spread]


def _panels(
    rows: Sequence[Row], finished: Sequence[tuple[Trial, Result]], metric: str
) -> list[tuple[str, Markup]]:
    """One small chart a recipe that has epochs, in the order of the leaderboard."""
    known: dict[str, list[charts.Curve]] = {}
    for trial, _ in finished:
        if curve := trial.curve(metric):
            known.setdefault(trial.recipe, []).append(curve)
    out = []
    for row in rows:
        if row.recipe in known:
            others = [found[0] for recipe, found in known.items() if recipe != row.recipe]
            chart = charts.curves(row.recipe, known[row.recipe][:CURVES], others, metric)
            out.append((row.recipe, Markup(chart)))
    return out


def _labels(facts: Facts) -> dict[str, Any]:
    shown = list(facts.labels.items())[:LABELS]
    most = max((sum(counts.values()) for _, counts in shown), default=1)
    return {
        "rows": [
            (name, [counts.get(split, 0) for split in facts.rows], sum(counts.values()) / most)
            for name, counts in shown
        ],
        "more": len(facts.labels) - len(shown),
    }


def _notes(page: Page) -> list[tuple[str, str]]:
    """(what was cut or left out, by which recipes); nothing is lost in silence."""
    told: dict[str, dict[str, None]] = {}
    for trial, result in page.finished:
        for note in result.notes:
            told.setdefault(note, {})[trial.recipe] = None
    return [(note, "") for note in page.facts.notes] + [
        (note, ", ".join(recipes)) for note, recipes in told.items()
    ]


def _use(page: Page, found: Verdict | None) -> str:
    if found is None:
        return ""
    folders = [trial.folder for trial, _ in page.finished if trial.recipe == found.choice.recipe]
    return shlex.join(["weft", "predict", str(folders[0] / "model"), "texts.txt"])


def _versions(finished: Sequence[tuple[Trial, Result]]) -> list[tuple[str, str]]:
    found: dict[str, dict[str, None]] = {}
    for _, result in finished:
        for name, version in result.versions.items():
            found.setdefault(name, {})[version] = None
    here = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    return [*((name, ", ".join(versions)) for name, versions in found.items()), ("machine", here)]
