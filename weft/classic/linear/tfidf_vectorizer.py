"""Word and character n-grams of a text, counted and weighted as sparse TF-IDF rows.

The same rows as scikit-learn's TfidfVectorizer, without importing it: a saved model starts fast.
n texts   V n-grams
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

CACHED_WORDS = 50_000
MAX_NGRAM_LENGTH = 100  # tokens or characters of an n-gram
# Single characters and marks are kept: "?" and "!" say much about a question or a review.
TOKEN = re.compile(r"\w+|[^\w\s]")


def word_grams(text: str, low: int, high: int) -> list[str]:
    """Runs of `low` to `high` tokens, joined by a space."""
    tokens = TOKEN.findall(text)
    found = list(tokens) if low == 1 else []
    for n in range(max(low, 2), min(high, len(tokens)) + 1):
        found += map(" ".join, zip(*(tokens[i:] for i in range(n)), strict=False))
    return found


def character_grams(text: str, low: int, high: int) -> list[str]:
    """Runs of `low` to `high` characters inside each word, with a space for its edges."""
    return [gram for word in text.split() for gram in _inside(word, low, high)]


@lru_cache(CACHED_WORDS)
def _inside(word: str, low: int, high: int) -> tuple[str, ...]:
    word = f" {word} "
    found: list[str] = []
    for n in range(low, high + 1):
        found += [word[i : i + n] for i in range(max(1, len(word) - n + 1))]
        if n >= len(word):  # the whole word is counted once, however long n gets
            break
    return tuple(found)


Place = tuple[str, list[tuple[int, int]]]  # an n-gram and the spans of the tokens it is made of


def word_offsets(text: str, low: int, high: int) -> list[Place]:
    """The n-grams of `word_grams`, each with where its tokens stand."""
    tokens = [(match.group(), match.span()) for match in TOKEN.finditer(text)]
    sizes = range(low, min(high, len(tokens)) + 1)
    runs = [tokens[i : i + n] for n in sizes for i in range(len(tokens) - n + 1)]
    return [(" ".join(word for word, _ in run), [span for _, span in run]) for run in runs]


def character_offsets(text: str, low: int, high: int) -> list[Place]:
    """The n-grams of `character_grams`, each with the characters it covers.

    An n-gram that is nothing but the edge of a word counts for the character beside it.
    """
    out: list[Place] = []
    for match in re.finditer(r"\S+", text):
        start, size = match.start(), len(match.group())
        for gram, at in _inside_at(match.group(), low, high):
            first = min(max(at - 1, 0), size - 1)
            last = max(first + 1, min(at - 1 + len(gram), size))
            out.append((gram, [(start + first, start + last)]))
    return out


def _inside_at(word: str, low: int, high: int) -> list[tuple[str, int]]:
    """The n-grams of `_inside` with where they begin in " word "."""
    padded, out = f" {word} ", []
    for n in range(low, high + 1):
        out += [(padded[i : i + n], i) for i in range(max(1, len(padded) - n + 1))]
        if n >= len(padded):
            break
    return out


PLACES: dict[Callable[[str, int, int], list[str]], Callable[[str, int, int], list[Place]]] = {
    word_grams: word_offsets,
    character_grams: character_offsets,
}


def origins(text: str, lowered: str) -> Sequence[int]:
    """Return the offset in the original text of each character of its lower-cased form."""
    if len(lowered) == len(text):
        return range(len(text))
    # A few letters, such as İ, become two when lowered.
    return [i for i, letter in enumerate(text) for _ in letter.lower()]


class Grams:
    """One family of n-grams: its vocabulary, learned once, and the rows it gives."""

    def __init__(
        self,
        split: Callable[[str, int, int], list[str]],
        span: tuple[int, int],
        lowercase: bool,
        sublinear: bool,
    ) -> None:
        self.split = split
        self.span = span
        self.lowercase = lowercase
        self.sublinear = sublinear
        self.index: dict[str, int] = {}  # n-gram -> column, in alphabetical order
        self.idf = np.zeros(0, dtype=np.float64)  # (V,)

    def learn(self, texts: Iterable[str], minimum: int, size: int) -> "csr_matrix":
        """Take the vocabulary from the training texts and give their rows (n, V).

        Kept are n-grams of at least `minimum` texts, of these the `size` most frequent (0: all).
        """
        growing: defaultdict[str, int] = defaultdict()
        growing.default_factory = growing.__len__
        counts = self._count(texts, growing.__getitem__, growing)
        frequency = np.bincount(counts.indices, minlength=counts.shape[1])
        terms = list(growing)
        enough = np.flatnonzero(frequency >= minimum).tolist()
        kept = np.array(sorted(enough, key=terms.__getitem__), np.int64)
        if size and len(kept) > size:
            kept = kept[np.sort(np.argsort(-frequency[kept], kind="stable")[:size])]
        self.index = {terms[column]: i for i, column in enumerate(kept.tolist())}
        self.idf = np.log((1 + counts.shape[0]) / (1 + frequency[kept])) + 1
        counts = counts[:, kept]
        counts.sort_indices()
        return self._weigh(counts)

    def rows(self, texts: Iterable[str]) -> "csr_matrix":
        """Rows (n, V) of new texts; n-grams that training did not keep are left out."""
        if not self.index:
            return empty(sum(1 for _ in texts))
        return self._weigh(self._count(texts, self.index.get, self.index))

    def knows(self, word: str) -> bool:
        """Return whether an n-gram inside one word is in the vocabulary."""
        lowered = word.lower() if self.lowercase else word
        return any(gram in self.index for gram in self.split(lowered, *self.span))

    def places(self, text: str) -> list[tuple[int, list[tuple[int, int]]]]:
        """The column of each known n-gram in the text, with the spans of its tokens."""
        lowered = text.lower() if self.lowercase else text
        found = PLACES[self.split](lowered, *self.span)
        known = [(self.index[gram], spans) for gram, spans in found if gram in self.index]
        origin = origins(text, lowered)
        return [
            (column, [(origin[start], origin[end - 1] + 1) for start, end in spans])
            for column, spans in known
        ]

    def _count(
        self,
        texts: Iterable[str],
        look_up: Callable[[str], int | None],
        index: dict[str, int],
    ) -> "csr_matrix":
        from scipy.sparse import csr_matrix

        columns, ends = array("i"), array("q", [0])
        for text in texts:
            if self.lowercase:
                text = text.lower()
            found = map(look_up, self.split(text, *self.span))
            columns.extend([column for column in found if column is not None])
            ends.append(len(columns))
        indices = np.frombuffer(columns, dtype=np.int32)
        indptr = np.frombuffer(ends, dtype=np.int64)
        shape = (len(indptr) - 1, len(index))
        counts = csr_matrix((np.ones(len(indices)), indices.copy(), indptr.copy()), shape=shape)
        counts.sum_duplicates()
        return counts

    def _weigh(self, counts: "csr_matrix") -> "csr_matrix":
        """Counts to TF-IDF of length 1, in float32; a row without known n-grams stays zero."""
        values = 1 + np.log(counts.data) if self.sublinear else counts.data
        values = values * self.idf[counts.indices]
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        length = np.sqrt(np.bincount(row, values * values, minlength=counts.shape[0]))
        counts.data = (values / length[row]).astype(np.float32)
        return counts


def empty(rows: int) -> "csr_matrix":
    """Return the rows of a family that has no n-grams."""
    from scipy.sparse import csr_matrix

    return csr_matrix((rows, 0), dtype=np.float32)


def grams_cover(texts: Iterable[str], families: Iterable[Grams]) -> np.ndarray:
    """Return the fraction (n,) of each text's words that some known n-gram is in.

    It is 0 for a text without a word.
    """
    phrases: list[Grams] = []
    others: list[Grams] = []
    for family in families:
        several = family.split is word_grams and family.span[0] > 1
        (phrases if several else others).append(family)

    @lru_cache(CACHED_WORDS)
    def is_known(word: str) -> bool:
        return any(family.knows(word) for family in others)

    out = []
    for text in texts:
        words = [(match.group(), match.span()) for match in TOKEN.finditer(text)]
        spans = {span for f in phrases for _, some in f.places(text) for span in some}
        known = sum(span in spans or is_known(word) for word, span in words)
        out.append(known / len(words) if words else 0.0)
    return np.array(out, float)


def span(name: str, given: list[int]) -> tuple[int, int] | None:
    """The shortest and longest n-gram from a setting such as [1, 2]; nothing from []."""
    if not given:
        return None
    low, high = given[0], given[-1]
    if len(given) > 2 or not 1 <= low <= high <= MAX_NGRAM_LENGTH:
        raise UserError(
            f"classic 'tfidf': {name} is {given}; give the shortest and longest n-gram, "
            f"such as [1, 2], or [] for none; {MAX_NGRAM_LENGTH} is the longest."
        )
    return low, high
