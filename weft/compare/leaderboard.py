"""Rows of the leaderboard: quality, significance, latency and size; and a recommendation."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.compare.format import (
    METRIC_NAMES,
    SHORT_NAMES,
    format_count,
    format_metric,
    format_milliseconds,
    format_p_value,
    format_size,
    metric_name,
    short_duration,
)
from weft.compare.trial import Result, Timing
from weft.notebook import HtmlRepr
from weft.run.collapse import describe_collapses

TABLE_WIDTH = 100
UNLIMITED_WIDTH = 1000  # characters, to measure the natural width of a table
SECONDARY_METRICS = ("chrf", "bits_per_character")  # shown next to the main metric of generation
CLASS_METRICS = ("macro_f1", "accuracy")  # and of classification
HIDDEN_METRICS = ("perplexity_known",)  # metrics that would only crowd the table
# Of unranked rows, in the order in which they follow the ranked ones.
STATUS_STYLES = {"baseline": "dim", "not enough time": "yellow", "failed": "red"}
INTERVAL_DEVIATIONS = 2 * 1.96  # standard deviations in a 95 % interval
SIMILAR_LATENCY_RATIO = 1.25  # latencies within this ratio count as equal


@dataclass(frozen=True, repr=False)
class Row(HtmlRepr):
    """One recipe over all its trials; without a quality, `error` has the reason."""

    recipe: str
    metric: str = ""
    quality: float | None = None  # mean over trials
    spread: float | None = None  # sample standard deviation over trials; None for a single one
    low: float | None = None  # bootstrap interval of one trial, mean over trials
    high: float | None = None
    values: tuple[float, ...] = ()  # quality of each trial
    train_seconds: float | None = None  # mean over trials
    p50_ms: float | None = None  # of the first trial's model, like the next two
    p95_ms: float | None = None
    texts_per_second: float | None = None
    size_bytes: int | None = None
    parameters: int | None = None
    error: str | None = None
    memory_bytes: int | None = None  # peak during training, median over trials
    answer_bytes: int | None = None  # peak during prediction
    p: float | None = None  # p-value of a paired test against the best
    collapsed: int = 0  # trials that learned nothing: one label for all, or no better
    clipped: int = 0  # trials stopped by the time limit before their last epoch
    rising: int = 0  # trials whose dev metric was still improving at the end
    soon: str = ""  # the note of the first of them
    late: int = 0  # trials skipped for lack of time
    pooled: float | None = None  # accuracy, or the main metric, over all folds together
    folds: int = 0
    higher_is_better: bool = True
    others: dict[str, float] = dataclasses.field(default_factory=dict)  # means of other metrics
    token_ms: float | None = None  # of generation, per token
    collapsed_seeds: tuple[str, ...] = ()  # names of the collapsed trials
    kept_quality: float | None = None  # mean and deviation without them, if any remain
    kept_spread: float | None = None
    completed: tuple[float, ...] = ()  # fraction of the epochs of each counted trial
    short: str = ""  # the reason, if no run finished in time
    baseline: bool = False  # the majority baseline, not a recipe
    # Of an ensemble over the best recipe, or of balanced classes, with its paired 95 % interval.
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    gain_over: str = ""  # that recipe

    def __repr__(self) -> str:
        if self.quality is None:
            return f"Row({self.recipe}: {self.error or self.short or 'not measured'})"
        spread = "" if self.spread is None else f" ± {self.spread:.4f}"
        trials = f"{len(self.values)} trial{'' if len(self.values) == 1 else 's'}"
        return f"Row({self.recipe}: {self.metric} {self.quality:.4f}{spread}, {trials})"

    @property
    def status(self) -> str:
        """`ranked`, `baseline`, `not enough time` or `failed`; only ranked rows are recommended."""
        if self.error is not None:
            return "failed"
        if self.baseline:
            return "baseline"
        return "not enough time" if self.short else "ranked"

    @property
    def shortest(self) -> float:
        """The smallest fraction of epochs completed by a counted run."""
        return min(self.completed, default=1.0)

    @property
    def writes(self) -> bool:
        """True for generation and language modelling."""
        return self.metric in METRIC_NAMES or "perplexity" in self.metric

    def to_json(self) -> dict[str, object]:
        """Return the row as stored in leaderboard.json."""
        return {**dataclasses.asdict(self), "status": self.status}


class Leaderboard(list[Row], HtmlRepr):
    """The rows of a comparison, best first; notebooks show them as a table."""

    def __init__(self, rows: Iterable[Row] = (), folder: Path | None = None) -> None:
        super().__init__(rows)
        self.folder = folder  # with report.html and model/


@dataclass(frozen=True)
class Recommendation:
    """The best row, the fastest row within the margin of it, and the recommendation as text."""

    best: Row
    choice: Row
    margin: float
    text: str


def summarise_trials(
    recipe: str,
    results: Sequence[Result],
    timing: Timing | None,
    folds: int = 0,
    late: int = 0,
    seeds: Sequence[str] = (),
) -> Row:
    """Summarise the trials of one recipe as a row."""
    first = results[0]
    main = [result.figures[result.metric] for result in results]
    values = [figure["value"] for figure in main]
    mean, deviation = _mean(values), _deviation(values)
    surviving = [v for v, result in zip(values, results, strict=True) if not result.collapsed]
    partly_collapsed = bool(surviving) and len(surviving) < len(values)
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
            if name in (*METRIC_NAMES, *CLASS_METRICS, "perplexity")
            and name not in (first.metric, *HIDDEN_METRICS)
            if all(name in r.figures for r in results)
        },
        token_ms=timing.token_ms if timing else None,
        collapsed_seeds=tuple(
            seed for seed, result in zip(seeds, results, strict=False) if result.collapsed
        ),
        kept_quality=_mean(surviving) if partly_collapsed else None,
        kept_spread=_deviation(surviving) if partly_collapsed else None,
        completed=tuple(result.completed for result in results),
    )


def sort_rows(rows: Sequence[Row]) -> list[Row]:
    """Sort best first, the faster of equals first; then baseline, not enough time, failures."""

    def key(row: Row) -> tuple[int, float, float]:
        if row.status != "ranked":
            return 2 + list(STATUS_STYLES).index(row.status), 0.0, 0.0
        if row.quality is None or row.quality != row.quality:
            return 1, 0.0, 0.0
        return 0, -row.quality if row.higher_is_better else row.quality, _latency_ms(row)

    return sorted(rows, key=key)


def recommend(rows: Sequence[Row]) -> Recommendation | None:
    """Recommend the fastest model within one standard deviation of the best, if any is ranked.

    Of models with similar latency, the best one is chosen.
    """
    ranked = [r for r in sort_rows(rows) if r.status == "ranked" and r.quality is not None]
    if not ranked:
        return None
    best = ranked[0]
    assert best.quality is not None
    margin = _margin(best, ranked)
    # The tolerance keeps a row exactly at the margin despite rounding.
    near = [r for r in ranked if abs((r.quality or 0.0) - best.quality) <= margin + 1e-12]
    fastest = min(map(_latency_ms, near))
    # `near` is sorted by quality: of models with similar latency, the best.
    choice = next(r for r in near if _latency_ms(r) <= SIMILAR_LATENCY_RATIO * fastest)
    return Recommendation(
        best, choice, margin, _recommendation_text(best, choice, margin, len(ranked))
    )


def _margin(best: Row, ranked: Sequence[Row]) -> float:
    """Return one standard deviation of the best over seeds.

    For a recipe without seeds, or with seeds missing, it is the median of the others: the
    bootstrap measures the noise of the test set, which all recipes share.
    """
    spreads = [row.spread for row in ranked if row.spread]
    missing = best.late and not best.folds and len(best.values) < 3
    if spreads and (missing or not best.spread):
        return (
            min(_median(spreads), standard_deviation(best))
            if len(best.values) < 2
            else _median(spreads)
        )
    return standard_deviation(best)


def _latency_ms(row: Row) -> float:
    """Return milliseconds per text; infinity for a model that was not timed."""
    return float("inf") if row.p50_ms is None else row.p50_ms


def standard_deviation(row: Row) -> float:
    """Return the standard deviation over seeds or folds, or else that of the bootstrap."""
    if row.spread:
        return row.spread
    return ((row.high or 0.0) - (row.low or 0.0)) / INTERVAL_DEVIATIONS


def print_table(rows: Sequence[Row]) -> None:
    """Print the leaderboard on standard output."""
    from rich.table import Table
    from rich.text import Text

    from weft.terminal import Terminal

    console = Terminal()
    console = Terminal(
        width=min(console.width, TABLE_WIDTH) if console.is_terminal else TABLE_WIDTH
    )
    recommendation = recommend(rows)
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("recipe", no_wrap=True)
    other = secondary_metric(rows)
    for name in table_headers(rows, other):
        grid.add_column(name, justify="right", no_wrap=True)
    unranked = []
    for row in sort_rows(rows):
        if row.status == "baseline":
            grid.add_row(*format_row(row, other), style=STATUS_STYLES[row.status])
            continue
        if row.status != "ranked":
            unranked.append(row)
            grid.add_row(row.recipe, row.status, style=STATUS_STYLES[row.status])
            continue
        style = "bold green" if recommendation and row is recommendation.choice else ""
        grid.add_row(*format_row(row, other), style=style)
    if (
        console.measure(grid, options=console.options.update(width=UNLIMITED_WIDTH)).maximum
        > console.width
    ):
        grid.padding = (0, 1, 0, 0)
    console.print(grid)
    for row in unranked:
        message = f"{row.recipe} {row.status}: {row.error or row.short}"
        if row.status == "not enough time":
            message = f"{row.recipe}: not enough time, {row.short}. Increase --minutes."
        console.print(Text(message, style=STATUS_STYLES[row.status]))
    for line in build_notes(rows):
        console.print(Text(line, style="yellow"))
    if recommendation:
        console.print(Text(recommendation.text))


def table_headers(rows: Sequence[Row], other: str = "") -> list[str]:
    """Return the headers of the columns of `format_row`, without that of the recipe."""
    metric = next((row.metric for row in rows if row.metric), "quality")
    writes = any(row.writes for row in rows)
    second = [SHORT_NAMES.get(other, metric_name(other))] if other else []
    return [
        metric_name(metric),
        "95 % interval",
        *(() if writes else second),
        "p",
        "train",
        "p50 ms",
        *([*second, "ms/token"] if writes else [] if other else ["p95 ms"]),
        "texts/s",
        "size",
        *(() if writes else ("memory",)),
    ]


def format_row(row: Row, other: str = "") -> list[str]:
    """Format a row for the table; `other` is a second metric."""
    quality = format_metric(row.quality, row.metric)
    if row.spread is not None:
        quality += f" ± {format_metric(row.spread, row.metric)}"
    second = [format_metric(row.others.get(other), other)] if other else []
    if row.writes:
        more = [*second, format_milliseconds(row.token_ms)]
    else:
        more = [] if other else [format_milliseconds(row.p95_ms)]
    return [
        row.recipe,
        quality,
        f"{format_metric(row.low, row.metric)}–{format_metric(row.high, row.metric)}",
        *([] if row.writes else second),
        format_p_value(row.p),
        short_duration(row.train_seconds),
        format_milliseconds(row.p50_ms),
        *more,
        format_count(row.texts_per_second),
        format_size(row.size_bytes),
        *([] if row.writes else [format_size(row.memory_bytes)]),
    ]


def secondary_metric(rows: Sequence[Row]) -> str:
    """Return the second metric of the narrow table, or ""."""
    names = [name for row in rows for name in row.others]
    return next(
        (name for name in (*SECONDARY_METRICS, *CLASS_METRICS) if name in names),
        next(iter(names), ""),
    )


def build_notes(rows: Sequence[Row]) -> list[str]:
    """Return notes on the table: collapsed, shortened, undertrained and missing runs."""
    out = [describe_gain(row) for row in sort_rows(rows) if row.gain is not None]
    for row in sort_rows(rows):
        n = len(row.values)
        if row.collapsed:
            out.append(
                f"{row.recipe}: {describe_row_collapses(row)}. "
                "Lower train.learning_rate, or check the data."
            )
        if row.clipped:
            out.append(
                f"{row.recipe}: the time limit shortened {row.clipped} of {n} runs (to "
                f"{row.shortest:.0%} of their epochs); more --minutes may improve it."
            )
        if row.rising:
            out.append(f"{row.recipe}: {row.rising} of {n} runs are undertrained: {row.soon}.")
        if row.late:
            out.append(
                f"{row.recipe}: only {n} of {n + row.late} runs finished; not enough time for the "
                "rest."
            )
    return out


def describe_gain(row: Row) -> str:
    """Describe the gain over another recipe, with its paired interval."""
    low, value, high = (
        ("+" if (number or 0.0) >= 0 else "−") + format_metric(abs(number or 0.0), row.metric)
        for number in (row.gain_low, row.gain, row.gain_high)
    )
    return (
        f"{row.recipe}: {metric_name(row.metric)} {value} over {row.gain_over} "
        f"(95 % interval {low} to {high}, paired over the test texts)."
    )


def describe_row_collapses(row: Row) -> str:
    """Describe the runs that learned nothing, and the mean with and without them."""
    seeds = row.collapsed_seeds or ("?",) * row.collapsed
    collapsed = describe_collapses(seeds, len(row.values), "runs")
    if row.kept_quality is None:
        return collapsed
    both = ((row.quality, row.spread), (row.kept_quality, row.kept_spread))
    overall, remaining = (
        format_metric(mean, row.metric)
        + ("" if spread is None else f" ± {format_metric(spread, row.metric)}")
        for mean, spread in both
    )
    return f"{collapsed}; {metric_name(row.metric)} {overall} with them, {remaining} without"


def _recommendation_text(best: Row, choice: Row, margin: float, compared: int) -> str:
    deviation = format_metric(margin, best.metric)
    if margin != standard_deviation(best):
        within = f"one standard deviation (±{deviation}, the median over recipes)"
    elif best.spread:
        over = f"{len(best.values)} {'folds' if best.folds else 'seeds'}"
        if best.folds and len(best.values) > best.folds:
            over = f"{best.folds} folds and {len(best.values) // best.folds} seeds"
        within = f"one standard deviation (±{deviation} over {over})"
    else:
        within = f"one standard deviation (±{deviation}, bootstrap over the test texts)"
    name = metric_name(best.metric)
    summary = f"{name} {format_metric(best.quality, best.metric)}{_format_speed(best)}"
    if compared == 1:
        return f"{best.recipe} is the only trained model: {summary}."
    if best.p50_ms is None:
        return (
            f"Use {best.recipe}: it is the best ({summary}). No time was left to measure latency."
        )
    if choice is best:
        none = f"no clearly faster model is within {within} of it"
        return f"Use {best.recipe}: it is the best ({summary}), and {none}."
    chosen = f"{format_metric(choice.quality, best.metric)}{_format_speed(choice)}"
    times = (best.p50_ms or 0.0) / choice.p50_ms if choice.p50_ms else 1.0
    return (
        f"Use {choice.recipe} ({name} {chosen}): it is the fastest within {within} of the "
        f"best, {best.recipe} ({format_metric(best.quality, best.metric)}, "
        f"{format_milliseconds(best.p50_ms)} ms), and {times:.1f} times as fast."
    )


def _format_speed(row: Row) -> str:
    return "" if row.p50_ms is None else f", {format_milliseconds(row.p50_ms)} ms per text"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float | None:
    mean, n = _mean(values), len(values)
    return (sum((v - mean) ** 2 for v in values) / (n - 1)) ** 0.5 if n > 1 else None


def _median(values: Sequence[float]) -> float:
    middle = sorted(values)
    half = len(middle) // 2
    return middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
