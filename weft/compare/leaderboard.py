"""Rows of the leaderboard: how good, how sure, how fast, how large; and which one to take."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from weft.compare.format import (
    BRIEF,
    NAMES,
    brief,
    called,
    chance,
    count,
    figure,
    milliseconds,
    size,
)
from weft.compare.trial import Result, Timing
from weft.run.collapse import describe_collapses

WIDTH = 100
ROOM = 1000  # columns that no table fills, to see how many one would take
BESIDE = ("chrf", "bits_per_character")  # what stands beside the main figure of texts
CLASSES = ("macro_f1", "accuracy")  # and of classes
HIDDEN = ("perplexity_known",)  # figures that would only crowd the table
# Of rows that are not ranked, in the order in which they follow the others.
STYLES = {"baseline": "dim", "not enough time": "yellow", "failed": "red"}
WIDE = 2 * 1.96  # standard deviations in a 95 % interval
AS_FAST = 1.25  # times as slow: latencies closer than that do not tell two models apart


@dataclass(frozen=True, repr=False)
class Row:
    """One recipe over all its trials; without a quality, `error` says why."""

    recipe: str
    metric: str = ""
    quality: float | None = None  # mean over trials
    spread: float | None = None  # sample standard deviation over trials; None for a single one
    low: float | None = None  # bootstrap interval of one trial, mean over trials
    high: float | None = None
    values: tuple[float, ...] = ()  # quality of each trial
    train_seconds: float | None = None  # mean over trials
    p50_ms: float | None = None  # of the first trial's model, as are the next two
    p95_ms: float | None = None
    texts_per_second: float | None = None
    size_bytes: int | None = None
    parameters: int | None = None
    error: str | None = None
    memory_bytes: int | None = None  # most that a training held, median over trials
    answer_bytes: int | None = None  # most that the process which answers held
    p: float | None = None  # paired test against the best: how likely so large a gap is by chance
    collapsed: int = 0  # trials that learned nothing: one answer for all, or no better than that
    clipped: int = 0  # trials that the clock stopped before their last epoch
    rising: int = 0  # trials that ended while they were still getting better
    soon: str = ""  # and what the first of them says of it
    late: int = 0  # trials that there was no time for
    pooled: float | None = None  # accuracy, or what else is measured, over all folds together
    folds: int = 0
    higher_is_better: bool = True
    others: dict[str, float] = dataclasses.field(default_factory=dict)  # means of more metrics
    token_ms: float | None = None  # where texts are written, for each token
    collapsed_seeds: tuple[str, ...] = ()  # which trials those were
    kept_quality: float | None = None  # mean and deviation without them, where some are left
    kept_spread: float | None = None
    completed: tuple[float, ...] = ()  # of each trial that counts, the fraction of its epochs
    short: str = ""  # in words, when no training of it could end in time
    baseline: bool = False  # no recipe: it gives every text the most frequent training label

    def __repr__(self) -> str:
        if self.quality is None:
            return f"Row({self.recipe}: {self.error or self.short or 'not measured'})"
        spread = "" if self.spread is None else f" ± {self.spread:.4f}"
        trials = f"{len(self.values)} trial{'' if len(self.values) == 1 else 's'}"
        return f"Row({self.recipe}: {self.metric} {self.quality:.4f}{spread}, {trials})"

    @property
    def status(self) -> str:
        """`ranked`, `baseline`, `not enough time` or `failed`; only ranked ones are recommended."""
        if self.error is not None:
            return "failed"
        if self.baseline:
            return "baseline"
        return "not enough time" if self.short else "ranked"

    @property
    def shortest(self) -> float:
        """The fraction of its epochs that the shortest training which counts has done."""
        return min(self.completed, default=1.0)

    @property
    def writes(self) -> bool:
        """Whether its answers are texts, or what texts cost."""
        return self.metric in NAMES or "perplexity" in self.metric

    def to_json(self) -> dict[str, object]:
        """The row as leaderboard.json holds it."""
        return {**dataclasses.asdict(self), "status": self.status}


@dataclass(frozen=True)
class Verdict:
    """The best row, the cheapest that is as good within the margin, and the sentence about them."""

    best: Row
    choice: Row
    margin: float
    sentence: str


def row(
    recipe: str,
    results: Sequence[Result],
    timing: Timing | None,
    folds: int = 0,
    late: int = 0,
    seeds: Sequence[str] = (),
) -> Row:
    """The trials of one recipe, summed up."""
    first = results[0]
    main = [result.figures[result.metric] for result in results]
    values = [figure["value"] for figure in main]
    mean, deviation = _mean(values), _deviation(values)
    kept = [v for v, result in zip(values, results, strict=True) if not result.collapsed]
    some = bool(kept) and len(kept) < len(values)
    counts = [r.figures["accuracy"] for r in results if "accuracy" in r.figures]
    total = sum(c["n"] for c in counts)
    return Row(
        recipe=recipe,
        metric=first.metric,
        quality=mean,
        spread=deviation,
        low=_mean([f["low"] for f in main]),
        high=_mean([f["high"] for f in main]),
        values=tuple(values),
        train_seconds=_mean([r.seconds for r in results]),
        p50_ms=timing.p50_ms if timing else None,
        p95_ms=timing.p95_ms if timing else None,
        texts_per_second=timing.texts_per_second if timing else None,
        memory_bytes=round(_median([r.memory_bytes for r in results])),
        answer_bytes=timing.memory_bytes if timing else None,
        collapsed=sum(bool(r.collapsed) for r in results),
        clipped=sum(bool(r.clipped) for r in results),
        rising=sum(bool(r.rising) for r in results),
        soon=next((r.rising for r in results if r.rising), ""),
        late=late,
        size_bytes=round(_median([r.size_bytes for r in results])),
        parameters=round(_median([r.parameters for r in results])),
        pooled=sum(c["value"] * c["n"] for c in counts) / total if folds and total else None,
        folds=folds,
        higher_is_better=first.higher_is_better,
        others={
            name: _mean([r.figures[name]["value"] for r in results])
            for name in first.figures
            if name in (*NAMES, *CLASSES, "perplexity") and name not in (first.metric, *HIDDEN)
            if all(name in r.figures for r in results)
        },
        token_ms=timing.token_ms if timing else None,
        collapsed_seeds=tuple(
            seed for seed, result in zip(seeds, results, strict=False) if result.collapsed
        ),
        kept_quality=_mean(kept) if some else None,
        kept_spread=_deviation(kept) if some else None,
        completed=tuple(result.completed for result in results),
    )


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Best first; of equals the faster; then the baseline, too little time, failures."""

    def key(row: Row) -> tuple[int, float, float]:
        if row.status != "ranked":
            return 2 + list(STYLES).index(row.status), 0.0, 0.0
        if row.quality is None or row.quality != row.quality:
            return 1, 0.0, 0.0
        return 0, -row.quality if row.higher_is_better else row.quality, _latency(row)

    return sorted(rows, key=key)


