"""The other side of a text: what it should become, counted row by row.

n rows
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from weft.doctor.checks.encoding import find_damage
from weft.doctor.checks.scripts import detect_script
from weft.doctor.checks.word_arrays import WordIndex
from weft.doctor.finding import RowTally
from weft.doctor.words import normalise, split_words
from weft.text.example import Example, Label

if TYPE_CHECKING:
    from weft.doctor.survey import Split

SAMPLE_ROWS = 200  # rows by which free text is told from classes
MIN_MEAN_WORDS = 2.0  # words of a label on average
MIN_UNIQUE_FRACTION = 0.5  # share of labels that occur once
MIN_RATIO_WORDS = 6  # words of both sides together; below, a ratio says nothing


def are_free_text(examples: Iterable[Example]) -> bool:
    """Whether labels are texts of their own: several words each, and seldom the same twice."""
    some = [said for e in islice(examples, SAMPLE_ROWS) if (said := target_text(e.label))]
    if len(some) < 2:
        return False
    counts = Counter(some)
    mean = sum(len(said.split()) for said in some) / len(some)
    return mean >= MIN_MEAN_WORDS and sum(
        n == 1 for n in counts.values()
    ) >= MIN_UNIQUE_FRACTION * len(some)


def target_text(label: Label) -> str:
    """The text of a label, of several references the first; empty where there is none."""
    if isinstance(label, tuple):
        return str(label[0]) if label else ""
    return label if isinstance(label, str) else ""


class TargetStats:
    """What is known of the targets of all rows, in the order of the rows."""

    def __init__(self) -> None:
        self.corpus = WordIndex()
        self.lengths: dict[str, Counter[int]] = {}  # by split: words a target
        self.damage: dict[str, dict[str, RowTally]] = {}
        self.scripts: dict[str, dict[str, RowTally]] = {}
        self.copies: dict[str, RowTally] = {}  # target and source are one
        self._source, self._target = array("q"), array("q")  # words of each

    def take(self, split: "Split", row: int, text: str, flat: str, target: str) -> None:
        """One more row; without a target it counts as no word."""
        said = normalise(target)
        self.corpus.add(split_words(said))
        count = len(said.split())
        self._source.append(len(flat.split()))
        self._target.append(count)
        if not said:
            return
        self.lengths.setdefault(split.name, Counter())[count] += 1
        if said == flat:
            self.copies.setdefault(split.name, RowTally()).add(row)
        table = self.scripts.setdefault(split.name, {})
        table.setdefault(detect_script(target), RowTally()).add(row)
        for kind in find_damage(target):
            self.damage.setdefault(split.name, {}).setdefault(kind, RowTally()).add(row)

    def ratios(self) -> np.ndarray:
        """(n,) the logarithm of target to source in words; NaN where one says nothing."""
        source, target = (np.array(side, float) for side in (self._source, self._target))
        telling = (source > 0) & (target > 0) & (source + target >= MIN_RATIO_WORDS)
        found = np.full(len(source), np.nan)
        found[telling] = np.log(target[telling] / source[telling])
        return found

    def sides(self, row: int) -> tuple[int, int]:
        """How many words source and target of a row have."""
        return self._source[row], self._target[row]
