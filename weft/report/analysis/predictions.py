"""What a trained model answered on the test texts, counted in one pass over predictions.jsonl."""

import heapq
import json
import math
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from weft.compare.sentence_scores import PICTURES, Judged, judged, share
from weft.errors import UserError
from weft.metrics import ClassScores
from weft.tasks.annotation import Annotation
from weft.text.example import join_pair

BINS = 15  # of the reliability diagram, as in Guo et al. 2017
ERRORS = 20  # the most confident ones, kept with their texts
LONG = 25  # words up to which a picture of a sentence can be taken in

# One label a text, several, or a number; or something at the words of each sentence.
Kind = Literal[
    "classes", "sets", "numbers", "tags", "spans", "arcs", "constituents", "nodes", "answer"
]  # fmt: skip


@dataclass(frozen=True)
class Said:
    """One test text, the right answer and the one that was given."""

    text: str
    label: Any  # a label, a tuple of labels, a number, or a Structure
    value: Any
    score: float  # probability of the value; for a number, the number itself
    two: tuple[str, str] | None = None  # the texts, where there are two

    @property
    def asked(self) -> str | tuple[str, str]:
        """What the model was asked."""
        return self.two or self.text

    @property
    def right(self) -> bool:
        """Whether the answer is the label; numbers are never quite right."""
        if isinstance(self.value, Annotation):
            top, bottom = share(self.value, self.label)
            return top == bottom
        return self.label == self.value

    @property
    def miss(self) -> float:
        """How far a number is from the right one."""
        return abs(self.value - self.label)


@dataclass(frozen=True)
class Class:
    """How one label fares, and what is most often answered in its place."""

    label: str
    figures: ClassScores
    instead: str = ""
    times: int = 0  # how often `instead` was answered


@dataclass(frozen=True)
class Bin:
    """The answers whose probability lies in (low, high]."""

    low: float
    high: float
    count: int
    confidence: float  # mean probability
    accuracy: float  # share that is right


@dataclass(frozen=True)
class Calibration:
    """Whether answers given with 80 % are right 80 % of the time."""

    bins: tuple[Bin, ...]
    error: float  # expected calibration error: mean gap of the bins, weighted by their counts
    confidence: float  # over all answers
    accuracy: float


@dataclass(frozen=True)
class Answers:
    """Everything that is counted of a model's answers; texts only of errors and of a sample.

    Of structures, cells and classes count words, spans, brackets or nodes, and there is no sample.
    """

    kind: Kind
    n: int
    wrong: int  # not exactly right; 0 for numbers
    cells: Mapping[tuple[str, str], int]  # (label, answer) -> texts, or what else is counted
    classes: tuple[Class, ...]  # worst F1 first
    calibration: Calibration | None  # where there is one label a text
    pairs: np.ndarray  # (n, 2) right and given numbers
    errors: tuple[Said, ...]  # the most confident first; of numbers, the farthest off; see _bad
    sample: tuple[Said, ...]  # every label and its errors in proportion, in the order of the file


def read(path: str | Path, sample: int = 1000, errors: int = ERRORS, seed: int = 0) -> Answers:
    """Count a predictions.jsonl of any size; only places in the file are held, not its texts."""
    counts = _Counts(errors)
    with _opened(Path(path)) as file:
        for place, said in _lines(file, Path(path)):
            counts.add(said, place)
        if counts.kind is None:
            raise UserError(f"{path}: there are no answers in it.")
        worst = [place for _, _, place in sorted(counts.worst, reverse=True)]
        chosen = _sample(counts.strata, sample, seed)
        texts = {place: _said(file, place) for place in {*worst, *chosen}}
    return Answers(
        kind=counts.kind,
        n=counts.n,
        wrong=counts.n - counts.right,
        cells=dict(counts.cells),
        classes=counts.classes(),
        calibration=counts.bins.calibration() if counts.kind == "classes" else None,
        pairs=np.frombuffer(counts.pairs, dtype=np.float64).reshape(-1, 2),
        errors=tuple(texts[place] for place in worst),
        sample=tuple(texts[place] for place in chosen),
    )


class _Counts:
    """Grows with every answer: counts by label, bins, and places in the file."""

    def __init__(self, errors: int) -> None:
        self.kind: Kind | None = None
        self.n = self.right = 0
        self.cells: Counter[tuple[str, str]] = Counter()
        self.true: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.both: Counter[str] = Counter()
        self.bins = Bins()
        self.pairs = array("d")
        self.strata: dict[tuple[str, bool], array[int]] = {}  # places by label and by right
        self.worst: list[tuple[float, int, int]] = []  # a heap of (how bad, -order, place)
        self.errors = errors

    def add(self, said: Said, place: int) -> None:
        self.kind = self.kind or kind_of(said.value)
        self.n += 1
        if isinstance(said.value, Annotation):
            self._judge(judged(said.value, said.label))
            self._keep(_bad(said), place)
            self.right += said.right
            return
        if self.kind == "numbers":
            self.pairs.extend((said.label, said.value))
            stratum, bad = "", said.miss
        else:
            labels, values = _names(said.label), _names(said.value)
            self.true.update(labels)
            self.said.update(values)
            self.both.update(set(labels) & set(values))
            stratum = labels[0] if len(labels) == 1 else f"{len(labels)} labels"
            bad = -1.0 if said.right else said.score
        if self.kind == "classes":
            self.cells[said.label, said.value] += 1
            self.bins.add(said.score, said.right)
        right = self.kind == "numbers" or said.right
        self.right += right
        self.strata.setdefault((stratum, right), array("q")).append(place)
        self._keep(bad, place)

    def _judge(self, found: Judged) -> None:
        self.cells.update(found.cells)
        self.true.update(found.true)
        self.said.update(found.said)
        self.both.update(found.right)

    def _keep(self, bad: float, place: int) -> None:
        if bad >= 0 and self.errors:
            keep = heapq.heappush if len(self.worst) < self.errors else heapq.heappushpop
            keep(self.worst, (bad, -self.n, place))

    def classes(self) -> tuple[Class, ...]:
        """Figures of every label that occurs, worst first; of equals the more frequent first."""
        instead: dict[str, tuple[int, str]] = {}
        for (label, value), count in sorted(self.cells.items()):
            if label != value and count > instead.get(label, (0, ""))[0]:
                instead[label] = (count, value)
        out = []
        for label in self.true | self.said:
            figures = _figures(self.both[label], self.said[label], self.true[label])
            times, other = instead.get(label, (0, ""))
            out.append(Class(label, figures, other, times))
        return tuple(sorted(out, key=lambda c: (c.figures.f1, -c.figures.support, c.label)))


