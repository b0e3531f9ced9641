"""Paired significance tests against the best recipe, on the same test texts.

R resamples   P distinct texts   n texts
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compare.sentence_scores import ratio_terms
from weft.compare.trial import Trial
from weft.metrics.bootstrap import draw_resamples, paired_bootstrap, safe_divide
from weft.metrics.per_sentence import SentenceMetric, compare_paired
from weft.run.text_scores import SavedAnswer, sentence_measure
from weft.tasks.annotation import Annotation
from weft.tasks.task import build_task

RESAMPLES = 10_000


def p_values(
    trials: Mapping[str, Sequence[Trial]], best: str, metric: str = ""
) -> dict[str, float]:
    """Return the two-sided p-value of each other recipe's difference to the best.

    Scores are averaged over seeds per text, so that a lucky seed does not decide; folds together
    cover all texts. Recipes whose predictions cannot be paired are left out.
    """
    if trials[best][0].writes:
        return _p_values_of_generation(trials, best, metric)
    macro = metric == "macro_f1"
    labels = _all_labels(trials) if macro else []
    scores = {
        name: count_per_text(runs, metric, labels if macro else None)
        for name, runs in trials.items()
    }
    first = scores.pop(best)
    return {
        name: paired_macro_f1(runs, first) if macro else paired_ratios(runs, first)
        for name, runs in scores.items()
        if len(runs) == len(first)
    }


def label_counts(runs: Sequence[Sequence[Trial]]) -> list[np.ndarray]:
    """Return the (n, 2C) label counts of each recipe's trials, over the labels of all of them."""
    labels = _all_labels({str(i): trials for i, trials in enumerate(runs)})
    return [count_per_text(trials, "macro_f1", labels) for trials in runs]


def _all_labels(trials: Mapping[str, Sequence[Trial]]) -> list[str]:
    """Return every label that occurs in gold or predictions, sorted."""
    labels = (
        label
        for runs in trials.values()
        for trial in runs
        for answer in trial.read_predictions()
        for side in ("label", "value")
        for label in _label_set(answer[side])
    )
    return sorted(set(labels))


def _label_set(value: Any) -> list[str]:
    """Return the labels of a text: one, or several."""
    return [str(one) for one in (value if isinstance(value, (list, tuple)) else [value])]


def _p_values_of_generation(
    trials: Mapping[str, Sequence[Trial]], best: str, metric: str
) -> dict[str, float]:
    """Return p-values for generation, with the corpus metric recomputed from resampled counts."""
    by_recipe = {name: sentence_counts(these, metric) for name, these in trials.items()}
    first = by_recipe.pop(best)
    return {
        name: compare_paired(other, first, metric, RESAMPLES).p
        for name, other in by_recipe.items()
        if other is not None and first is not None and other.n == first.n
    }


def sentence_counts(trials: Sequence[Trial], metric: str) -> SentenceMetric | None:
    """Return the counts of each test text, averaged over seeds, fold after fold."""
    by_fold: dict[int, list[list[SavedAnswer]]] = {}
    for trial in trials:
        by_fold.setdefault(trial.fold or 0, []).append(list(trial.read_predictions()))
    task = build_task(trials[0].config.sections)
    parts = [sentence_measure(task, metric, seeds) for _, seeds in sorted(by_fold.items())]
    whole = parts[0]
    for part in parts[1:]:
        if whole is None or part is None:
            return None
        whole.rows.extend(part.rows)
    return whole


def count_per_text(
    trials: Sequence[Trial], metric: str = "", labels: Sequence[str] | None = None
) -> np.ndarray:
    """Return (n, 2) numerators and denominators of the metric per text, averaged over seeds.

    With `labels`, (n, 2C): the true positives, and predicted + gold, of each label. The array is
    empty if the trials did not predict the same texts.
    """
    by_fold: dict[int | None, list[np.ndarray]] = {}
    label_ids = {label: i for i, label in enumerate(labels or ())}
    width = 2 * len(label_ids) or 2
    for trial in trials:
        answers = trial.read_predictions()
        by_label = labels is not None
        rows: list[np.ndarray | tuple[float, float]] = [
            _answer_label_counts(a, label_ids) if by_label else answer_terms(a, metric)
            for a in answers
        ]
        by_fold.setdefault(trial.fold, []).append(np.array(rows, float).reshape(-1, width))
    if any(len({len(rows) for rows in seeds}) > 1 for seeds in by_fold.values()):
        return np.zeros((0, width))
    folds = sorted(by_fold.items(), key=lambda item: item[0] or 0)
    return np.concatenate([np.mean(seeds, axis=0) for _, seeds in folds])


