"""Intervals and tests by resampling the examples, and the spread over seeds; all seeded.

R resamples   P distinct outcomes of an example   n examples
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.metrics.value import MetricValue

MAX_DRAWN_NUMBERS = 4_000_000  # numbers drawn at once: 32 MB


def draw_resamples(counts: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks of resampled counts, together (R, P).

    Resampling n examples with replacement and counting their outcomes is one multinomial draw
    over the outcomes, which is far smaller than the examples.
    """
    rng = np.random.default_rng(seed)
    n = int(counts.sum())
    block = max(1, MAX_DRAWN_NUMBERS // max(1, len(counts)))
    every_one_distinct = len(counts) == n
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        if every_one_distinct:  # picking rows is faster than n binomials
            picked = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
            yield np.bincount(picked.ravel(), minlength=size * n).reshape(size, n)
        else:
            yield rng.multinomial(n, counts / n, size)


def percentile_interval(
    value: float, resampled: np.ndarray, n: int, level: float = 0.95
) -> MetricValue:
    """A value with the middle `level` of its resampled values as interval."""
    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail]) if len(resampled) else (value, value)
    return MetricValue(float(value), float(low), float(high), n)


def bootstrap_statistics(
    statistics: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    counts: np.ndarray,
    resamples: int,
    seed: int,
    level: float,
) -> dict[str, MetricValue]:
    """Each statistic of (R, P) counts, on the counts themselves and on resamples of them."""
    n = int(counts.sum())
    if not n:
        return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in statistics}
    resampled: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    for block in draw_resamples(counts, resamples, seed):
        for name, statistic in statistics.items():
            resampled[name].append(statistic(block))
    return {
        name: percentile_interval(
            statistic(counts[None])[0], np.concatenate([*resampled[name], np.zeros(0)]), n, level
        )
        for name, statistic in statistics.items()
    }


def safe_divide(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Quotient of counts, 0 where there is nothing to divide by."""
    out = np.zeros(np.shape(top))
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def bootstrap_interval(
    statistic: Callable[..., float],
    *columns: np.ndarray,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> MetricValue:
    """Any statistic of columns with one row an example, with its percentile interval."""
    n = len(columns[0])
    rng = np.random.default_rng(seed)
    picks = (rng.integers(0, n, n) for _ in range(resamples))
    values = [statistic(*(column[pick] for column in columns)) for pick in picks] if n else []
    return percentile_interval(statistic(*columns), np.array(values), n, level)


def paired_bootstrap(a: np.ndarray, b: np.ndarray, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p that two systems with these scores on the same examples are equally good.

    The resampled difference is centred on zero (no difference) and compared with the one observed;
    the observed sample counts as one resample, so p is never 0 (Davison and Hinkley 1997, 4.4).
    """
    assert a.shape == b.shape
    assert a.ndim == 1
    if not len(a):
        return 1.0
    # float: 0/1 correctness arrives as booleans, which cannot be subtracted.
    values, counts = np.unique(np.asarray(a, float) - np.asarray(b, float), return_counts=True)
    observed = values @ counts / len(a)
    slack = 1e-12 * max(1.0, float(np.abs(values).max()))  # equal up to rounding counts as reached
    reached = 0
    for block in draw_resamples(counts, resamples, seed):
        shifted = block @ values / len(a) - observed
        reached += int((np.abs(shifted) >= abs(observed) - slack).sum())
    return (1 + reached) / (1 + resamples)


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; the deviation of a single seed is 0."""

    mean: float
    deviation: float
    n: int


def summarise_seeds(values: Sequence[float]) -> Spread:
    """Summarise a metric over seeds."""
    assert len(values), "no values to spread"
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Spread(float(np.mean(values)), deviation, len(values))
