"""The report of `weft compare` as one self-contained HTML file."""

import datetime
import math
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from weft.compare.dataset_stats import DatasetStats
from weft.compare.format import is_percent
from weft.compare.latency import BATCH_TEXTS, SINGLE_TEXTS, WARM_UP_TEXTS
from weft.compare.leaderboard import Recommendation, Row, describe_gain, recommend, sort_rows
from weft.compare.sentence_scores import (
    SPURIOUS_KINDS,
    UNITS,
    describe_metric,
    ratio_terms,
    score_sentence,
)
from weft.compare.trial import Result, Trial
from weft.report import html
from weft.report.analysis.confusion import build_matrix, most_confused_pairs
from weft.report.analysis.disagreements import Disagreement
from weft.report.analysis.generation_samples import GenerationSamples
from weft.report.analysis.model_analysis import ModelAnalysis
from weft.report.analysis.predictions import Prediction
from weft.report.analysis.projection import render_section
from weft.report.charts import histograms, layer_weights, plots

if TYPE_CHECKING:
    from weft.doctor import Diagnosis
    from weft.train.gradients.verdict import GradientHealth

MAX_LABELS = 500  # rows of a label table; the number of others is given
MAX_CURVES = 10  # per recipe
BAR_PIXELS = 120  # width of an error bar


@dataclass(frozen=True)
class ComparisonPage:
    """The contents of the report."""

    rows: Sequence[Row]
    finished: Sequence[tuple[Trial, Result]]
    stats: DatasetStats
    command: Sequence[str]
    seeds: int
    output: Path
    diagnosis: "Diagnosis | None" = None
    analysis: ModelAnalysis | None = None
    gradient_health: "Mapping[str, GradientHealth]" = field(default_factory=dict)
    model: str = ""  # path of the saved model, for the commands
    test: str = ""  # the test file, if any
    disagreements: Sequence[Disagreement] = ()
    samples: GenerationSamples | None = None  # for generation and language models


