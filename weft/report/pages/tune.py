"""The result of a hyperparameter search as text, table and page."""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from weft.compare.format import (
    format_duration,
    format_metric,
    format_p_value,
    is_percent,
    metric_name,
)
from weft.config import to_toml
from weft.metrics.bootstrap import Spread
from weft.report import html
from weft.report.charts import tune as charts
from weft.run.train import versions
from weft.storage import write_text
from weft.terminal import Terminal
from weft.tune.restart import Restart, Restarts, Which
from weft.tune.search import TuneResult
from weft.tune.study import TrialRecord

MAX_TABLE_ROWS = 10  # in the terminal
SIGNIFICANCE_LEVEL = 0.05  # p-value below which a difference counts


def describe_progress(news: TrialRecord | Restart | str, metric: str) -> str:
    """Return the progress line of a trial or restart; text is passed through."""
    if isinstance(news, str):
        return news
    if isinstance(news, Restart):
        name = f"{'tuned' if news.which == 'tuned' else 'original'}, seed {news.seed}"
        if news.error:
            return f"{name}: failed: {news.error}"
        parts = [("dev", news.dev), ("test", news.test)]
        fields = [
            f"{split} {metric_name(metric)} {format_metric(v, metric)}"
            for split, v in parts
            if v is not None
        ]
        return f"{name}: {', '.join(fields)}, {format_duration(news.seconds)}"
    fields = [f"trial {news.number}: {news.state}"]
    if news.value is not None:
        fields.append(f"{metric_name(metric)} {format_metric(news.value, metric)}")
    fields.append(format_settings(news.settings))
    if news.state == "failed":
        fields.append(news.reason)
    return "  ".join(fields)


def format_settings(values: dict[str, object]) -> str:
    return "  ".join(f"{key}={format_value(value)}" for key, value in values.items())


def format_value(value: object) -> str:
    """Format the value of a hyperparameter."""
    return f"{value:.3g}" if isinstance(value, float) else to_toml(value).strip('"')


def summarise(tuned: TuneResult) -> str:
    """Summarise the gain of the search and its significance."""
    metric, restarts = tuned.metric, tuned.restarts
    best = format_metric(tuned.best.value, metric)
    trials = f"{_best_trial(tuned)} reaches {metric_name(metric)} {best} on dev"
    if restarts is None:
        return f"{trials}; without restarts it is unknown how much of that is luck."
    tuned_spread = restarts.spread("tuned", restarts.split)
    if tuned_spread is None:
        return f"{trials}, but none of its restarts could be trained."
    seeds = "1 new seed" if tuned_spread.n == 1 else f"{tuned_spread.n} new seeds"
    over = f"{metric_name(metric)} on {restarts.split} over {seeds}"
    original_spread = restarts.spread("start", restarts.split)
    if original_spread is None or restarts.p is None:
        return f"{_best_trial(tuned)} has {_mean_and_deviation(tuned_spread, metric)} ({over})."
    gain = (
        tuned_spread.mean - original_spread.mean
        if tuned.plan.higher_is_better
        else original_spread.mean - tuned_spread.mean
    )
    if restarts.p >= SIGNIFICANCE_LEVEL:
        verdict = "not significant"
    else:
        verdict = (
            "a significant gain"
            if gain > 0
            else "a significant loss: keep the original configuration"
        )
    caveat = (
        " The search optimised dev: expect a smaller gain elsewhere."
        if restarts.split == "dev"
        else ""
    )
    return (
        f"Tuned {_mean_and_deviation(tuned_spread, metric)}, "
        f"original {_mean_and_deviation(original_spread, metric)} ({over}): "
        f"{verdict} (paired p {_format_p(restarts.p)} on {restarts.n:,} texts).{caveat}"
    )


def describe_changes(tuned: TuneResult) -> str:
    """Describe how the best configuration differs from the original one."""
    if not tuned.changes:
        return "The original configuration was the best trial."
    changed = [
        f"{key} {format_value(after)} (was {format_value(before)})"
        for key, (before, after) in tuned.changes.items()
    ]
    listed = " and ".join([", ".join(changed[:-1]), changed[-1]] if len(changed) > 1 else changed)
    return f"{_best_trial(tuned)} has {listed}."


def build_notes(tuned: TuneResult) -> list[str]:
    """Return notes on failed and collapsed restarts."""
    restarts = tuned.restarts
    out = []
    for restart in (*restarts.tuned, *restarts.start) if restarts else ():
        name = f"{'Tuned' if restart.which == 'tuned' else 'Original'}, seed {restart.seed}"
        if restart.error:
            out.append(f"{name} failed: {restart.error}")
        elif restart.collapsed:
            out.append(f"{name} collapsed: {restart.collapsed}.")
    return out + (_describe_collapses(restarts, tuned.metric) if restarts else [])


