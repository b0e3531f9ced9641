"""The report as one HTML file that opens anywhere, offline."""

import datetime
import math
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from weft.compare.dataset_stats import Facts
from weft.compare.format import percent
from weft.compare.latency import SINGLE, TOGETHER, WARM_UP
from weft.compare.leaderboard import Row, Verdict, ordered, verdict
from weft.compare.sentence_scores import UNITS, judged, meaning, share
from weft.compare.trial import Result, Trial
from weft.report import html
from weft.report.analysis.confusion import matrix, pairs
from weft.report.analysis.disagreements import Dispute
from weft.report.analysis.generation_samples import Written
from weft.report.analysis.model_analysis import Look
from weft.report.analysis.predictions import Said
from weft.report.analysis.projection import section
from weft.report.charts import histograms, layer_weights, plots

if TYPE_CHECKING:
    from weft.doctor import Diagnosis
    from weft.train.gradient_diagnostics import GradientHealth

LABELS = 500  # rows of a table of labels; how many more there are is said
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
    diagnosis: "Diagnosis | None" = None
    look: Look | None = None
    healths: "Mapping[str, GradientHealth]" = field(default_factory=dict)
    model: str = ""  # path of the saved model, for the commands
    test: str = ""  # the file it was measured on, where there is one
    disputes: Sequence[Dispute] = ()
    written: Written | None = None  # where answers are texts


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
        lower=any(not row.higher_is_better for row in rows if row.metric),
        others=list(dict.fromkeys(name for row in rows for name in row.others)),
        written=page.written,
        unit=" %" if percent(metric) else "",
        meaning=meaning(metric, page.facts.kind),
        one=_one(page.facts),
        judged=_judged,
        scatter=Markup(plots.scatter(rows, found)) if found and plots.drawable(rows) else "",
        panels=_panels(rows, page.finished, metric),
        answers=_answers(page.look),
        mixes=layer_weights.of_folders(_models(page.finished)),
        look=page.look,
        map=section(page.look.projection) if page.look and page.look.projection else "",
        disputes=page.disputes,
        healths=page.healths,
        health=_health(page.healths),
        diagnosis=page.diagnosis,
        facts=page.facts,
        labels=_labels(page.facts),
        pictures=_pictures(page),
        notes=_notes(page),
        seeds=page.seeds,
        trials=len(page.finished),
        folds=max((row.folds for row in rows), default=0),
        texts={"warm": WARM_UP, "single": SINGLE, "together": TOGETHER},
        command=shlex.join(page.command),
        uses=_uses(page, found),
        versions=_versions(page.finished),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _models(finished: Sequence[tuple[Trial, Result]]) -> list[tuple[str, Path]]:
    """The first model of each recipe, and where it lies."""
    first: dict[str, Path] = {}
    for trial, _ in finished:
        first.setdefault(trial.recipe, trial.folder / "model")
    return list(first.items())


def _answers(look: Look | None) -> dict[str, Any]:
    """Tables and charts of one model's answers; None for what its kind of answer has not."""
    names = ("classes", "matrix", "pairs", "reliability", "against", "residuals", "structure")
    out: dict[str, Any] = {**dict.fromkeys(names), "all": 0, "unit": "texts"}
    if look is None:
        return out
    found = look.answers
    if found.kind == "numbers":
        against, residuals = histograms.against(found.pairs), histograms.residuals(found.pairs)
        return out | {"against": Markup(against), "residuals": Markup(residuals)}
    out |= {"classes": found.classes[:LABELS], "all": len(found.classes)}
    if found.kind in UNITS:
        total = sum(found.cells.values())
        wrong = sum(n for (label, value), n in found.cells.items() if label != value)
        unit, labels = UNITS[found.kind]
        out |= {"structure": found.kind, "unit": unit, "labels": labels}
        out |= {"counted": total, "wrong": wrong}
    if found.kind == "classes" or found.kind in UNITS:
        out |= {"matrix": matrix(found.cells), "pairs": pairs(found.cells)}
    if found.calibration is not None:
        out |= {"reliability": Markup(histograms.reliability(found.calibration))}
    return out


def _judged(said: Said) -> str:
    """How much of a sentence is right, in words."""
    if said.value.kind == "answer":
        return f"F1 {100 * share(said.value, said.label)[0]:.0f} %"
    found = judged(said.value, said.label)
    unit = UNITS[said.value.kind][0]
    if said.value.kind in ("spans", "constituents"):
        told = f"{len(found.right)} of {len(found.true)} {unit} found"
        extra = len(found.said) - len(found.right)
        return f"{told}, {extra} more said" if extra else told
    return f"{len(found.true) - len(found.right)} of {len(found.true)} {unit} wrong"


def _one(facts: Facts) -> dict[str, str]:
    """What the page calls a text and the labels in it."""
    if facts.kind:
        text = "question" if facts.kind == "answer" else "sentence"
        return {"text": text, "labels": UNITS[facts.kind][1]}
    return {"text": "text", "labels": "labels"}


