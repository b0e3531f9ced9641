"""Statistics of target texts, row by row.

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

SAMPLE_ROWS = 200  # to tell free text from classes
MIN_MEAN_WORDS = 2.0  # per label of free text
MIN_UNIQUE_FRACTION = 0.5  # of labels that occur once
MIN_RATIO_WORDS = 6  # of both sides together, for a meaningful ratio


def are_free_text(examples: Iterable[Example]) -> bool:
    """Return whether labels are free text: several words each, rarely repeated."""
    targets = [target for e in islice(examples, SAMPLE_ROWS) if (target := target_text(e.label))]
    if len(targets) < 2:
        return False
    counts = Counter(targets)
    mean = sum(len(target.split()) for target in targets) / len(targets)
    return mean >= MIN_MEAN_WORDS and sum(
        n == 1 for n in counts.values()
    ) >= MIN_UNIQUE_FRACTION * len(targets)


def target_text(label: Label) -> str:
    """Return the target text of a label, the first of several references, or ""."""
    if isinstance(label, tuple):
        return str(label[0]) if label else ""
    return label if isinstance(label, str) else ""


class TargetStats:
    """Statistics of the targets of all rows, in row order."""

    def __init__(self) -> None:
        self.corpus = WordIndex()
        self.lengths: dict[str, Counter[int]] = {}  # by split: words per target
        self.damage: dict[str, dict[str, RowTally]] = {}
        self.scripts: dict[str, dict[str, RowTally]] = {}
        self.copies: dict[str, RowTally] = {}  # target equal to source
        self._source, self._target = array("q"), array("q")  # words of each

    def add(self, split: "Split", row: int, text: str, flat: str, target: str) -> None:
        """Add a row; a missing target has no words."""
        normalised = normalise(target)
        self.corpus.add(split_words(normalised))
        count = len(normalised.split())
        self._source.append(len(flat.split()))
        self._target.append(count)
        if not normalised:
            return
        self.lengths.setdefault(split.name, Counter())[count] += 1
        if normalised == flat:
            self.copies.setdefault(split.name, RowTally()).add(row)
        table = self.scripts.setdefault(split.name, {})
        table.setdefault(detect_script(target), RowTally()).add(row)
        for kind in find_damage(target):
            self.damage.setdefault(split.name, {}).setdefault(kind, RowTally()).add(row)

    def ratios(self) -> np.ndarray:
        """Return (n,) the log ratio of target to source words; NaN for too short texts."""
        source, target = (np.array(side, float) for side in (self._source, self._target))
        long_enough = (source > 0) & (target > 0) & (source + target >= MIN_RATIO_WORDS)
        logs = np.full(len(source), np.nan)
        logs[long_enough] = np.log(target[long_enough] / source[long_enough])
        return logs

    def word_counts(self, row: int) -> tuple[int, int]:
        """Return the word counts of source and target of a row."""
        return self._source[row], self._target[row]
