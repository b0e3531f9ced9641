"""Words tagged unlike the same word between the same neighbours elsewhere.

After the variation n-grams of Dickinson and Meurers (2003): what varies inside an identical context
is more often a mistake than an ambiguity. Here the context is one word on each side; of spans in
running text it is the span itself, which says less.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.text.annotation.schemes import Span

MIN_FREQUENCY_RATIO = 5  # times as frequent another tag of the same context must be, at least
MAX_WORDS = 10_000_000  # words looked at: twenty bytes each


@dataclass(frozen=True)
class InconsistentTag:
    """A word (or span) of a row, its tag, and the tag that it has elsewhere so many times."""

    row: int
    place: int
    tag: str
    usual: str
    times: int


class TagVariation:
    """The tag of every word with its context, as numbers."""

    def __init__(self) -> None:
        self._context = array("q")
        self._tag = array("i")
        self._row = array("i")
        self._place = array("i")
        self._tags: dict[str, int] = {}

    def take(self, row: int, words: Sequence[str], tags: Sequence[str]) -> None:
        """One sentence."""
        if len(self._tag) + len(words) > MAX_WORDS:
            return
        around = ("", *words, "")
        contexts = (hash(three) for three in zip(around, words, around[2:], strict=False))
        self._add(row, contexts, tags)

    def take_spans(self, row: int, text: str, spans: Sequence[Span]) -> None:
        """The spans of one text."""
        if len(self._tag) + len(spans) <= MAX_WORDS:
            covered = (hash(text[span.start : span.end]) for span in spans)
            self._add(row, covered, [span.label for span in spans])

    def _add(self, row: int, contexts: Iterator[int], tags: Sequence[str]) -> None:
        numbers = self._tags
        self._context.extend(contexts)
        self._tag.extend([numbers.setdefault(tag, len(numbers)) for tag in tags])
        self._row.extend([row] * len(tags))
        self._place.extend(range(len(tags)))

    def odd(self) -> list[InconsistentTag]:
        """Every tag that is rare in its context, in the order of the texts."""
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
        best = order[last]  # the commonest tag of each context, in the order of contexts
        most, usual = counts[best], pairs[best] % width
        rare = counts * MIN_FREQUENCY_RATIO <= most[owner]
        names = list(self._tags)
        return [
            InconsistentTag(
                self._row[i], self._place[i], names[self._tag[i]],
                names[usual[group[i]]], int(most[group[i]]),
            )
            for i in np.flatnonzero(rare[which]).tolist()
        ]  # fmt: skip