def _health(healths: "Mapping[str, GradientHealth]") -> Markup:
    """The gradient of each recipe over distance."""
    if not healths:
        return Markup("")
    from weft.report.charts.gradients import panel

    return Markup(panel(healths))


def _pictures(page: Page) -> list[tuple[str, Markup]]:
    """Histograms of the data: how long texts are, and how large numbers."""
    out = []
    if page.diagnosis is not None and (counts := page.diagnosis.histogram.counts):
        edges = page.diagnosis.histogram.edges
        lengths = {split: (edges, found) for split, found in counts.items() if sum(found)}
        if lengths:
            chart = histograms.shares(lengths, "words", doubling=True)
            what = "sentences" if page.facts.kind else "texts"
            what = "questions with their passages" if page.facts.kind == "answer" else what
            out.append((f"How long the {what} are", Markup(chart)))
    if page.diagnosis is not None and (targets := page.diagnosis.targets):
        edges = targets.histogram.edges
        found = {s: (edges, n) for s, n in targets.histogram.counts.items() if sum(n)}
        if found:
            chart = histograms.shares(found, "words of the target", doubling=True)
            out.append(("How long the targets are", Markup(chart)))
    if page.facts.numeric and (numbers := _numbers(page.facts)):
        out.append(("The numbers to be found", Markup(histograms.shares(numbers, "number"))))
    return out


def _numbers(facts: Facts) -> dict[str, histograms.Histogram]:
    """The labels as numbers, counted over the same ranges in every split."""
    known = {float(name): counts for name, counts in facts.labels.items() if _is_number(name)}
    if not known:
        return {}
    values = np.array(list(known))
    out: dict[str, histograms.Histogram] = {}
    for split in facts.rows:
        weights = [counts.get(split, 0) for counts in known.values()]
        range_ = (values.min(), values.max())
        counts, edges = np.histogram(values, histograms.COLUMNS, range_, weights=weights)
        out[split] = (edges.tolist(), counts.tolist())
    return out


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _bars(rows: Sequence[Row]) -> list[dict[str, float] | None]:
    """Where on a common scale each row's interval, spread and mean lie."""
    ranked = [row for row in rows if _ends(row)]
    kept, _ = plots.bulk([row.quality or 0.0 for row in ranked])
    if any(not row.higher_is_better for row in ranked):
        kept = float("-inf")
    ends = [end for row in ranked if (row.quality or 0.0) >= kept for end in _ends(row)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    reach = (high - low) or 1.0

    def at(value: float) -> float:
        """The place of a value; what lies outside the others' range stands at its end."""
        return round(4 + (BAR - 8) * min(max((value - low) / reach, 0.0), 1.0), 1)

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
                "outlier": row.quality < low,
            }
        )
    return out


def _ends(row: Row) -> list[float]:
    if row.status != "ranked" or row.quality is None or row.low is None or row.high is None:
        return []
    spread = row.spread or 0.0
    return [row.low, row.high, row.quality - spread, row.quality + spread]


def _panels(
    rows: Sequence[Row], finished: Sequence[tuple[Trial, Result]], metric: str
) -> list[tuple[str, Markup]]:
    """One small chart a recipe that has epochs, in the order of the leaderboard."""
    known: dict[str, list[plots.Curve]] = {}
    for trial, _ in finished:
        if curve := trial.curve(metric):
            known.setdefault(trial.recipe, []).append(curve)
    seen = [value for found in known.values() for curve in found for _, value in curve]
    limits = (min(seen), max(seen)) if seen else None
    out = []
    for row in rows:
        if row.recipe in known:
            others = [found[0] for recipe, found in known.items() if recipe != row.recipe]
            own = known[row.recipe][:CURVES]
            out.append((row.recipe, Markup(plots.curves(row.recipe, own, others, metric, limits))))
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
    own = page.look.notes if page.look else ()
    return [(note, "") for note in (*page.facts.notes, *own)] + [
        (note, ", ".join(recipes)) for note, recipes in told.items()
    ]


def _uses(page: Page, found: Verdict | None) -> list[tuple[str, str]]:
    """(what for, command) with the model that is named."""
    if found is None:
        return []
    folders = [trial.folder for trial, _ in page.finished if trial.recipe == found.choice.recipe]
    model = page.model or (str(folders[0] / "model") if folders else "")
    if not model:
        return []
    commands = [("answer texts", ["weft", "predict", model, "texts.txt"])]
    if page.test:
        commands.append(("measure again", ["weft", "evaluate", model, page.test]))
    commands.append(("ask why", ["weft", "explain", model, "texts.txt", "-o", "why.html"]))
    return [(what, shlex.join(command)) for what, command in commands]


def _versions(finished: Sequence[tuple[Trial, Result]]) -> list[tuple[str, str]]:
    found: dict[str, dict[str, None]] = {}
    for _, result in finished:
        for name, version in result.versions.items():
            found.setdefault(name, {})[version] = None
    here = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    return [*((name, ", ".join(versions)) for name, versions in found.items()), ("machine", here)]
