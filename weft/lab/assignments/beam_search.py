"""Assignment: greedy and beam search over a table of next-word probabilities."""

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
A decoder gives the log-probability of every next word. Here it is a bigram table: row $v$ of
`log_probs` (V, V) holds $\log P(w \mid v)$. A text begins after the word 0 and ends with the word
1, which is part of the text; the word 0 is not. A text without the word 1 ends when it is
`max_length` words long.

Of two hypotheses of the same score, the one whose list of words is smaller (as Python compares
lists) is the better one.
"""


def greedy(log_probs: np.ndarray, max_length: int) -> tuple[list[int], float]:
    """Return the words that take the most probable next word each time, and their log-probability.

    Of equal words the first is taken.
    """
    words: list[int] = []
    total, last = 0.0, 0
    while len(words) < max_length and last != 1:
        last_row = log_probs[last]
        last = int(last_row.argmax())
        total += float(last_row[last])
        words.append(last)
    return words, total


def expand(
    beams: list[tuple[list[int], float]], log_probs: np.ndarray, width: int
) -> list[tuple[list[int], float]]:
    """Return the `width` best hypotheses that are one word longer, best first.

    A hypothesis is (words, log-probability); none of `beams` has ended. Words of probability zero
    are no hypothesis.
    """
    longer = [
        ([*words, word], total + float(log_prob))
        for words, total in beams
        for word, log_prob in enumerate(log_probs[words[-1] if words else 0])
        if log_prob > -np.inf
    ]
    return sorted(longer, key=lambda one: (-one[1], one[0]))[:width]


def beam_search(
    log_probs: np.ndarray, width: int, max_length: int, alpha: float
) -> list[tuple[list[int], float]]:
    """Return the `width` best finished texts, each with its score, best first.

    In every step the hypotheses that have not ended are expanded, and the best `width` are kept.
    Those of them that end with the word 1 are finished, and so are all when they are `max_length`
    long; the others go on. The search stops when none is left. The score of a finished text is its
    log-probability divided by its length to the power `alpha`.
    """
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    finished = []
    for length in range(1, max_length + 1):
        kept = expand(beams, log_probs, width)
        ended = [one for one in kept if one[0][-1] == 1 or length == max_length]
        finished += [(words, total / length**alpha) for words, total in ended]
        beams = [one for one in kept if one[0][-1] != 1]
    return sorted(finished, key=lambda one: (-one[1], one[0]))[:width]


def _draw_table(rng: np.random.Generator) -> np.ndarray:
    size = int(rng.integers(3, 7))
    return np.log(rng.dirichlet(np.ones(size), size))


def _draw_greedy(rng: np.random.Generator) -> Arguments:
    return [_draw_table(rng), int(rng.integers(1, 9))]


def _draw_beams(rng: np.random.Generator) -> Arguments:
    table, length = _draw_table(rng), int(rng.integers(1, 4))
    beams = [
        ([int(word) for word in rng.integers(2, len(table), length)], float(-rng.exponential()))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return [beams, table, int(rng.integers(1, 6))]


def _draw_search(rng: np.random.Generator) -> Arguments:
    alpha = float(rng.choice([0.0, 0.6, 1.0]))
    return [_draw_table(rng), int(rng.integers(1, 6)), int(rng.integers(1, 9)), alpha]


# Greedy takes 2 first; the best text begins with 3.
_TABLE = np.log(np.array([
    [0.05, 0.05, 0.5, 0.4], [0.25, 0.25, 0.25, 0.25], [0.3, 0.3, 0.2, 0.2],
    [0.05, 0.85, 0.05, 0.05],
]))  # fmt: skip
ASSIGNMENT = Assignment(
    "beam-search",
    "Beam search",
    ("000", "001"),
    TEXT,
    (
        Part(greedy, 2, _draw_greedy, ([_TABLE, 4],)),
        Part(expand, 3, _draw_beams, ([[([2], -0.7), ([3], -0.9)], _TABLE, 3],)),
        Part(beam_search, 5, _draw_search, ([_TABLE, 2, 4, 0.0], [_TABLE, 3, 4, 1.0])),
    ),
)
