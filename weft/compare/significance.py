"""Is the best really better? Paired tests on the same test texts.

R resamples   P distinct texts   n texts
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compare.sentence_scores import share
from weft.compare.trial import Trial
from weft.metrics.bootstrap import draw_resamples, paired_bootstrap, safe_divide
from weft.metrics.per_sentence import SentenceMetric, compare_paired
from weft.run.text_scores import sentence_measure
from weft.tasks.annotation import Annotation
from weft.tasks.task import build_task

RESAMPLES = 10_000


def chances(trials: Mapping[str, Sequence[Trial]], best: str, metric: str = "") -> dict[str, float]:
    """For each other recipe, how likely so large a gap to the best is by chance (two-sided).

    A text's score is its mean over seeds, so that a lucky seed does not decide; folds add up to
    all texts. Recipes whose answers cannot be paired are left out.
    """
    if trials[best][0].writes:
        return _of_texts(trials, best, metric)
    macro = metric == "macro_f1"
    labels = _labels(trials) if macro else []
    scores = {
        name: counts(found, metric, labels if macro else None) for name, found in trials.items()
    }
    first = scores.pop(best)
    return {
        name: paired_macro_f1(found, first) if macro else paired_ratios(found, first)
        for name, found in scores.items()
        if len(found) == len(first)
    }


def _labels(trials: Mapping[str, Sequence[Trial]]) -> list[str]:
    """Every label that occurs in gold or prediction."""
    sides = (
        str(answer[side])
        for found in trials.values()
        for trial in found
        for answer in trial.answers()
        for side in ("label", "value")
    )
    return sorted(set(sides))


def _of_texts(trials: Mapping[str, Sequence[Trial]], best: str, metric: str) -> dict[str, float]:
    """The same of answers that are texts: the figure is computed anew from resampled counts."""
    found = {name: _sentences(these, metric) for name, these in trials.items()}
    first = found.pop(best)
    return {
        name: compare_paired(other, first, metric, RESAMPLES).p
        for name, other in found.items()
        if other is not None and first is not None and other.n == first.n
    }


def _sentences(trials: Sequence[Trial], metric: str) -> SentenceMetric | None:
    """The counts of each test text, the mean over seeds, fold after fold."""
    by_fold: dict[int, list[list[dict[str, Any]]]] = {}
    for trial in trials:
        by_fold.setdefault(trial.fold or 0, []).append(list(trial.answers()))
    task = build_task(trials[0].config.sections)
    parts = [sentence_measure(task, metric, seeds) for _, seeds in sorted(by_fold.items())]
    whole = parts[0]
    for part in parts[1:]:
        if whole is None or part is None:
            return None
        whole.rows.extend(part.rows)
    return whole


def counts(
    trials: Sequence[Trial], metric: str = "", labels: Sequence[str] | None = None
) -> np.ndarray:
    """(n, 2) of each test text two numbers, the mean over seeds: their sums' ratio is the metric.

    With `labels`, (n, 2C): whether each is given and right, and how often it is given or right.
    Without any rows where the trials did not answer the same texts.
    """
    by_fold: dict[int | None, list[np.ndarray]] = {}
    places = {label: i for i, label in enumerate(labels or ())}
    width = 2 * len(places) or 2
    for trial in trials:
        answers = trial.answers()
        by_label = labels is not None
        rows: list[Any] = [_by_label(a, places) if by_label else pair(a, metric) for a in answers]
        by_fold.setdefault(trial.fold, []).append(np.array(rows, float).reshape(-1, width))
    if any(len({len(rows) for rows in seeds}) > 1 for seeds in by_fold.values()):
        return np.zeros((0, width))
    folds = sorted(by_fold.items(), key=lambda item: item[0] or 0)
    return np.concatenate([np.mean(seeds, axis=0) for _, seeds in folds])


def pooled(trials: Sequence[Trial], metric: str) -> float | None:
    """The metric over the sentences of all folds together; None of answers for whole texts."""
    if "structure" not in next(trials[0].answers(), {}):
        return None
    sums = counts(trials, metric).sum(0)
    return float(safe_divide(sums[:1], sums[1:])[0])


def pair(answer: Mapping[str, Any], metric: str = "") -> tuple[float, float]:
    """What one line of predictions.jsonl adds to the top and to the bottom of the metric."""
    if "structure" in answer:
        said, gold = (Annotation.from_json(answer[side]) for side in ("structure", "gold"))
        return share(said, gold, metric)
    return score(answer["value"], answer["label"]), 1.0


def _by_label(answer: Mapping[str, Any], places: Mapping[str, int]) -> np.ndarray:
    """(2C,) what one answer adds to the true positives and to predicted + gold of each label."""
    out = np.zeros((2, len(places)))
    said, gold = places[str(answer["value"])], places[str(answer["label"])]
    out[0, said] = said == gold
    np.add.at(out[1], [said, gold], 1)
    return out.reshape(-1)


def paired_ratios(a: np.ndarray, b: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Two-sided p that two systems with these (n, 2) counts on the same texts are equally good.

    Texts are resampled and the ratios of the sums computed anew: an F1 is no mean over texts. As
    in `paired`, which this is where every bottom is 1, the difference is centred on zero.
    """
    if len(a) and (a[:, 1] == 1).all() and (b[:, 1] == 1).all():
        return paired_bootstrap(a[:, 0], b[:, 0], resamples, seed)
    return _paired(a, b, lambda sums: safe_divide(sums[:, 0], sums[:, 1]), resamples, seed)


def paired_macro_f1(a: np.ndarray, b: np.ndarray, resamples: int = 2000, seed: int = 0) -> float:
    """The same of macro-F1, with (n, 2C) counts."""
    return _paired(a, b, _macro_f1, resamples, seed)


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    """(R,) of (R, 2C) counts: the mean F1 over the labels that occur."""
    right, all_ = np.split(sums, 2, axis=1)
    occurs = all_ > 0
    f1 = np.divide(2 * right, all_, out=np.zeros_like(right), where=occurs)
    return f1.sum(1) / np.maximum(occurs.sum(1), 1)


def _paired(
    a: np.ndarray,
    b: np.ndarray,
    metric: Callable[[np.ndarray], np.ndarray],
    resamples: int,
    seed: int,
) -> float:
    """Two-sided p by resampling texts; `metric` is of (R, columns) sums."""
    assert a.shape == b.shape
    if not len(a):
        return 1.0
    rows, times = np.unique(np.hstack([a, b]), axis=0, return_counts=True)  # (P, columns of both)

    def gaps(block: np.ndarray) -> np.ndarray:
        mine, theirs = np.split(block @ rows, 2, axis=1)
        return metric(mine) - metric(theirs)

    observed = gaps(times[None].astype(float))[0]
    reached = 0
    for block in draw_resamples(times, resamples, seed):
        shifted = gaps(block.astype(float)) - observed
        reached += int((np.abs(shifted) >= abs(observed) - 1e-12).sum())
    return (1 + reached) / (1 + resamples)


def score(value: Any, label: Any) -> float:
    """How good one answer is: right or not; of sets their overlap; of numbers the squared error."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return -((value - float(label)) ** 2)
    if isinstance(value, (list, tuple)):
        mine, right = set(value), set(label if isinstance(label, (list, tuple)) else [label])
        return len(mine & right) / max(1, len(mine | right))
    return float(value == label)
