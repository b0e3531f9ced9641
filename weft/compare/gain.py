"""The gain of one recipe over another on the same test texts, with a paired interval.

R resamples   P distinct texts   n texts
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

RESAMPLES = 10_000
CORRELATION_RESAMPLES = 1000
MACRO_F1_RESAMPLES = 2000
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
    if metric == "macro_f1":
        return _macro_f1_gain(ours, theirs, quality)
    a, b = (count_per_text(trials, metric) for trials in (ours, theirs))
    if len(a) != len(b) or not len(a):
        return None
    if abs(float(_ratio(a.sum(0, keepdims=True))[0]) - quality) > SLACK:
        return None
    rows, times = np.unique(np.hstack([a, b]), axis=0, return_counts=True)  # (P, columns of both)

    def gaps(block: np.ndarray) -> np.ndarray:
        mine, other = np.split(block.astype(float) @ rows, 2, axis=1)
        difference: np.ndarray = _ratio(mine) - _ratio(other)
        return difference

    resampled = np.concatenate([gaps(block) for block in draw_resamples(times, RESAMPLES, 0)])
    return percentile_interval(float(gaps(times[None])[0]), resampled, len(a))


def _ratio(sums: np.ndarray) -> np.ndarray:
    """(R,) the metric of (R, 2) summed numerators and denominators."""
    return safe_divide(sums[:, 0], sums[:, 1])


def _macro_f1_gain(
    ours: Sequence[Trial], theirs: Sequence[Trial], quality: float
) -> MetricValue | None:
    """Return the difference of the mean macro-F1 over seeds: that of mean counts is another."""
    from scipy.sparse import csr_matrix

    by_seed = [
        [trial for trial in trials if trial.seed == seed]
        for trials in (ours, theirs)
        for seed in sorted({trial.seed for trial in trials})
    ]
    counts = [csr_matrix(table) for table in label_counts(by_seed)]  # (n, 2C) each
    first = len({trial.seed for trial in ours})
    n = counts[0].shape[0]
    if not n or any(table.shape[0] != n for table in counts):
        return None

    def mean(block: np.ndarray, tables: "Sequence[csr_matrix]") -> np.ndarray:
        scores: np.ndarray = np.mean([macro_f1(block @ table) for table in tables], axis=0)
        return scores

    whole = np.ones((1, n))
    if abs(float(mean(whole, counts[:first])[0]) - quality) > SLACK:
        return None

    def gaps(block: np.ndarray) -> np.ndarray:
        difference: np.ndarray = mean(block, counts[:first]) - mean(block, counts[first:])
        return difference

    draws = draw_resamples(np.ones(n, np.int64), MACRO_F1_RESAMPLES, 0)
    resampled = np.concatenate([gaps(block.astype(float)) for block in draws])
    return percentile_interval(float(gaps(whole)[0]), resampled, n)


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
