"""What a search found, in words, as a table, and as a page."""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from weft.compare.format import called, chance, duration, figure, percent
from weft.config import to_toml
from weft.report import html
from weft.report.charts import tune as charts
from weft.run.train import versions
from weft.storage import write_text
from weft.terminal import Terminal
from weft.tune.restart import Restart, Restarts
from weft.tune.search import TuneResult
from weft.tune.study import TrialRecord

SHOWN = 10  # trials in the terminal's table
SURE = 0.05  # p below which a difference is called one


def line(news: TrialRecord | Restart | str, metric: str) -> str:
    """One trial, restart or line of text, for the person who waits."""
    if isinstance(news, str):
        return news
    if isinstance(news, Restart):
        name = f"{'tuned' if news.which == 'tuned' else 'as it came'}, seed {news.seed}"
        if news.error:
            return f"{name}: failed: {news.error}"
        parts = [("dev", news.dev), ("test", news.test)]
        told = [
            f"{split} {called(metric)} {figure(v, metric)}" for split, v in parts if v is not None
        ]
        return f"{name}: {', '.join(told)}, {duration(news.seconds)}"
    told = [f"trial {news.number}: {news.state}"]
    if news.value is not None:
        told.append(f"{called(metric)} {figure(news.value, metric)}")
    told.append(settings(news.settings))
    if news.state == "failed":
        told.append(news.reason)
    return "  ".join(told)


def settings(values: dict[str, Any]) -> str:
    return "  ".join(f"{key}={shown(value)}" for key, value in values.items())


def shown(value: Any) -> str:
    """A setting's value, short."""
    return f"{value:.3g}" if isinstance(value, float) else to_toml(value).strip('"')


def sentence(tuned: TuneResult) -> str:
    """What the search was good for, as far as one can be sure."""
    metric, found = tuned.metric, tuned.restarts
    trials = f"{_best(tuned)} reaches {called(metric)} {figure(tuned.best.value, metric)} on dev"
    if found is None:
        return f"{trials}; without restarts nobody knows how much of that is luck."
    mine = found.spread("tuned", found.split)
    if mine is None:
        return f"{trials}, but none of its restarts could be trained."
    over = (
        f"{called(metric)} on {found.split} over {mine.n} new {'seed' if mine.n == 1 else 'seeds'}"
    )
    theirs = found.spread("start", found.split)
    if theirs is None or found.p is None:
        return f"{_best(tuned)} has {_plus(mine, metric)} ({over})."
    gain = mine.mean - theirs.mean if tuned.plan.higher_is_better else theirs.mean - mine.mean
    if found.p >= SURE:
        verdict = "a difference that may be chance"
    else:
        verdict = "a real gain" if gain > 0 else "a real loss: keep the configuration as it came"
    seen = " The search chose on dev: expect less of it elsewhere." if found.split == "dev" else ""
    return (
        f"Tuned {_plus(mine, metric)} against {_plus(theirs, metric)} as it came ({over}): "
        f"{verdict} (paired p {_p(found.p)} on {found.n:,} texts).{seen}"
    )


def changes(tuned: TuneResult) -> str:
    """How the best configuration differs from the one it came from."""
    if not tuned.changes:
        return "The configuration as it came was the best of the trials."
    told = [
        f"{key} {shown(after)} (was {shown(before)})"
        for key, (before, after) in tuned.changes.items()
    ]
    listed = " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)
    return f"{_best(tuned)} has {listed}."


def remarks(tuned: TuneResult) -> list[str]:
    """What went wrong with restarts, each in a sentence."""
    found = tuned.restarts
    out = []
    for restart in (*found.tuned, *found.start) if found else ():
        name = f"{'Tuned' if restart.which == 'tuned' else 'As it came'}, seed {restart.seed}"
        if restart.error:
            out.append(f"{name} failed: {restart.error}")
        elif restart.collapsed:
            out.append(f"{name} has collapsed: {restart.collapsed}.")
    return out + (_with_and_without(found, tuned.metric) if found else [])


