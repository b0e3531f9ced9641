"""Assignment: Viterbi and the partition function of a linear-chain CRF."""

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
A linear-chain CRF scores a sequence of tags $y_1 \dots y_T$ by

$$s(y) = \sum_{t=1}^{T} e_t(y_t) + \sum_{t=2}^{T} A[y_{t-1}, y_t]$$

with emissions $e$ of shape (T, C) and transitions $A$ of shape (C, C), from row to column. There
are $C^T$ sequences; dynamic programming needs $T \cdot C^2$ steps. The hidden cases are too long to
enumerate.
"""


def sequence_score(tags: list[int], emissions: np.ndarray, transitions: np.ndarray) -> float:
    """Return the score s(y) of a sequence of T tags."""
    steps = emissions[np.arange(len(tags)), tags].sum()
    return float(steps + transitions[tags[:-1], tags[1:]].sum())


def viterbi(emissions: np.ndarray, transitions: np.ndarray) -> tuple[list[int], float]:
    """Return the best sequence of tags, as a list of T numbers, and its score."""
    best, back = emissions[0], []
    for step in emissions[1:]:
        scores = best[:, None] + transitions
        back.append(scores.argmax(0))
        best = scores.max(0) + step
    tags = [int(best.argmax())]
    for pointers in reversed(back):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], float(best.max())


def log_partition(emissions: np.ndarray, transitions: np.ndarray) -> float:
    """Return log Σ_y exp s(y) over all sequences; scores may be as large as 1000."""
    total = emissions[0]
    for step in emissions[1:]:
        total = np.logaddexp.reduce(total[:, None] + transitions, axis=0) + step
    return float(np.logaddexp.reduce(total))


def marginals(emissions: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """Return the probability of each tag at each step (T, C), by forward–backward."""
    forward, backward = [emissions[0]], [np.zeros(emissions.shape[1])]
    for step in emissions[1:]:
        before = forward[-1][:, None] + transitions
        forward.append(np.logaddexp.reduce(before, axis=0) + step)
    for step in emissions[:0:-1]:
        after = transitions + (step + backward[-1])
        backward.append(np.logaddexp.reduce(after, axis=1))
    both = np.array(forward) + np.array(backward[::-1])
    return np.exp(both - np.logaddexp.reduce(forward[-1]))


def _draw_chain(rng: np.random.Generator) -> Arguments:
    steps, tags = int(rng.integers(1, 40)), int(rng.integers(2, 7))
    scale = float(rng.choice([1.0, 200.0]))
    return [scale * rng.normal(size=(steps, tags)), scale * rng.normal(size=(tags, tags))]


def _draw_scored(rng: np.random.Generator) -> Arguments:
    emissions, transitions = _draw_chain(rng)
    return [rng.integers(0, len(transitions), len(emissions)).tolist(), emissions, transitions]


_CHAIN: Arguments = [
    np.array([[1.0, 0.0], [0.0, 0.5], [2.0, 0.0]]), np.array([[0.0, 1.0], [-1.0, 0.5]]),
]  # fmt: skip
ASSIGNMENT = Assignment(
    "viterbi",
    "Viterbi and the partition function",
    ("000", "001", "004"),
    TEXT,
    (
        Part(sequence_score, 1, _draw_scored, ([[0, 1, 0], *_CHAIN],)),
        Part(viterbi, 4, _draw_chain, (_CHAIN, [_CHAIN[0][:1], _CHAIN[1]])),
        Part(log_partition, 2, _draw_chain, (_CHAIN,)),
        Part(marginals, 3, _draw_chain, (_CHAIN,)),
    ),
)
