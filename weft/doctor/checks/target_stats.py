"""The other side of a text: what it should become, counted row by row.

n rows
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from weft.doctor.checks.encoding import damages
from weft.doctor.checks.scripts import script
from weft.doctor.checks.word_arrays import Corpus
from weft.doctor.finding import Noted
from weft.doctor.words import normal, words
from weft.text.example import Example, Label

if TYPE_CHECKING:
    from weft.doctor.survey import Split

FIRST = 200  # rows by which free text is told from classes
SEVERAL = 2.0  # words of a label on average
ODD = 0.5  # share of labels that occur once
LEAST = 6  # words of both sides together; below, a ratio says nothing


def free_text(examples: Iterable[Example]) -> bool:
    """Whether labels are texts of their own: several words each, and seldom the same twice."""
    some = [said for e in islice(examples, FIRST) if (said := target_of(e.label))]
    if len(some) < 2:
        return False
    counts = Counter(some)
    mean = sum(len(said.split()) for said in some) / len(some)
    return mean >= SEVERAL and sum(n == 1 for n in counts.values()) >= ODD * len(some)


def target_of(label: Label) -> str:
    """The text of a label, of several references the first; empty where there is none."""
    if isinstance(label, tuple):
        return str(label[0]) if label else ""
    return label if isinstance(label, str) else ""


class Pairs:
    """What is known of the targets of all rows, in the order of the rows."""

    def __init__(self) -> None:
        self.corpus = Corpus()
        self.lengths: dict[str, Counter[int]] = {}  # by split: words a target
        self.damage: dict[str, dict[str, Noted]] = {}
        self.scripts: dict[str, dict[str, Noted]] = {}
        self.copies: dict[str, Noted] = {}  # target and source are one
        self._source, self._target = array("q"), array("q")  # words of each

    def take(self, split: "Split", row: int, text: str, flat: str, target: str) -> None:
        """One more row; without a target it counts as no word."""
        said = normal(target)
        self.corpus.add(words(said))
        count = len(said.split())
        self._source.append(len(flat.split()))
        self._target.append(count)
        if not said:
            return
        self.lengths.setdefault(split.name, Counter())[count] += 1
        if said == flat:
            self.copies.setdefault(split.name, Noted()).add(row)
        table = self.scripts.setdefault(split.name, {})
        table.setdefault(script(target), Noted()).add(row)
        for kind in damages(target):
            self.damage.setdefault(split.name, {}).setdefault(kind, Noted()).add(row)

    def ratios(self) -> np.ndarray:
        """(n,) the logarithm of target to source in words; NaN where one says nothing."""
        source, target = (np.array(side, float) for side in (self._source, self._target))
        telling = (source > 0) & (target > 0) & (source + target >= LEAST)
        found = np.full(len(source), np.nan)
        found[telling] = np.log(target[telling] / source[telling])
        return found

    def sides(self, row: int) -> tuple[int, int]:
        """How many words source and target of a row have."""
        return self._source[row], self._target[row]