def _with_and_without(found: Restarts, metric: str) -> list[str]:
    """How many restarts of each configuration collapsed, and what that did to the mean."""
    out = []
    for which, name in (("tuned", "Tuned"), ("start", "As it came")):
        told = found.collapses(which)  # type: ignore[arg-type]
        both = [found.spread(which, found.split, kept) for kept in (True, False)]  # type: ignore[arg-type]
        if told:
            all_, rest = ("no figure" if s is None else _plus(s, metric) for s in both)
            figures = f"{called(metric)} on {found.split} {all_} with them, {rest} without"
            out.append(f"{name}: {told}; {figures}.")
    return out


def table(tuned: TuneResult) -> None:
    """The best trials on a terminal, then the sentence."""
    console = Terminal()
    rows = Table(box=None, pad_edge=False, header_style="bold")
    unit = " %" if percent(tuned.metric) else ""
    names = [dimension.key.replace(".", "\n") for dimension in tuned.plan.dimensions]
    for name in ("trial", f"dev\n{called(tuned.metric)}{unit}", *names):
        rows.add_column(name, justify="left" if name == "trial" else "right", overflow="fold")
    for row in tuned.ranked()[:SHOWN]:
        values = [shown(row.settings[d.key]) for d in tuned.plan.dimensions]
        rows.add_row(str(row.number), figure(row.value, tuned.metric), *values)
    console.print(rows)
    for words in (changes(tuned), sentence(tuned)):
        console.print(Text(words))
    for remark in remarks(tuned):
        console.print(Text(remark))


def write(tuned: TuneResult, command: Sequence[str]) -> Path:
    """Write tune.html beside the study; its path."""
    path = tuned.folder / "tune.html"
    write_text(path, page(tuned, command))
    return path


def page(tuned: TuneResult, command: Sequence[str]) -> str:
    """The whole page; everything that came from the user is escaped by the template."""
    slices = [
        (dimension.key, Markup(charts.slice_of(tuned, dimension, i)))
        for i, dimension in enumerate(tuned.plan.dimensions)
    ]
    counts = {
        state: sum(row.state == state for row in tuned.rows)
        for state in ("complete", "pruned", "failed", "killed")
    }
    most = max(tuned.importance.values(), default=1.0) or 1.0
    return html.render(
        "tuned.html",
        tuned=tuned,
        metric=tuned.metric,
        unit=" %" if percent(tuned.metric) else "",
        sentence=sentence(tuned),
        changes=changes(tuned),
        remarks=remarks(tuned),
        counts=counts,
        history=Markup(charts.history(tuned)),
        slices=slices,
        curves=Markup(charts.curves(tuned)),
        strip=Markup(charts.strip(tuned)),
        groups=_groups(tuned),
        importance=[(key, share, share / most) for key, share in tuned.importance.items()],
        rows=[*tuned.ranked(), *(row for row in tuned.rows if row.state != "complete")],
        failures=[row for row in tuned.rows if row.state in ("failed", "killed")],
        shown=shown,
        data=[(k, v) for k in ("train", "dev", "test") if (v := tuned.plan.base["data"].get(k))],
        commands=_commands(tuned, command),
        versions=[*versions().items()],
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _groups(tuned: TuneResult) -> list[dict[str, Any]]:
    """The restarts as the page tables them."""
    found = tuned.restarts
    if found is None:
        return []
    groups = [("tuned", found.tuned)] + ([("as it came", found.start)] if found.start else [])
    splits = ["dev", "test"] if found.split == "test" else ["dev"]
    return [
        {
            "name": name,
            "spreads": [
                (split, found.spread("tuned" if name == "tuned" else "start", split))
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
        ("The same search again, or more trials of it", shlex.join(command)),
        ("The best configuration, trained once more", shlex.join(best)),
        ("The model of the best restart on dev", shlex.join(use)),
    ]


def _best(tuned: TuneResult) -> str:
    done = sum(row.over for row in tuned.rows)
    return f"The best of {done} trials" if done > 1 else "The only trial"


def _plus(spread: Any, metric: str) -> str:
    mean = figure(spread.mean, metric)
    return f"{mean} ± {figure(spread.deviation, metric)}" if spread.n > 1 else mean


def _p(p: float) -> str:
    told = chance(p)
    return told if told.startswith("<") else f"= {told}"
