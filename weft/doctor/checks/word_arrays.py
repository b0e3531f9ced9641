"""Texts as word ids in flat arrays, four bytes per word, so that a million texts fit."""

from array import array
from collections.abc import Sequence

import numpy as np

from weft.doctor.words import is_emoticon

MAX_TEXT_WORDS = 256  # kept: the beginning and the end
MIN_WORD_COUNT = 5  # rarer words have equal weight


class WordIndex:
    """Texts as word ids, with word weights."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._flat = array("i")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, words: Sequence[str]) -> None:
        """Add a text."""
        if len(words) > MAX_TEXT_WORDS:
            words = [*words[: MAX_TEXT_WORDS // 2], *words[-MAX_TEXT_WORDS // 2 :]]
        numbers = self._numbers
        self._flat.extend([numbers.setdefault(word, len(numbers)) for word in words])
        self._ends.append(len(self._flat))

    def text(self, number: int) -> list[int]:
        """Return the word ids of one text."""
        return self._flat[self._ends[number] : self._ends[number + 1]].tolist()

    def words(self, numbers: Sequence[int]) -> list[str]:
        """Return words by their ids."""
        vocabulary = list(self._numbers)
        return [vocabulary[number] for number in numbers]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the word ids of all texts in sequence, and the end of each text (a leading 0)."""
        flat = np.frombuffer(self._flat, np.int32) if self._flat else np.zeros(0, np.int32)
        return flat, np.frombuffer(self._ends, np.int64)

    def emoticons(self) -> frozenset[int]:
        """Return the ids of emoticons and emoji."""
        return frozenset(number for word, number in self._numbers.items() if is_emoticon(word))

    def weights(self) -> np.ndarray:
        """Return the weight of each word: high if rare, 0 for punctuation."""
        flat, _ = self.arrays()
        counts = np.bincount(flat, minlength=len(self._numbers))
        weights = np.log1p(len(self) / np.maximum(counts, MIN_WORD_COUNT))
        marks = [number for word, number in self._numbers.items() if not word[-1].isalnum()]
        weights[marks] = 0.0
        return weights
