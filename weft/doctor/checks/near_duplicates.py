"""Texts that are nearly the same: an alignment of their words decides, weighed by rarity."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from weft.doctor.checks.minhash import PURPOSE, candidate_pairs
from weft.doctor.checks.word_arrays import WordIndex
from weft.errors import optional_import

CERTAIN_SCORE = (
    0.82  # share of what is said that two texts have in common: the same whatever else there is
)
MIN_SCORE = 0.65  # the same when no third text is as close
MAX_RIVAL_RATIO = 0.8  # how close a third text may come, relative to the pair
MAX_SCORE = 0.999  # the most that a pair can reach: 1 is for texts that are equal
PUNCTUATION_DISCOUNT = 0.5  # of what a word says that stands where punctuation stood
WORDS_PER_EDIT = 6  # one word in six may differ, and one word of three to eleven
MIN_TEXT_WORDS = 3  # words; below, texts that differ in a word are different
CHUNK_PAIRS = 20_000  # pairs turned into Python numbers at a time


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two texts by number, the earlier first, and the share of what they say in common."""

    first: int
    second: int
    score: float


@dataclass(frozen=True, slots=True)
class _Similarity:
    score: float
    edits: int
    length: int


def find_near_pairs(corpus: WordIndex, texts: np.ndarray) -> list[NearPair]:
    """Pairs of nearly equal texts among the given ones, which must all be different.

    Words count by their rarity. "Who was Monet?" and "Who was Galileo?" share what every question
    shares and are not alike; "Who was Galileo?" and "Who is Galileo?" are. Between these, a pair is
    believed when it stands alone: the members of a template have many neighbours equally close.
    """
    weights = corpus.weights()
    pairs = candidate_pairs(corpus, texts, weights)
    align = optional_import("rapidfuzz.distance.Levenshtein", PURPOSE).opcodes
    scale = _WeightedTexts(corpus, weights)
    promising: dict[tuple[int, int], _Similarity] = {}
    for start in range(0, len(pairs), CHUNK_PAIRS):
        for first, second in pairs[start : start + CHUNK_PAIRS].tolist():
            if scale.feels(first) != scale.feels(second):
                continue  # "great :)" is not "great :("
            found = _compare(scale.words(first), scale.words(second), scale.says, align)
            if found.score >= MIN_SCORE and found.edits <= _max_edits(found.length):
                promising[first, second] = found
    unsure = [pair for pair, found in promising.items() if found.score < CERTAIN_SCORE]
    closest = _Neighbours(pairs, np.array(unsure, np.int64).ravel(), scale)
    return [
        NearPair(first, second, found.score)
        for (first, second), found in promising.items()
        if found.score >= CERTAIN_SCORE
        or (
            found.edits <= 1
            and closest.rival(first, second) <= MAX_RIVAL_RATIO * scale.jaccard(first, second)
        )
    ]


class _WeightedTexts:
    """Texts by number, and what their words weigh."""

    def __init__(self, corpus: WordIndex, weights: np.ndarray) -> None:
        self.words = corpus.text
        self._emoticons = corpus.emoticons()
        # A list answers much faster than an array, one word at a time.
        self.says: list[float] = weights.tolist()

    def feels(self, text: int) -> frozenset[int]:
        """The emoticons of a text."""
        return self._emoticons.intersection(self.words(text)) if self._emoticons else frozenset()

    def jaccard(self, one: int, other: int) -> float:
        """How much of what two texts say together both say, in whatever order."""
        a, b = set(self.words(one)), set(self.words(other))
        either = sum(self.says[w] for w in a | b)
        return sum(self.says[w] for w in a & b) / either if either else 0.0


class _Neighbours:
    """The neighbours of some texts, with how close they are."""

    def __init__(self, pairs: np.ndarray, texts: np.ndarray, scale: _WeightedTexts) -> None:
        self._near: dict[int, list[tuple[float, int]]] = {int(text): [] for text in texts}
        for one, other in pairs[np.isin(pairs, texts).any(1)].tolist():
            near = scale.jaccard(one, other)
            for mine, yours in ((one, other), (other, one)):
                if mine in self._near:
                    self._near[mine].append((near, yours))

    def rival(self, one: int, other: int) -> float:
        """How close a third text comes to either of the two."""
        around = (*self._near[one], *self._near[other])
        return max((near for near, who in around if who not in (one, other)), default=0.0)


def _compare(a: list[int], b: list[int], says: list[float], align: Any) -> _Similarity:
    words, others = set(a), set(b)
    changed = max(sum(1 for w in some if says[w]) for some in (words - others, others - words))
    if changed > max(1, len(a) // WORDS_PER_EDIT):
        return _Similarity(0.0, changed, len(a))  # most proposals end here: no alignment saves them
    length = min(sum(1 for w in side if says[w]) for side in (a, b))
    changes = list(_diff(a, b, align))
    common = sum(says[w] for w in a) - sum(says[w] for old, _ in changes for w in old)
    differing, edits = 0.0, 0
    for old, new in changes:
        lost, gained = ([says[w] for w in side if says[w]] for side in (old, new))
        spare = len(old) - len(lost) or len(new) - len(gained)  # punctuation that made room
        for one, two in zip_longest(lost, gained):
            if one is None or two is None:
                differing += (one or two or 0.0) * (PUNCTUATION_DISCOUNT if spare else 1)
            else:
                # A frequent word in the place of a rare one changes as little as the frequent says.
                differing += min(one, two)
        edits += max(len(lost), len(gained))
    total = common + differing
    return _Similarity(min(MAX_SCORE, common / total) if total else 0.0, edits, length)


def _max_edits(length: int) -> int:
    return 0 if length < MIN_TEXT_WORDS else max(1, length // WORDS_PER_EDIT)


def _diff(a: list[int], b: list[int], align: Any) -> Iterator[tuple[list[int], list[int]]]:
    """(old words, new words) of each stretch in which two texts differ."""
    i = k = 0  # where the last common stretch ended
    for tag, start, stop, other, end in align(a, b):
        if tag == "equal":
            if start > i or other > k:
                yield a[i:start], b[k:other]
            i, k = stop, end
    if i < len(a) or k < len(b):
        yield a[i:], b[k:]