def render(page: ComparisonPage) -> str:
    """Render the whole page."""
    rows = sort_rows(page.rows)
    recommendation = recommend(rows)
    metric = next((row.metric for row in rows if row.metric), "quality")
    return html.render(
        "compare.html",
        rows=rows,
        bars=_error_bars(rows),
        recommendation=recommendation,
        metric=metric,
        lower=any(not row.higher_is_better for row in rows if row.metric),
        others=list(dict.fromkeys(name for row in rows for name in row.others)),
        samples=page.samples,
        unit=" %" if is_percent(metric) else "",
        describe_gain=_gain_tag,
        metric_description=describe_metric(metric, page.stats.kind),
        units=_unit_names(page.stats),
        describe_errors=_describe_errors,
        scatter=Markup(plots.plot_quality_vs_latency(rows, recommendation))
        if recommendation and plots.timed_rows(rows)
        else "",
        panels=_learning_curves(rows, page.finished, metric),
        charts=_prediction_charts(page.analysis),
        mixes=layer_weights.read_folders(_first_models(page.finished)),
        analysis=page.analysis,
        map=render_section(page.analysis.projection)
        if page.analysis and page.analysis.projection
        else "",
        disagreements=page.disagreements,
        gradient_health=page.gradient_health,
        gradient_chart=_plot_gradients(page.gradient_health),
        diagnosis=page.diagnosis,
        stats=page.stats,
        labels=_label_table(page.stats),
        data_charts=_data_charts(page),
        notes=_collect_notes(page),
        seeds=page.seeds,
        trials=len(page.finished),
        folds=max((row.folds for row in rows), default=0),
        texts={"warm": WARM_UP_TEXTS, "single": SINGLE_TEXTS, "together": BATCH_TEXTS},
        command=shlex.join(page.command),
        usage=_usage_commands(page, recommendation),
        versions=_collect_versions(page.finished),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _first_models(finished: Sequence[tuple[Trial, Result]]) -> list[tuple[str, Path]]:
    """Return the path of the first model of each recipe."""
    first: dict[str, Path] = {}
    for trial, _ in finished:
        first.setdefault(trial.recipe, trial.folder / "model")
    return list(first.items())


def _prediction_charts(analysis: ModelAnalysis | None) -> dict[str, object]:
    """Return tables and charts of one model's predictions; None if they do not apply."""
    names = (
        "classes",
        "matrix",
        "pairs",
        "reliability",
        "risk_coverage",
        "against",
        "residuals",
        "structure",
    )
    out: dict[str, object] = {**dict.fromkeys(names), "all": 0, "unit": "texts"}
    if analysis is None:
        return out
    predictions = analysis.predictions
    if predictions.kind == "numbers":
        against, residuals = (
            histograms.plot_predicted_vs_gold(predictions.pairs),
            histograms.plot_residuals(predictions.pairs),
        )
        return out | {"against": Markup(against), "residuals": Markup(residuals)}
    out |= {"classes": predictions.classes[:MAX_LABELS], "all": len(predictions.classes)}
    if predictions.kind in UNITS:
        total = sum(predictions.confusions.values())
        wrong = sum(n for (label, value), n in predictions.confusions.items() if label != value)
        unit, labels = UNITS[predictions.kind]
        out |= {"structure": predictions.kind, "unit": unit, "labels": labels}
        out |= {"counted": total, "wrong": wrong}
    if predictions.kind == "classes" or predictions.kind in UNITS:
        out |= {
            "matrix": build_matrix(predictions.confusions),
            "pairs": most_confused_pairs(predictions.confusions),
        }
    if predictions.calibration is not None:
        both = predictions.calibration, predictions.uncalibrated
        out |= {"reliability": Markup(histograms.plot_reliability(*both))}
    if predictions.curve is not None:
        out |= {"risk_coverage": Markup(histograms.plot_risk_coverage(predictions.curve))}
    return out


def _gain_tag(row: Row) -> str:
    """Return the gain of a row over another recipe, without its name."""
    return describe_gain(row).removeprefix(f"{row.recipe}: ").rstrip(".")


def _describe_errors(prediction: Prediction) -> str:
    """Describe the errors in a sentence."""
    predicted, gold = prediction.structures
    if predicted.kind == "answer":
        return f"F1 {100 * ratio_terms(predicted, gold)[0]:.0f} %"
    counts = score_sentence(predicted, gold)
    unit = UNITS[predicted.kind][0]
    if predicted.kind in SPURIOUS_KINDS:
        summary = f"{len(counts.correct)} of {len(counts.gold)} {unit} found"
        extra = len(counts.predicted) - len(counts.correct)
        return f"{summary}, {extra} spurious" if extra else summary
    return f"{len(counts.gold) - len(counts.correct)} of {len(counts.gold)} {unit} wrong"


def _unit_names(facts: DatasetStats) -> dict[str, str]:
    """Return the words for a text and for its labels."""
    if facts.kind:
        text = "question" if facts.kind == "answer" else "sentence"
        return {"text": text, "labels": UNITS[facts.kind][1]}
    return {"text": "text", "labels": "labels"}


def _plot_gradients(healths: "Mapping[str, GradientHealth]") -> Markup:
    """Plot the gradient of each recipe over distance."""
    if not healths:
        return Markup("")
    from weft.report.charts.gradients import plot_by_distance

    return Markup(plot_by_distance(healths))


def _data_charts(page: ComparisonPage) -> list[tuple[str, Markup]]:
    """Return histograms of text lengths and of numeric labels."""
    out = []
    if page.diagnosis is not None and (counts := page.diagnosis.histogram.counts):
        edges = page.diagnosis.histogram.edges
        lengths = {
            split: (edges, lengths_by_split)
            for split, lengths_by_split in counts.items()
            if sum(lengths_by_split)
        }
        if lengths:
            chart = histograms.plot_distributions(lengths, "words", doubling=True)
            what = "sentences" if page.stats.kind else "texts"
            what = "questions with their passages" if page.stats.kind == "answer" else what
            out.append((f"Length of {what}", Markup(chart)))
    if page.diagnosis is not None and (targets := page.diagnosis.targets):
        edges = targets.histogram.edges
        lengths_by_split = {s: (edges, n) for s, n in targets.histogram.counts.items() if sum(n)}
        if lengths_by_split:
            chart = histograms.plot_distributions(lengths_by_split, "target words", doubling=True)
            out.append(("Length of targets", Markup(chart)))
    if page.stats.numeric and (numbers := _number_histograms(page.stats)):
        out.append(("Gold numbers", Markup(histograms.plot_distributions(numbers, "number"))))
    return out


def _number_histograms(facts: DatasetStats) -> dict[str, histograms.Histogram]:
    """Return histograms of numeric labels, with the same bins in every split."""
    by_value = {float(name): counts for name, counts in facts.labels.items() if _is_number(name)}
    if not by_value:
        return {}
    values = np.array(list(by_value))
    out: dict[str, histograms.Histogram] = {}
    for split in facts.rows:
        weights = [counts.get(split, 0) for counts in by_value.values()]
        range_ = (values.min(), values.max())
        counts, edges = np.histogram(values, histograms.N_BINS, range_, weights=weights)
        out[split] = (edges.tolist(), counts.tolist())
    return out


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _error_bars(rows: Sequence[Row]) -> list[dict[str, float] | None]:
    """Return each row's interval, deviation and mean on a common scale."""
    ranked = [row for row in rows if _ends(row)]
    kept, _ = plots.range_without_outliers([row.quality or 0.0 for row in ranked])
    if any(not row.higher_is_better for row in ranked):
        kept = float("-inf")
    ends = [end for row in ranked if (row.quality or 0.0) >= kept for end in _ends(row)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    reach = (high - low) or 1.0

    def at(value: float) -> float:
        """Return the position of a value, clipped to the range."""
        return round(4 + (BAR_PIXELS - 8) * min(max((value - low) / reach, 0.0), 1.0), 1)

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


def _learning_curves(
    rows: Sequence[Row], finished: Sequence[tuple[Trial, Result]], metric: str
) -> list[tuple[str, Markup]]:
    """Plot one small chart per recipe with epochs, in leaderboard order."""
    by_recipe: dict[str, list[plots.Curve]] = {}
    for trial, _ in finished:
        if curve := trial.curve(metric):
            by_recipe.setdefault(trial.recipe, []).append(curve)
    values = [
        value
        for recipe_curves in by_recipe.values()
        for curve in recipe_curves
        for _, value in curve
    ]
    limits = (min(values), max(values)) if values else None
    out = []
    for row in rows:
        if row.recipe in by_recipe:
            others = [
                recipe_curves[0]
                for recipe, recipe_curves in by_recipe.items()
                if recipe != row.recipe
            ]
            shown = by_recipe[row.recipe][:MAX_CURVES]
            out.append(
                (
                    row.recipe,
                    Markup(plots.plot_learning_curves(row.recipe, shown, others, metric, limits)),
                )
            )
    return out


def _label_table(facts: DatasetStats) -> dict[str, object]:
    shown = list(facts.labels.items())[:MAX_LABELS]
    most = max((sum(counts.values()) for _, counts in shown), default=1)
    return {
        "rows": [
            (name, [counts.get(split, 0) for split in facts.rows], sum(counts.values()) / most)
            for name, counts in shown
        ],
        "more": len(facts.labels) - len(shown),
    }


def _collect_notes(page: ComparisonPage) -> list[tuple[str, str]]:
    """Return (note, recipes): everything that was truncated, skipped or left out."""
    by_note: dict[str, dict[str, None]] = {}
    for trial, result in page.finished:
        for note in result.notes:
            by_note.setdefault(note, {})[trial.recipe] = None
    analysis_notes = page.analysis.notes if page.analysis else ()
    return [(note, "") for note in (*page.stats.notes, *analysis_notes)] + [
        (note, ", ".join(recipes)) for note, recipes in by_note.items()
    ]


def _usage_commands(
    page: ComparisonPage, recommendation: Recommendation | None
) -> list[tuple[str, str]]:
    """Return (purpose, command) for the recommended model."""
    if recommendation is None:
        return []
    folders = [
        trial.folder for trial, _ in page.finished if trial.recipe == recommendation.choice.recipe
    ]
    model = page.model or (str(folders[0] / "model") if folders else "")
    if not model:
        return []
    commands = [("predict", ["weft", "predict", model, "texts.txt"])]
    if page.test:
        commands.append(("evaluate", ["weft", "evaluate", model, page.test]))
    commands.append(("explain", ["weft", "explain", model, "texts.txt", "-o", "why.html"]))
    return [(what, shlex.join(command)) for what, command in commands]


def _collect_versions(finished: Sequence[tuple[Trial, Result]]) -> list[tuple[str, str]]:
    by_package: dict[str, dict[str, None]] = {}
    for _, result in finished:
        for name, version in result.versions.items():
            by_package.setdefault(name, {})[version] = None
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    return [
        *((name, ", ".join(versions)) for name, versions in by_package.items()),
        ("machine", machine),
    ]
