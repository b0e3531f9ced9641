"""Special tokens around one text or two: [CLS] a [SEP] b [SEP]."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that are no part of any text; of a second text `between` and its `after` are put.

    With `each`, both texts have a frame of their own, and nothing is between them.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    each: bool = False

    def num_added(self, pair: bool = False) -> int:
        """Return the number of ids added to a text, or to a pair in one row."""
        own = len(self.before) + len(self.after)
        return own + (len(self.between) if pair and not self.each else 0)

    def wrap(self, first: np.ndarray, second: np.ndarray | None = None) -> tuple[np.ndarray, int]:
        """The ids with everything around them, and the step where the second text begins.

        The second text begins behind what stands between the two; with it, `after` comes once.
        """
        middle = [] if second is None else [*self._middle(), second]
        parts = [self.before, first, *middle, self.after]
        ids = np.concatenate([np.asarray(part, np.int32) for part in parts])
        start = 0 if second is None else len(self.before) + len(first) + len(self._middle()[0])
        return ids, start

    def spans(self, first: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
        """The places of the same ids: those of the frame are empty, at the beginning."""
        middle = [] if second is None else [*map(_empty_spans, self._middle()), second]
        parts = [_empty_spans(self.before), first, *middle, _empty_spans(self.after)]
        return np.concatenate(parts).astype(np.int32)

    def _middle(self) -> list[tuple[int, ...]]:
        """Return the ids that end the first of two texts, then those that begin the second."""
        return [self.after, self.before] if self.each else [self.between, ()]


NO_SPECIAL_TOKENS = SpecialTokens()


def _empty_spans(ids: tuple[int, ...]) -> np.ndarray:
    return np.zeros((len(ids), 2), np.int32)