def pooled_metric(trials: Sequence[Trial], metric: str) -> float | None:
    """Return the metric over the sentences of all folds; None for labels of whole texts."""
    if "structure" not in next(trials[0].read_predictions(), {}):
        return None
    sums = count_per_text(trials, metric).sum(0)
    return float(safe_divide(sums[:1], sums[1:])[0])


def answer_terms(answer: SavedAnswer, metric: str = "") -> tuple[float, float]:
    """Return the numerator and denominator that one line of predictions.jsonl adds."""
    if "structure" in answer:
        predicted, gold = (Annotation.from_json(answer[side]) for side in ("structure", "gold"))
        return ratio_terms(predicted, gold, metric)
    return answer_score(answer["value"], answer["label"]), 1.0


def _answer_label_counts(answer: SavedAnswer, label_ids: Mapping[str, int]) -> np.ndarray:
    """Return the (2C,) true positives, and predicted + gold, that one prediction adds."""
    out = np.zeros((2, len(label_ids)))
    predicted, gold = (
        {label_ids[label] for label in _label_set(answer[side])} for side in ("value", "label")
    )
    out[0, sorted(predicted & gold)] = 1
    for ids in (predicted, gold):
        out[1, sorted(ids)] += 1
    return out.reshape(-1)


def paired_ratios(a: np.ndarray, b: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Return the two-sided p-value for two systems with (n, 2) counts on the same texts.

    Texts are resampled and the ratios of sums recomputed: F1 is not a mean over texts. The
    difference is centred on zero, as in `paired_bootstrap`, the case of all denominators 1.
    """
    if len(a) and (a[:, 1] == 1).all() and (b[:, 1] == 1).all():
        return paired_bootstrap(a[:, 0], b[:, 0], resamples, seed)
    return _paired_p_value(a, b, lambda sums: safe_divide(sums[:, 0], sums[:, 1]), resamples, seed)


def paired_macro_f1(a: np.ndarray, b: np.ndarray, resamples: int = 2000, seed: int = 0) -> float:
    """Return the two-sided p-value of a macro-F1 difference, from (n, 2C) counts."""
    return _paired_p_value(a, b, macro_f1, resamples, seed)


def macro_f1(sums: np.ndarray) -> np.ndarray:
    """Return (R,) mean F1 over the labels that occur, from (R, 2C) counts."""
    correct, total = np.split(sums, 2, axis=1)
    occurs = total > 0
    f1 = np.divide(2 * correct, total, out=np.zeros_like(correct), where=occurs)
    means: np.ndarray = f1.sum(1) / np.maximum(occurs.sum(1), 1)
    return means


def _paired_p_value(
    a: np.ndarray,
    b: np.ndarray,
    metric: Callable[[np.ndarray], np.ndarray],
    resamples: int,
    seed: int,
) -> float:
    """Return the two-sided p-value by resampling texts; `metric` takes (R, columns) sums."""
    assert a.shape == b.shape
    if not len(a):
        return 1.0
    rows, times = np.unique(np.hstack([a, b]), axis=0, return_counts=True)  # (P, columns of both)

    def gaps(block: np.ndarray) -> np.ndarray:
        mine, theirs = np.split(block @ rows, 2, axis=1)
        difference: np.ndarray = metric(mine) - metric(theirs)
        return difference

    observed = gaps(times[None].astype(float))[0]
    reached = 0
    for block in draw_resamples(times, resamples, seed):
        shifted = gaps(block.astype(float)) - observed
        reached += int((np.abs(shifted) >= abs(observed) - 1e-12).sum())
    return (1 + reached) / (1 + resamples)


def answer_score(value: Any, label: Any) -> float:
    """Score one prediction: 1 or 0, Jaccard overlap of sets, negative squared error of numbers."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return -((value - float(label)) ** 2)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], float):
        return -float(sum((x - float(y)) ** 2 for x, y in zip(value, label, strict=True)))
    if isinstance(value, (list, tuple)):
        predicted, gold = set(value), set(label if isinstance(label, (list, tuple)) else [label])
        return len(predicted & gold) / max(1, len(predicted | gold))
    return float(value == label)
