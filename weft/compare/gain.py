"""The gain of one recipe over another on the same test texts, with a paired interval.

R resamples   P distinct texts   n texts
"""

from collections.abc import Callable, Sequence

import numpy as np

from weft.compare.significance import count_per_text, label_counts, macro_f1, sentence_counts
from weft.compare.trial import Trial
from weft.metrics.bootstrap import (
    bootstrap_interval,
    draw_resamples,
    percentile_interval,
    safe_divide,
)
from weft.metrics.per_sentence import compare_paired
from weft.metrics.value import MetricValue

RESAMPLES = 10_000
CORRELATION_RESAMPLES = 1000
SLACK = 1e-6  # between the metric of a row and the one that resampling computes


def paired_gain(
    ours: Sequence[Trial], theirs: Sequence[Trial], metric: str, quality: float
) -> MetricValue | None:
    """Return metric(ours) − metric(theirs) with a 95 % interval over resampled test texts.

    Scores are averaged over seeds. Without a decomposition of the metric over texts that gives
    `quality`, the metric of `ours`, there is no interval, and the result is None.
    """
    if ours[0].writes:
        first, second = (sentence_counts(trials, metric) for trials in (ours, theirs))
        if first is None or second is None or first.n != second.n:
            return None
        return compare_paired(first, second, metric, RESAMPLES).difference
    if metric == "pearson":
        return _correlation_gain(ours, theirs)
    labelled = metric == "macro_f1"
    counted = (
        label_counts([ours, theirs])
        if labelled
        else [count_per_text(trials, metric) for trials in (ours, theirs)]
    )
    first_counts, second_counts = counted
    if len(first_counts) != len(second_counts) or not len(first_counts):
        return None
    statistic = macro_f1 if labelled else _ratio
    if abs(float(statistic(first_counts.sum(0, keepdims=True))[0]) - quality) > SLACK:
        return None
    return _difference(first_counts, second_counts, statistic)


def _ratio(sums: np.ndarray) -> np.ndarray:
    """(R,) the metric of (R, 2) summed numerators and denominators."""
    return safe_divide(sums[:, 0], sums[:, 1])


def _difference(
    a: np.ndarray, b: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]
) -> MetricValue:
    """Return statistic(a) − statistic(b) from counts by text, with the interval of resamples."""
    rows, times = np.unique(np.hstack([a, b]), axis=0, return_counts=True)  # (P, columns of both)

    def gaps(block: np.ndarray) -> np.ndarray:
        mine, theirs = np.split(block.astype(float) @ rows, 2, axis=1)
        difference: np.ndarray = statistic(mine) - statistic(theirs)
        return difference

    resampled = np.concatenate([gaps(block) for block in draw_resamples(times, RESAMPLES, 0)])
    return percentile_interval(float(gaps(times[None])[0]), resampled, len(a))


def _correlation_gain(ours: Sequence[Trial], theirs: Sequence[Trial]) -> MetricValue | None:
    """Return the difference of the mean Pearson correlation over seeds; not for folds."""
    columns = [
        [(float(a["value"]), float(a["label"])) for a in trial.read_predictions()]
        for trial in (*ours, *theirs)
    ]
    if len({len(column) for column in columns}) > 1 or any(trial.fold for trial in ours):
        return None
    gold = np.array([label for _, label in columns[0]])
    predicted = np.array([[value for value, _ in column] for column in columns]).T  # (n, trials)

    def statistic(values: np.ndarray, right: np.ndarray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            all_r = np.nan_to_num(np.corrcoef(values.T, right)[-1, :-1])
        return float(all_r[: len(ours)].mean() - all_r[len(ours) :].mean())

    return bootstrap_interval(statistic, predicted, gold, resamples=CORRELATION_RESAMPLES)
