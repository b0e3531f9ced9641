"""The page of the lab: one card per claim, offline, with the reader's guess before the verdict."""

import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from weft.errors import UserError
from weft.lab.catalogue import THEMES
from weft.lab.experiment import Experiment, Finding, Means, Verdict
from weft.lab.plot import is_numeric, plot_experiment, series_points
from weft.lab.run import Trial
from weft.report.html import render, save

PAGE = "lab.html"
MAX_PAGE_BYTES = 8_000_000


@dataclass(frozen=True)
class Card:
    """One claim on the page."""

    experiment: Experiment
    verdict: Verdict
    chart: Markup
    grid: str  # JSON for the slider; empty if the points are no numbers
    seeds: tuple[int, ...]
    cpu_seconds: float


def write_page(trials: Sequence[Trial], folder: Path) -> Path:
    """Write lab.html into a folder."""
    cards = [_card(trial) for trial in trials if trial.verdict is not None]
    themes = [
        (key, title, [card for card in cards if card.experiment.theme == key])
        for key, title in THEMES.items()
    ]
    page = render(
        "lab.html",
        themes=[theme for theme in themes if theme[2]],
        cards=cards,
        outcomes=Counter(card.verdict.outcome for card in cards),
        failed=[trial for trial in trials if trial.verdict is None],
        cpu_seconds=sum(card.cpu_seconds for card in cards),
        runs=sum(len(card.seeds) for card in cards),
        versions=_versions(),
        describe=describe_finding,
    )
    if len(page.encode()) > MAX_PAGE_BYTES:
        raise UserError(
            f"The page would have {len(page.encode()):,} bytes; at most {MAX_PAGE_BYTES:,} open "
            "well on a phone. Run fewer experiments into one folder."
        )
    save(folder / PAGE, page)
    return folder / PAGE


def describe_finding(finding: Finding) -> str:
    """Return an estimate in numbers, with the sign that the condition shows."""
    estimate, turned = finding.estimate, finding.condition.quantity.terms[0][0] < 0
    mean, low, high = estimate.mean, estimate.low, estimate.high
    if turned:
        mean, low, high = -mean, -high, -low
    p = "p < 0.001" if estimate.p < 0.001 else f"p = {estimate.p:.3f}"
    return f"{mean + 0.0:.3g} [{low + 0.0:.3g}, {high + 0.0:.3g}], {p}"


def _card(trial: Trial) -> Card:
    assert trial.verdict is not None
    runs = [run.measurements for run in trial.runs]
    grid = ""
    if is_numeric(runs[0]):
        means = Means(runs)
        grid = json.dumps(
            {
                "points": series_points(runs[0]),
                "series": {
                    name: {
                        f"{x:g}": [means(name, x), *(run[name][x] for run in runs)]
                        for x in points
                        if not isinstance(x, str)
                    }
                    for name, points in runs[0].items()
                },
            }
        )
    return Card(
        trial.experiment,
        trial.verdict,
        Markup(plot_experiment(trial.experiment, runs)),
        grid,
        tuple(run.seed for run in trial.runs),
        sum(run.cpu_seconds for run in trial.runs),
    )


def _versions() -> list[tuple[str, str]]:
    import torch

    from weft import __version__

    return [
        ("weft", __version__),
        ("torch", torch.__version__),
        ("python", platform.python_version()),
    ]
