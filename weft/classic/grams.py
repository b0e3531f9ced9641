"""Word and character n-grams of a text, counted and weighted as sparse TF-IDF rows.

The same rows as scikit-learn's TfidfVectorizer, without importing it: a saved model starts fast.
n texts   V n-grams
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Single characters and marks are kept: "?" and "!" say much about a question or a review.
TOKEN = re.compile(r"\w+|[^\w\s]")


def word_grams(text: str, low: int, high: int) -> list[str]:
    """Runs of `low` to `high` tokens, joined by a space."""
    tokens = TOKEN.findall(text)
    found = list(tokens) if low == 1 else []
    for n in range(max(low, 2), high + 1):
        found += map(" ".join, zip(*(tokens[i:] for i in range(n)), strict=False))
    return found


def character_grams(text: str, low: int, high: int) -> list[str]:
    """Runs of `low` to `high` characters inside each word, with a space for its edges."""
    return [gram for word in text.split() for gram in _inside(word, low, high)]


@lru_cache(maxsize=50_000)
def _inside(word: str, low: int, high: int) -> tuple[str, ...]:
    word = f" {word} "
    found: list[str] = []
    for n in range(low, high + 1):
        found += [word[i : i + n] for i in range(max(1, len(word) - n + 1))]
        if n >= len(word):  # the whole word is counted once, however long n gets
            break
    return tuple(found)


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
        terms = np.fromiter(growing, dtype=object, count=len(growing))
        kept = np.flatnonzero(frequency >= minimum)
        kept = kept[np.argsort(terms[kept], kind="stable")]
        if size and len(kept) > size:
            kept = kept[np.sort(np.argsort(-frequency[kept], kind="stable")[:size])]
        self.index = {term: i for i, term in enumerate(terms[kept])}
        self.idf = np.log((1 + counts.shape[0]) / (1 + frequency[kept])) + 1
        counts = counts[:, kept]
        counts.sort_indices()
        return self._weigh(counts)

    def rows(self, texts: Iterable[str]) -> "csr_matrix":
        """Rows (n, V) of new texts; n-grams that training did not keep are left out."""
        return self._weigh(self._count(texts, self.index.get, self.index))

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


def span(name: str, given: list[int]) -> tuple[int, int] | None:
    """The shortest and longest n-gram from a setting such as [1, 2]; nothing from []."""
    if not given:
        return None
    low, high = given[0], given[-1]
    if len(given) > 2 or not 1 <= low <= high:
        raise UserError(
            f"classic 'tfidf': {name} is {given}; give the shortest and longest n-gram, "
            "such as [1, 2], or [] for none."
        )
    return low, high
