"""Find words tagged differently from the same word in the same context elsewhere.

After the variation n-grams of Dickinson and Meurers (2003): variation in an identical context is
more often a mistake than an ambiguity. The context is one word on each side; for spans in running
text it is the span itself, which is weaker evidence.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.text.annotation.schemes import Span

MIN_FREQUENCY_RATIO = 5  # of the usual tag in a context to the inconsistent one
MAX_WORDS = 10_000_000  # compared: twenty bytes each


@dataclass(frozen=True)
class InconsistentTag:
    """A word (or span) of a row with its tag, and the usual tag elsewhere with its count."""

    row: int
    word: int
    tag: str
    usual_tag: str
    usual_count: int


class TagVariation:
    """The tag and context of every word, as numbers."""

    def __init__(self) -> None:
        self._context = array("q")
        self._tag = array("i")
        self._row = array("i")
        self._word = array("i")
        self._tags: dict[str, int] = {}

    def add_sentence(self, row: int, words: Sequence[str], tags: Sequence[str]) -> None:
        """Add a sentence."""
        if len(self._tag) + len(words) > MAX_WORDS:
            return
        around = ("", *words, "")
        contexts = (hash(three) for three in zip(around, words, around[2:], strict=False))
        self._add(row, contexts, tags)

    def add_spans(self, row: int, text: str, spans: Sequence[Span]) -> None:
        """Add the spans of a text."""
        if len(self._tag) + len(spans) <= MAX_WORDS:
            covered = (hash(text[span.start : span.end]) for span in spans)
            self._add(row, covered, [span.label for span in spans])

    def _add(self, row: int, contexts: Iterator[int], tags: Sequence[str]) -> None:
        numbers = self._tags
        self._context.extend(contexts)
        self._tag.extend([numbers.setdefault(tag, len(numbers)) for tag in tags])
        self._row.extend([row] * len(tags))
        self._word.extend(range(len(tags)))

    def find_inconsistent(self) -> list[InconsistentTag]:
        """Return every tag that is rare in its context, in text order."""
        if not self._tag:
            return []
        _, group = np.unique(np.frombuffer(self._context, np.int64), return_inverse=True)
        tag = np.frombuffer(self._tag, np.int32).astype(np.int64)
        width = len(self._tags)
        pairs, which, counts = np.unique(
            group * width + tag, return_inverse=True, return_counts=True
        )
        owner = pairs // width  # the context of each pair
        order = np.lexsort((counts, owner))
        last = np.r_[np.flatnonzero(np.diff(owner[order])), len(order) - 1]
        best = order[last]  # the most frequent tag of each context
        most, usual = counts[best], pairs[best] % width
        rare = counts * MIN_FREQUENCY_RATIO <= most[owner]
        names = list(self._tags)
        return [
            InconsistentTag(
                self._row[i], self._word[i], names[self._tag[i]],
                names[usual[group[i]]], int(most[group[i]]),
            )
            for i in np.flatnonzero(rare[which]).tolist()
        ]  # fmt: skip
