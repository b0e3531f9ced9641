"""Tables of predicates and roles, without a network: marks of words, spans from tags, status.

Importable without torch. T words   n predicates   L lines of a table   G groups of lemmas
K senses of one group
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.text.annotation.frames import Frames
from weft.text.annotation.senses import SenseInventory
from weft.text.example import Label

NO_SPAN = -1  # start and end of a line that is a predicate
UNKNOWN_SENSE = -1
# Predicates in a decoded table: found by the model; given; given, and found as well; found in a
# sentence whose predicates are given, but not one of them.
FOUND, GIVEN, GIVEN_AND_FOUND, EXTRA = 0, 1, 2, 3
IS_GIVEN, LEMMAS = 0, 1  # columns of marks
NOT_TOLD = -1  # mark of a word in a sentence without given predicates
MAX_DECODED_STEPS = 1 << 15  # words of all predicates that are labelled at once
FORBIDDEN = -1e4  # an emission that no path takes unless all do
VERB_GAIN = 1e6  # more than all other spans together, so that the predicate has its V
MIN_PROB = 1e-12  # of a tag, so that its logarithm is finite
WIDTH = 4  # of a table: a predicate, its sense, -1 and FOUND …; or a predicate, a role, start, end


@dataclass(frozen=True)
class RoleSpan:
    """A labelled span of words, and its probability."""

    role: int
    start: int
    end: int
    prob: float


def mark_words(words: Sequence[str], label: Label, inventory: SenseInventory) -> np.ndarray:
    """Return (T, 2): whether a file says that a word is a predicate, and its lemmas."""
    marks = np.full((len(words), 2), NOT_TOLD, np.int64)
    marks[:, LEMMAS] = [inventory.group_of(word) for word in words]
    if isinstance(label, Frames):
        marks[:, IS_GIVEN] = 0
        marks[[one.word for one in label.predicates], IS_GIVEN] = 1
    return marks


def sense_candidates(inventory: SenseInventory) -> np.ndarray:
    """Return the senses (G, K) of each group of lemmas, -1 behind the last."""
    groups = [inventory.candidates(group) for group in range(len(inventory.groups))]
    table = np.full((len(groups), max(1, *map(len, groups))), UNKNOWN_SENSE, np.int64)
    for row, senses in zip(table, groups, strict=True):
        row[: len(senses)] = senses
    return table


def read_tags(tags: np.ndarray, log_probs: np.ndarray) -> list[list[RoleSpan]]:
    """Return the spans of BIO tags (n, T), O in the padding, of each row.

    The probability of a span is the geometric mean over its words.
    """
    n, steps = tags.shape
    flat = np.concatenate([tags, np.zeros((n, 1), tags.dtype)], axis=1).ravel()  # rows stay apart
    # Sums over all rows: in single precision, a span would lose digits by what stands before it.
    wide = np.pad(log_probs.astype(np.float64), ((0, 0), (0, 1)))
    sums = np.concatenate([[0.0], np.cumsum(wide.ravel())])
    starts = np.flatnonzero(flat % 2 == 1)
    borders = np.flatnonzero((flat == 0) | (flat % 2 == 1))  # where no span goes on
    ends = borders[np.searchsorted(borders, starts + 1)]
    probs = np.exp((sums[ends] - sums[starts]) / (ends - starts))
    rows, first = starts // (steps + 1), starts % (steps + 1)
    columns = (rows, (flat[starts] - 1) // 2, first, first + ends - starts, probs)
    out: list[list[RoleSpan]] = [[] for _ in range(n)]
    for row, role, start, end, prob in zip(*(column.tolist() for column in columns), strict=True):
        out[row].append(RoleSpan(role, start, end, prob))
    return out


def best_disjoint(spans: Sequence[tuple[RoleSpan, float]]) -> list[RoleSpan]:
    """Return the spans that do not overlap and gain most together, by start."""
    order = sorted(spans, key=lambda one: (one[0].end, one[0].start))
    ends = [one.end for one, _ in order]
    best: list[tuple[float, tuple[RoleSpan, ...]]] = [(0.0, ())]  # of the first k spans
    for k, (span, gain) in enumerate(order):
        before = int(np.searchsorted(ends[:k], span.start, side="right"))
        total, chosen = best[before]
        best.append(max(best[-1], (total + gain, (*chosen, span)), key=lambda one: one[0]))
    return list(best[-1][1])


def predicate_chunks(chosen: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows and words that are chosen in (B, T), a bounded number of steps at once."""
    rows, words = chosen.nonzero()
    size = max(1, MAX_DECODED_STEPS // max(chosen.shape[1], 1))
    for at in range(0, len(rows), size):
        yield rows[at : at + size], words[at : at + size]


def predicate_status(given: int, found: bool) -> int:
    """Return what a table says of a predicate: whether it was found, given, or both."""
    if given == NOT_TOLD:
        return FOUND
    if given:
        return GIVEN_AND_FOUND if found else GIVEN
    return EXTRA