class Bins:
    """Sums for the reliability diagram: equal widths, each open below and closed above."""

    def __init__(self, count: int = BINS) -> None:
        self.counts, self.right = [0] * count, [0] * count
        self.probs = [0.0] * count

    def add(self, chance: float, right: bool) -> None:
        size = len(self.counts)
        i = min(max(math.ceil(chance * size) - 1, 0), size - 1)
        self.counts[i] += 1
        self.right[i] += right
        self.probs[i] += chance

    def calibration(self) -> Calibration:
        n, size = max(sum(self.counts), 1), len(self.counts)
        rows = zip(self.counts, self.probs, self.right, strict=True)
        bins = tuple(
            Bin(i / size, (i + 1) / size, count, chance / (count or 1), right / (count or 1))
            for i, (count, chance, right) in enumerate(rows)
        )
        error = sum(b.count / n * abs(b.accuracy - b.confidence) for b in bins)
        return Calibration(bins, error, sum(self.probs) / n, sum(self.right) / n)


def kind_of(value: Any) -> Kind:
    """What sort of answer this is."""
    if isinstance(value, Annotation):
        return cast(Kind, value.kind)
    if isinstance(value, (tuple, list)):
        return "sets"
    return "classes" if isinstance(value, str) else "numbers"


def _bad(said: Said) -> float:
    """How bad a sentence is: how much of it is wrong, more where that is most of it."""
    top, bottom = share(said.value, said.label)
    bad = (bottom - top) ** 2 / bottom if top < bottom else -1.0
    # A picture of a long sentence shows nothing: such a one comes after all others.
    return bad / 1e6 if said.value.kind in PICTURES and len(said.value.words) > LONG else bad


def _figures(both: int, said: int, true: int) -> ClassScores:
    precision, recall = both / said if said else 0.0, both / true if true else 0.0
    return ClassScores(precision, recall, 2 * both / (said + true), true)


def _sample(strata: Mapping[Any, Sequence[int]], limit: int, seed: int) -> list[int]:
    """Places of at most `limit` texts: each stratum gets its share, by largest remainder.

    Where there is room, no stratum is left out: a rare label or a rare error is worth seeing.
    """
    total = sum(map(len, strata.values()))
    if total <= limit:
        return sorted(place for places in strata.values() for place in places)
    names = sorted(strata)
    least = 1 if len(names) <= limit else 0
    exact = {name: len(strata[name]) * limit / total for name in names}
    quota = {name: max(least, math.floor(exact[name])) for name in names}
    order = sorted(names, key=lambda name: quota[name] - exact[name])
    while sum(quota.values()) < limit:  # the largest remainders first
        for name in order[: limit - sum(quota.values())]:
            quota[name] += 1
    while sum(quota.values()) > limit:  # what the smallest were given, the largest give back
        quota[max(names, key=lambda name: quota[name])] -= 1
    draw = random.Random(seed)
    return sorted(
        place
        for name in names
        for place in draw.sample(strata[name], min(quota[name], len(strata[name])))
    )


def _opened(path: Path) -> Any:
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.") from None


def _lines(file: Any, path: Path) -> Iterator[tuple[int, Said]]:
    """Where in the file each answer begins, and the answer."""
    place = 0
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield place, _parsed(line)
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}:{number}: damaged ({error!r}). Train again.") from None
        place += len(line)


def _said(file: Any, place: int) -> Said:
    file.seek(place)
    return _parsed(file.readline())


def _parsed(line: bytes) -> Said:
    row = json.loads(line)
    value, label = row["value"], row["label"]
    if "structure" in row:
        passage = row.get("other") or row["text"]  # what the places count in
        value, label = (Annotation.from_json(row[side], passage) for side in ("structure", "gold"))
        two = (row["text"], row["other"]) if "other" in row else None
        return Said(row["text"], label, value, float(row["score"]), two)
    match kind_of(value):
        case "numbers":
            label = float(label)
        case "sets":
            # In one order, so that equal sets are equal.
            value, label = tuple(sorted(map(str, value))), tuple(sorted(_names(label)))
        case "classes":
            label = str(label)
    if "other" in row:
        two = row["text"], row["other"]
        return Said(join_pair(*two), label, value, float(row["score"]), two)
    return Said(row["text"], label, value, float(row["score"]))


def _names(label: Any) -> tuple[str, ...]:
    return tuple(map(str, label)) if isinstance(label, (tuple, list)) else (str(label),)