def verdict(rows: Sequence[Row]) -> Verdict | None:
    """Name the cheapest model within one standard deviation of the best, if any is ranked.

    Of models about as cheap, it is the best one.
    """
    able = [r for r in ordered(rows) if r.status == "ranked" and r.quality is not None]
    if not able:
        return None
    best = able[0]
    assert best.quality is not None
    margin = _margin(best, able)
    # A little slack, so that a row exactly at the margin is not lost to rounding.
    near = [r for r in able if abs((r.quality or 0.0) - best.quality) <= margin + 1e-12]
    fastest = min(map(_latency, near))
    # `near` is in the order of quality: of models that answer about as fast, the best.
    choice = next(r for r in near if _latency(r) <= AS_FAST * fastest)
    return Verdict(best, choice, margin, _sentence(best, choice, margin, len(able)))


def _margin(best: Row, able: Sequence[Row]) -> float:
    """Return one standard deviation of the best over seeds.

    A recipe without seeds, or with seeds missing, takes the median of the others: the bootstrap's
    is the noise of the test set, which all recipes share.
    """
    known = [row.spread for row in able if row.spread]
    missing = best.late and not best.folds and len(best.values) < 3
    if known and (missing or not best.spread):
        return min(_median(known), deviation(best)) if len(best.values) < 2 else _median(known)
    return deviation(best)


def _latency(row: Row) -> float:
    """Milliseconds a text; one that was not timed is taken for the slowest."""
    return float("inf") if row.p50_ms is None else row.p50_ms


def deviation(row: Row) -> float:
    """One standard deviation: over seeds or folds; of the bootstrap where those do not differ."""
    if row.spread:
        return row.spread
    return ((row.high or 0.0) - (row.low or 0.0)) / WIDE


def table(rows: Sequence[Row]) -> None:
    """Print the leaderboard on standard output."""
    from rich.table import Table
    from rich.text import Text

    from weft.terminal import Terminal

    console = Terminal()
    console = Terminal(width=min(console.width, WIDTH) if console.is_terminal else WIDTH)
    found = verdict(rows)
    metric = next((row.metric for row in rows if row.metric), "quality")
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("recipe", no_wrap=True)
    other = extra(rows)
    writes = any(row.writes for row in rows)
    beside = [BRIEF.get(other, called(other))] if other else []
    heads = [called(metric), "95 % interval", *(() if writes else beside), "p", "train", "p50 ms"]
    heads += [*beside, "ms/token"] if writes else [] if other else ["p95 ms"]
    for name in (*heads, "texts/s", "size", *(() if writes else ("memory",))):
        shown.add_column(name, justify="right", no_wrap=True)
    failed = []
    for row in ordered(rows):
        if row.status == "baseline":
            shown.add_row(*cells(row, other), style=STYLES[row.status])
            continue
        if row.status != "ranked":
            failed.append(row)
            shown.add_row(row.recipe, row.status, style=STYLES[row.status])
            continue
        style = "bold green" if found and row is found.choice else ""
        shown.add_row(*cells(row, other), style=style)
    if console.measure(shown, options=console.options.update(width=ROOM)).maximum > console.width:
        shown.padding = (0, 1, 0, 0)
    console.print(shown)
    for row in failed:
        told = f"{row.recipe} {row.status}: {row.error or row.short}"
        if row.status == "not enough time":
            told = f"{row.recipe}: not enough time, {row.short}. Give more --minutes."
        console.print(Text(told, style=STYLES[row.status]))
    for line in remarks(rows):
        console.print(Text(line, style="yellow"))
    if found:
        console.print(Text(found.sentence))