def _describe_collapses(restarts: Restarts, metric: str) -> list[str]:
    """Describe the collapsed restarts of each configuration, and the mean without them."""
    out = []
    groups: tuple[tuple[Which, str], ...] = (("tuned", "Tuned"), ("start", "Original"))
    for which, name in groups:
        collapsed = restarts.collapses(which)
        both = [restarts.spread(which, restarts.split, kept) for kept in (True, False)]
        if collapsed:
            overall, remaining = (
                "no value" if s is None else _mean_and_deviation(s, metric) for s in both
            )
            means = f"{overall} with them, {remaining} without"
            out.append(f"{name}: {collapsed}; {metric_name(metric)} on {restarts.split} {means}.")
    return out


def print_table(tuned: TuneResult) -> None:
    """Print the best trials, then the summary."""
    console = Terminal()
    rows = Table(box=None, pad_edge=False, header_style="bold")
    unit = " %" if is_percent(tuned.metric) else ""
    names = [dimension.key.replace(".", "\n") for dimension in tuned.plan.dimensions]
    for name in ("trial", f"dev\n{metric_name(tuned.metric)}{unit}", *names):
        rows.add_column(name, justify="left" if name == "trial" else "right", overflow="fold")
    for row in tuned.best_first()[:MAX_TABLE_ROWS]:
        values = [format_value(row.settings[d.key]) for d in tuned.plan.dimensions]
        rows.add_row(str(row.number), format_metric(row.value, tuned.metric), *values)
    console.print(rows)
    for words in (describe_changes(tuned), summarise(tuned)):
        console.print(Text(words))
    for note in build_notes(tuned):
        console.print(Text(note))


def write(tuned: TuneResult, command: Sequence[str]) -> Path:
    """Write tune.html next to the study, and return its path."""
    path = tuned.folder / "tune.html"
    write_text(path, render_page(tuned, command))
    return path


def render_page(tuned: TuneResult, command: Sequence[str]) -> str:
    """Render the whole page."""
    slices = [
        (dimension.key, Markup(charts.plot_setting(tuned, dimension, i)))
        for i, dimension in enumerate(tuned.plan.dimensions)
    ]
    counts = {
        state: sum(row.state == state for row in tuned.rows)
        for state in ("complete", "pruned", "failed", "killed")
    }
    most = max(tuned.importance.values(), default=1.0) or 1.0
    return html.render(
        "tune.html",
        tuned=tuned,
        metric=tuned.metric,
        unit=" %" if is_percent(tuned.metric) else "",
        sentence=summarise(tuned),
        changes=describe_changes(tuned),
        notes=build_notes(tuned),
        counts=counts,
        history=Markup(charts.plot_history(tuned)),
        slices=slices,
        curves=Markup(charts.plot_learning_curves(tuned)),
        strip=Markup(charts.plot_restarts(tuned)),
        groups=_restart_groups(tuned),
        importance=[(key, fraction, fraction / most) for key, fraction in tuned.importance.items()],
        rows=[*tuned.best_first(), *(row for row in tuned.rows if row.state != "complete")],
        failures=[row for row in tuned.rows if row.state in ("failed", "killed")],
        format_value=format_value,
        data=[(k, v) for k in ("train", "dev", "test") if (v := tuned.plan.base["data"].get(k))],
        commands=_commands(tuned, command),
        versions=[*versions().items()],
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _restart_groups(tuned: TuneResult) -> list[dict[str, object]]:
    """Return the restarts as tables of the page."""
    restarts = tuned.restarts
    if restarts is None:
        return []
    groups = [("tuned", restarts.tuned)] + (
        [("original", restarts.start)] if restarts.start else []
    )
    splits = ["dev", "test"] if restarts.split == "test" else ["dev"]
    return [
        {
            "name": name,
            "spreads": [
                (split, restarts.spread("tuned" if name == "tuned" else "start", split))
                for split in splits
            ],
            "restarts": [(r, [(split, r.value(split)) for split in splits]) for r in group],
        }
        for name, group in groups
    ]


def _commands(tuned: TuneResult, command: Sequence[str]) -> list[tuple[str, str]]:
    folder = tuned.folder
    best = ["weft", "train", str(folder / "best.toml"), "-o", "RUN"]
    use = ["weft", "predict", str(folder / "model"), "texts.txt"]
    return [
        ("Repeat or continue the search", shlex.join(command)),
        ("Train the best configuration", shlex.join(best)),
        ("Predict with the best restart on dev", shlex.join(use)),
    ]


def _best_trial(tuned: TuneResult) -> str:
    done = sum(row.over for row in tuned.rows)
    return f"The best of {done} trials" if done > 1 else "The only trial"


def _mean_and_deviation(spread: Spread, metric: str) -> str:
    mean = format_metric(spread.mean, metric)
    return f"{mean} ± {format_metric(spread.deviation, metric)}" if spread.n > 1 else mean


def _format_p(p: float) -> str:
    text = format_p_value(p)
    return text if text.startswith("<") else f"= {text}"
