"""The answer of several models to one question: the best span under their mean distributions.

S possible starts   L longest answer
"""

from collections.abc import Sequence

import numpy as np

from weft.tasks.extractive_qa import AnswerSpan, QASpace, TokenProbs


def average_spans(row: Sequence[AnswerSpan], weights: np.ndarray, space: QASpace) -> AnswerSpan:
    """Return the best span under p̄_start = Σ w_m p_m(start) and p̄_end, by character.

    Its score is log p̄_start + log p̄_end. It ends at most `longest` possible ends after its start:
    tokens, if all models find the same ones.
    """
    starts = _mean_tokens([one.starts for one in row], weights)
    ends = _mean_tokens([one.ends for one in row], weights)
    passage = next((one.passage for one in row if one.passage), "")
    if not starts or not ends:
        return AnswerSpan(passage, 0, 0, 0.0, 0.0, 0.0, 0.0)
    first, start_logps = _log_by_place(starts, 0)
    last, end_logps = _log_by_place(ends, 1)
    reach = np.searchsorted(last, first, side="right")[:, None] + np.arange(space.longest)  # (S, L)
    padded = np.append(end_logps, -np.inf)
    scores = start_logps[:, None] + padded[np.minimum(reach, len(last))]  # (S, L)
    best = int(scores.argmax())
    score = float(scores.flat[best])
    nothing = _log_nothing(starts) + _log_nothing(ends) if space.no_answer else -np.inf
    whole = float(np.logaddexp.reduce([*scores.ravel(), nothing]))
    start, end = int(first[best // space.longest]), int(last[min(reach.flat[best], len(last) - 1)])
    return AnswerSpan(
        passage, start, end, score, nothing,
        float(np.exp(score - whole)), float(np.exp(nothing - whole)), starts, ends,
    )  # fmt: skip


def _mean_tokens(sides: Sequence[TokenProbs], weights: np.ndarray) -> TokenProbs:
    """Return the mean probability of every token that one of the models finds."""
    total: dict[tuple[int, int], float] = {}
    for side, weight in zip(sides, weights.tolist(), strict=True):
        for start, end, prob in side:
            total[start, end] = total.get((start, end), 0.0) + weight * prob
    return tuple((*place, total[place]) for place in sorted(total))


def _log_by_place(tokens: TokenProbs, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places where tokens start (side 0) or end, in order, and log p̄ of each."""
    places, owners = np.unique([token[side] for token in tokens], return_inverse=True)
    sums = np.bincount(owners.reshape(-1), [token[2] for token in tokens], len(places))
    with np.errstate(divide="ignore"):
        return places, np.log(sums)


def _log_nothing(tokens: TokenProbs) -> float:
    """Return log p̄ of what the tokens leave to "no answer"."""
    total = sum(prob for _, _, prob in tokens)
    return float(np.log(max(1.0 - total, 1e-300)))
