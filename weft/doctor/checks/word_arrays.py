"""Many texts as numbered words in flat arrays: four bytes a word, so that a million fit."""

from array import array
from collections.abc import Sequence

import numpy as np

from weft.doctor.words import is_emoticon

MAX_TEXT_WORDS = 256  # words kept of a text: its beginning and its end
MIN_WORD_COUNT = 5  # words that occur less often than this say equally much


class WordIndex:
    """Texts by number, their words by number, and how much each word says."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._flat = array("i")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, words: Sequence[str]) -> None:
        """The next text."""
        if len(words) > MAX_TEXT_WORDS:
            words = [*words[: MAX_TEXT_WORDS // 2], *words[-MAX_TEXT_WORDS // 2 :]]
        numbers = self._numbers
        self._flat.extend([numbers.setdefault(word, len(numbers)) for word in words])
        self._ends.append(len(self._flat))

    def text(self, number: int) -> list[int]:
        """The words of one text."""
        return self._flat[self._ends[number] : self._ends[number + 1]].tolist()

    def words(self, numbers: Sequence[int]) -> list[str]:
        """Words by their numbers."""
        known = list(self._numbers)
        return [known[number] for number in numbers]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The word numbers of all texts in a row, and where each text ends (a leading 0)."""
        flat = np.frombuffer(self._flat, np.int32) if self._flat else np.zeros(0, np.int32)
        return flat, np.frombuffer(self._ends, np.int64)

    def emoticons(self) -> frozenset[int]:
        """The numbers of the words that are emoticons or emoji."""
        return frozenset(number for word, number in self._numbers.items() if is_emoticon(word))

    def weights(self) -> np.ndarray:
        """What each word says: much when it is rare, nothing when it is punctuation."""
        flat, _ = self.arrays()
        often = np.bincount(flat, minlength=len(self._numbers))
        weights = np.log1p(len(self) / np.maximum(often, MIN_WORD_COUNT))
        marks = [number for word, number in self._numbers.items() if not word[-1].isalnum()]
        weights[marks] = 0.0
        return weights
