"""Survey every text in one pass; keep hashes, counts and word ids, but no texts."""

import math
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from weft.doctor.annotations import annotation_hash, collect_annotations, is_sentence
from weft.doctor.checks.consistency import TagVariation
from weft.doctor.checks.encoding import find_damage
from weft.doctor.checks.scripts import detect_script
from weft.doctor.checks.target_stats import SAMPLE_ROWS, TargetStats, are_free_text, target_text
from weft.doctor.checks.word_arrays import WordIndex
from weft.doctor.finding import RowTally as RowTally
from weft.doctor.words import normalise, split_words
from weft.text.annotation.frames import Coreference
from weft.text.example import CharSpans, Example, Label, WordAnnotations
from weft.text.formats.features import is_matrix_reference

ExampleSource = Callable[[], Iterator[Example]]  # can be iterated more than once
ProgressCallback = Callable[[int], None]
NO_LABEL = -1
DISTINCT = 20_000  # labels counted apart; a column of free text would otherwise fill the memory
STRAY = 0.05  # share of the labels of a scale that may be no numbers: n/a, ?
PROGRESS_ROWS = 1000  # rows between two calls of `watch`


@dataclass
class Split:
    """The statistics of one file; rows are counted from 0 within it."""

    name: str
    source: ExampleSource
    start: int  # of its rows in the numbering of all
    rows: int = 0
    lengths: Counter[int] = field(default_factory=Counter)  # words a text
    scripts: dict[str, RowTally] = field(default_factory=dict)
    damage: dict[str, RowTally] = field(default_factory=dict)
    composed: int = 0  # texts with composed (NFC) letters
    empty: RowTally = field(default_factory=RowTally)
    single: RowTally = field(default_factory=RowTally)  # texts of one word
    unlabelled: RowTally = field(default_factory=RowTally)
    lone: RowTally = field(default_factory=RowTally)  # pairs without a second text
    twice: RowTally = field(default_factory=RowTally)  # pairs of equal texts
    labels: dict[str, RowTally] = field(default_factory=dict)
    layers: dict[str, dict[str, RowTally]] = field(default_factory=dict)  # annotations, by kind
    words: "array[int]" = field(default_factory=lambda: array("i"))  # of each non-empty text
    filled: "array[int]" = field(default_factory=lambda: array("q"))  # the rows of these texts

    def longer_than(self, words: float) -> list[tuple[int, int]]:
        """Return (words, row) of texts with more words, the longest first."""
        counts = np.array(self.words, np.int64)
        found = np.flatnonzero(counts > words)
        order = found[np.argsort(-counts[found], kind="stable")]
        return [(int(counts[i]), self.filled[i]) for i in order]

    uncounted: int = 0  # rows with a label after DISTINCT others


