"""The label of one word in a classic CRF: its marginal log-probability.

T words   C choices   M ways to hide words
"""

from dataclasses import dataclass

import numpy as np

from weft.protocols import ClassicModel
from weft.text.example import Example


@dataclass(frozen=True)
class ChainTarget:
    """One word of a sentence under a classic CRF, with the labels that its rules allow there."""

    part: ClassicModel
    example: Example
    step: int
    column: int  # of tags
    choices: tuple[int, ...]  # (C,) the numbers of the labels, without what is forbidden here
    first: int = 0  # the first word of the sentence that is read

    @property
    def words(self) -> np.ndarray:
        """(T,) the steps that are words."""
        return np.arange(len(self.example.words))

    def scores(self, hidden: np.ndarray) -> np.ndarray:
        """(M, C) the log-probability of each choice while words (M, T) are hidden."""
        found = self.part.label_scores(self.example, hidden, self.step, self.column)
        return found[:, list(self.choices)]

    def probs(self, hidden: np.ndarray) -> np.ndarray:
        """(M, C) the probabilities of the choices while words (M, T) are hidden."""
        return np.asarray(np.exp(self.scores(hidden)))


def make_chain_target(part: ClassicModel, example: Example, step: int, column: int) -> ChainTarget:
    """The target of one word of a sentence."""
    nothing = np.zeros((1, len(example.words)), bool)
    scores = part.label_scores(example, nothing, step, column)[0]
    possible = tuple(np.flatnonzero(np.isfinite(scores)).tolist())
    return ChainTarget(part, example, step, column, possible)


def chain_probs(part: ClassicModel, example: Example, column: int, labels: int) -> np.ndarray:
    """(T, C) the probability of every label of every word."""
    size = len(example.words)
    nothing = np.zeros((1, size), bool)
    out = np.zeros((size, labels))
    for step in range(size):
        scores = part.label_scores(example, nothing, step, column)[0]
        out[step, : len(scores)] = np.exp(scores)
    return out
