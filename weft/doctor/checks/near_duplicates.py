"""Find near-duplicate texts by aligning their words, weighted by rarity."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from weft.doctor.checks.minhash import PURPOSE, candidate_pairs
from weft.doctor.checks.word_arrays import WordIndex
from weft.errors import optional_import

CERTAIN_SCORE = 0.82  # of a near duplicate, whatever its neighbours
MIN_SCORE = 0.65  # of a near duplicate without a close third text
MAX_RIVAL_RATIO = 0.8  # similarity of a third text, relative to the pair
MAX_SCORE = 0.999  # of near duplicates: 1 is for equal texts
PUNCTUATION_DISCOUNT = 0.5  # on the weight of a word that replaces punctuation
WORDS_PER_EDIT = 6  # one word in six may differ, at least one from three words on
MIN_TEXT_WORDS = 3  # shorter texts must be equal
CHUNK_PAIRS = 20_000  # converted to Python numbers at a time

# Two texts -> (operation, start, end, start in the second, end in the second), as rapidfuzz's.
Aligner = Callable[[list[int], list[int]], Iterable[tuple[str, int, int, int, int]]]


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two texts by number, the earlier first, and their weighted overlap."""

    first: int
    second: int
    score: float


@dataclass(frozen=True, slots=True)
class _Similarity:
    score: float
    edits: int
    length: int


def find_near_pairs(corpus: WordIndex, texts: np.ndarray) -> list[NearPair]:
    """Return pairs of near duplicates among the given texts, which must be distinct.

    Words count by their rarity. "Who was Monet?" and "Who was Galileo?" share only common words
    and are not similar; "Who was Galileo?" and "Who is Galileo?" are. In between, a pair counts if
    it stands alone: instances of a template have many equally close neighbours.
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
            similarity = _compare(scale.words(first), scale.words(second), scale.says, align)
            if similarity.score >= MIN_SCORE and similarity.edits <= _max_edits(similarity.length):
                promising[first, second] = similarity
    unsure = [pair for pair, similarity in promising.items() if similarity.score < CERTAIN_SCORE]
    closest = _Neighbours(pairs, np.array(unsure, np.int64).ravel(), scale)
    return [
        NearPair(first, second, similarity.score)
        for (first, second), similarity in promising.items()
        if similarity.score >= CERTAIN_SCORE
        or (
            similarity.edits <= 1
            and closest.rival(first, second) <= MAX_RIVAL_RATIO * scale.jaccard(first, second)
        )
    ]


class _WeightedTexts:
    """Texts by number, with word weights."""

    def __init__(self, corpus: WordIndex, weights: np.ndarray) -> None:
        self.words = corpus.text
        self._emoticons = corpus.emoticons()
        # Indexing a list is much faster than an array.
        self.says: list[float] = weights.tolist()

    def feels(self, text: int) -> frozenset[int]:
        """Return the emoticons of a text."""
        return self._emoticons.intersection(self.words(text)) if self._emoticons else frozenset()

    def jaccard(self, one: int, other: int) -> float:
        """Return the weighted Jaccard similarity of two texts."""
        a, b = set(self.words(one)), set(self.words(other))
        total = sum(self.says[w] for w in a | b)
        return sum(self.says[w] for w in a & b) / total if total else 0.0


class _Neighbours:
    """The neighbours of texts and their similarity."""

    def __init__(self, pairs: np.ndarray, texts: np.ndarray, scale: _WeightedTexts) -> None:
        self._near: dict[int, list[tuple[float, int]]] = {int(text): [] for text in texts}
        for one, other in pairs[np.isin(pairs, texts).any(1)].tolist():
            near = scale.jaccard(one, other)
            for mine, yours in ((one, other), (other, one)):
                if mine in self._near:
                    self._near[mine].append((near, yours))

    def rival(self, one: int, other: int) -> float:
        """Return the highest similarity of a third text to either of the two."""
        around = (*self._near[one], *self._near[other])
        return max((near for near, who in around if who not in (one, other)), default=0.0)


def _compare(a: list[int], b: list[int], weights: list[float], align: Aligner) -> _Similarity:
    words, others = set(a), set(b)
    changed = max(sum(1 for w in some if weights[w]) for some in (words - others, others - words))
    if changed > max(1, len(a) // WORDS_PER_EDIT):
        return _Similarity(0.0, changed, len(a))  # most candidates end here, without an alignment
    length = min(sum(1 for w in side if weights[w]) for side in (a, b))
    changes = list(_diff(a, b, align))
    common = sum(weights[w] for w in a) - sum(weights[w] for old, _ in changes for w in old)
    differing, edits = 0.0, 0
    for old, new in changes:
        lost, gained = ([weights[w] for w in side if weights[w]] for side in (old, new))
        spare = len(old) - len(lost) or len(new) - len(gained)  # replaced punctuation
        for one, two in zip_longest(lost, gained):
            if one is None or two is None:
                differing += (one or two or 0.0) * (PUNCTUATION_DISCOUNT if spare else 1)
            else:
                # Replacing a rare word by a frequent one counts as the frequent one.
                differing += min(one, two)
        edits += max(len(lost), len(gained))
    total = common + differing
    return _Similarity(min(MAX_SCORE, common / total) if total else 0.0, edits, length)


def _max_edits(length: int) -> int:
    return 0 if length < MIN_TEXT_WORDS else max(1, length // WORDS_PER_EDIT)


def _diff(a: list[int], b: list[int], align: Aligner) -> Iterator[tuple[list[int], list[int]]]:
    """Yield (old words, new words) of each differing stretch."""
    i = k = 0  # ends of the last common stretch
    for tag, start, stop, other, end in align(a, b):
        if tag == "equal":
            if start > i or other > k:
                yield a[i:start], b[k:other]
            i, k = stop, end
    if i < len(a) or k < len(b):
        yield a[i:], b[k:]