class Survey:
    """All splits, with arrays over all rows."""

    def __init__(self, pairs: bool = False) -> None:
        self.splits: list[Split] = []
        self.corpus = WordIndex()
        self.pairs = TargetStats() if pairs else None  # if labels are target texts
        self._same = array("q")  # hash of the normalised text
        self._bytes = array("q")  # hash of the text itself
        self._label = array("i")  # number of the label, NO_LABEL for none
        self._empty = array("b")
        self._numbers: dict[Label, int] = {}
        self.variation = TagVariation()
        self.two = False  # rows have two texts
        self.sentences = False  # rows are sentences with words
        self.documents = False  # rows are documents
        self.structured = False  # rows have word or span annotations
        self._words = 0  # distinct non-numeric labels
        self._fractions = False

    @property
    def rows(self) -> int:
        return len(self._same)

    @property
    def unit(self) -> str:
        """The noun for a row."""
        if self.documents:
            return "document"
        return "sentence" if self.sentences else "pair" if self.two else "text"

    @property
    def unlabelled(self) -> bool:
        """True if no text has a label or annotation."""
        return not self._numbers

    @property
    def scale(self) -> bool:
        """True if labels are numbers on a scale (0.5, 3.2) rather than classes."""
        return self._fractions and self._words <= STRAY * len(self._numbers)

    @property
    def same(self) -> np.ndarray:
        return np.frombuffer(self._same, np.int64) if self._same else np.zeros(0, np.int64)

    @property
    def identical(self) -> np.ndarray:
        return np.frombuffer(self._bytes, np.int64) if self._bytes else np.zeros(0, np.int64)

    @property
    def label(self) -> np.ndarray:
        return np.frombuffer(self._label, np.int32) if self._label else np.zeros(0, np.int32)

    @property
    def filled(self) -> np.ndarray:
        """Rows with a non-empty text."""
        return np.flatnonzero(np.frombuffer(self._empty, np.int8) == 0) if self.rows else self.same

    def label_names(self) -> list[Label]:
        """Return the labels by their ids."""
        return list(self._numbers)

    def split_of(self, row: int) -> Split:
        """Return the split of a row numbered over all splits."""
        return next(s for s in reversed(self.splits) if s.start <= row)

    def owners(self) -> np.ndarray:
        """Return the split index of each row, (rows,)."""
        return np.repeat(np.arange(len(self.splits)), [split.rows for split in self.splits])

    def add(self, split: Split, row: int, example: Example) -> None:
        """Add a row."""
        text = example.text
        if example.other is not None:
            self._take_other(split, row, text, example.other)
            text = f"{text}\n{example.other}"
        flat = normalise(text)
        self._same.append(hash(flat))
        self._bytes.append(hash(text))
        self._empty.append(not flat)
        annotation = annotation_hash(example)
        if self.pairs is not None:
            self._take_target(split, row, example, flat)
        elif annotation is None:
            self._take_label(split, row, example.label)
        else:
            self._take_layers(split, row, example, annotation)
        self.corpus.add([] if is_matrix_reference(text) else split_words(flat))
        if not flat:
            split.empty.add(row)
            return
        count = len(example.words) or len(flat.split(" "))
        split.lengths[count] += 1
        if count == 1:
            split.single.add(row)
        split.words.append(count)
        split.filled.append(row)
        split.scripts.setdefault(detect_script(text), RowTally()).add(row)
        kinds = find_damage(text)
        for kind in kinds:
            split.damage.setdefault(kind, RowTally()).add(row)
        if "normalisation" not in kinds and not text.isascii():
            split.composed += not unicodedata.is_normalized("NFD", text)

    def _take_other(self, split: Split, row: int, text: str, other: str) -> None:
        """Record the second text of a row."""
        self.two = True
        if not other.strip():
            split.lone.add(row)
        elif normalise(other) == normalise(text):
            split.twice.add(row)

    def _take_target(self, split: Split, row: int, example: Example, flat: str) -> None:
        """Record the target of a text; only its hash is kept."""
        assert self.pairs is not None
        target = target_text(example.label)
        self.pairs.add(split, row, example.text, flat, target)
        if not target.strip():
            self._label.append(NO_LABEL)
            split.unlabelled.add(row)
            return
        self._label.append(self._numbers.setdefault(hash(example.label), len(self._numbers)))

    def _take_label(self, split: Split, row: int, label: Label) -> None:
        if label is None or label == ():
            self._label.append(NO_LABEL)
            split.unlabelled.add(row)
            return
        if label not in self._numbers:
            self._numbers[label] = len(self._numbers)
            value = parse_number(label)
            self._words += value is None
            self._fractions = self._fractions or (value is not None and value % 1 != 0)
        self._label.append(self._numbers[label])
        self._count(split, row, label)

    def _count(self, split: Split, row: int, label: Label) -> None:
        for name in label if isinstance(label, tuple) else (str(label),):
            if name in split.labels or len(split.labels) < DISTINCT:
                split.labels.setdefault(name, RowTally()).add(row)
            else:
                split.uncounted += 1

    def _take_layers(self, split: Split, row: int, example: Example, known: int) -> None:
        """Count annotations by kind, and number them so that duplicates can be compared."""
        self.structured = True
        self.documents = self.documents or isinstance(example.label, Coreference)
        self.sentences = self.sentences or (is_sentence(example) and not self.documents)
        self._label.append(self._numbers.setdefault(known, len(self._numbers)))
        for kind, names in collect_annotations(example).items():
            table = split.layers.setdefault(kind, {})
            for name in names:
                if name in table or len(table) < DISTINCT:
                    table.setdefault(name, RowTally()).add(row)
        label = example.label
        if isinstance(label, WordAnnotations) and label.main in label.columns:
            self.variation.add_sentence(split.start + row, example.words, label.columns[label.main])
        elif isinstance(label, CharSpans):
            self.variation.add_spans(split.start + row, example.text, label.spans)
        elif label is not None and str(label).isdecimal():  # the class of a sentiment tree
            self._count(split, row, label)


def survey_sources(
    sources: Mapping[str, ExampleSource],
    on_progress: ProgressCallback = lambda rows: None,
    pairs: bool | None = None,
) -> Survey:
    """Read every source once; `pairs` says if labels are target texts, None to detect it."""
    out: Survey | None = None
    for name, source in sources.items():
        rows = source()
        if out is None:
            first = list(islice(rows, SAMPLE_ROWS))
            out = Survey(are_free_text(first) if pairs is None else pairs)
            rows = chain(first, rows)
        split = Split(name, source, out.rows)
        out.splits.append(split)
        for row, example in enumerate(rows):
            out.add(split, row, example)
            split.rows = row + 1
            if split.rows % PROGRESS_ROWS == 0:
                on_progress(PROGRESS_ROWS)
        on_progress(split.rows % PROGRESS_ROWS)
    return out or Survey()


def reread_rows(
    splits: Iterable[Split], wanted: Mapping[str, Iterable[int]]
) -> dict[tuple[str, int], Example]:
    """Return {(split, row): Example} for the rows that findings show."""
    out: dict[tuple[str, int], Example] = {}
    for split in splits:
        rows = set(wanted.get(split.name, ()))
        if not rows:
            continue
        last = max(rows)
        for row, example in enumerate(split.source()):
            if row in rows:
                out[split.name, row] = example
            if row >= last:
                break
    return out


def parse_number(label: Label) -> float | None:
    """Return a label as a finite number, if it is one."""
    if not isinstance(label, (str, float, int)):
        return None
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