def cells(row: Row, other: str = "") -> list[str]:
    """A row as the table prints it; `other` is one more metric."""
    quality = figure(row.quality, row.metric)
    if row.spread is not None:
        quality += f" ± {figure(row.spread, row.metric)}"
    beside = [figure(row.others.get(other), other)] if other else []
    if row.writes:
        more = [*beside, milliseconds(row.token_ms)]
    else:
        more = [] if other else [milliseconds(row.p95_ms)]
    return [
        row.recipe,
        quality,
        f"{figure(row.low, row.metric)}–{figure(row.high, row.metric)}",
        *([] if row.writes else beside),
        chance(row.p),
        brief(row.train_seconds),
        milliseconds(row.p50_ms),
        *more,
        count(row.texts_per_second),
        size(row.size_bytes),
        *([] if row.writes else [size(row.memory_bytes)]),
    ]


def extra(rows: Sequence[Row]) -> str:
    """The metric that stands beside the main one in a narrow table, if there is one."""
    known = [name for row in rows for name in row.others]
    return next((name for name in (*BESIDE, *CLASSES) if name in known), next(iter(known), ""))


def remarks(rows: Sequence[Row]) -> list[str]:
    """What a reader of the table has to know: collapsed, clipped, short and missing trials."""
    out = []
    for row in ordered(rows):
        n = len(row.values)
        if row.collapsed:
            out.append(
                f"{row.recipe}: {collapses(row)}. Lower train.learning_rate, or look at the data."
            )
        if row.clipped:
            out.append(
                f"{row.recipe}: the time limit shortened {row.clipped} of {n} trainings (to "
                f"{row.shortest:.0%} of their epochs); with more --minutes it may do better."
            )
        if row.rising:
            out.append(f"{row.recipe}: {row.rising} of {n} trainings ended too soon: {row.soon}.")
        if row.late:
            out.append(
                f"{row.recipe}: {n} of {n + row.late} trainings count; not enough time for the "
                "others."
            )
    return out


def collapses(row: Row) -> str:
    """Which trainings learned nothing, and the mean with and without them."""
    seeds = row.collapsed_seeds or ("?",) * row.collapsed
    told = describe_collapses(seeds, len(row.values), "trainings")
    if row.kept_quality is None:
        return told
    both = ((row.quality, row.spread), (row.kept_quality, row.kept_spread))
    all_, rest = (
        figure(mean, row.metric) + ("" if spread is None else f" ± {figure(spread, row.metric)}")
        for mean, spread in both
    )
    return f"{told}; {called(row.metric)} {all_} with them, {rest} without"


def _sentence(best: Row, choice: Row, margin: float, compared: int) -> str:
    how = figure(margin, best.metric)
    if margin != deviation(best):
        within = f"one standard deviation (±{how}, the usual one over seeds)"
    elif best.spread:
        over = f"{len(best.values)} {'folds' if best.folds else 'seeds'}"
        if best.folds and len(best.values) > best.folds:
            over = f"{best.folds} folds and {len(best.values) // best.folds} seeds"
        within = f"one standard deviation (±{how} over {over})"
    else:
        within = f"one standard deviation (±{how}, by bootstrap over the test texts)"
    name = called(best.metric)
    told = f"{name} {figure(best.quality, best.metric)}{_speed(best)}"
    if compared == 1:
        return f"{best.recipe} is the only model that was trained: {told}."
    if best.p50_ms is None:
        return f"Take {best.recipe}: it is the best ({told}). There was no time to time the models."
    if choice is best:
        none = f"no clearly faster model is within {within}"
        return f"Take {best.recipe}: it is the best ({told}), and {none}."
    mine = f"{figure(choice.quality, best.metric)}{_speed(choice)}"
    times = (best.p50_ms or 0.0) / choice.p50_ms if choice.p50_ms else 1.0
    return (
        f"Take {choice.recipe} ({name} {mine}): it is the cheapest within {within} of the "
        f"best, {best.recipe} ({figure(best.quality, best.metric)}, "
        f"{milliseconds(best.p50_ms)} ms), and answers {times:.1f} times as fast."
    )


def _speed(row: Row) -> str:
    return "" if row.p50_ms is None else f", {milliseconds(row.p50_ms)} ms a text"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float | None:
    mean, n = _mean(values), len(values)
    return (sum((v - mean) ** 2 for v in values) / (n - 1)) ** 0.5 if n > 1 else None


def _median(values: Sequence[float]) -> float:
    middle = sorted(values)
    half = len(middle) // 2
    return middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
