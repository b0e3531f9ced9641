"""Drift: how far texts are from those a model was trained on.

A fingerprint is kept with the model: the traits of a sample of held-out texts (length, coverage,
surprise, confidence, label) and a sketch of the words of the training texts. Other texts are
compared with the sample trait by trait, by the two-sample Kolmogorov–Smirnov test and, for labels,
the χ² test; the smallest p-value times the number of tests is that of the whole (Bonferroni), as in
Rabanser et al. 2019, "Failing Loudly".

B buckets   n texts of the sample
"""

import base64
import json
import math
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from weft import jsonio
from weft.errors import UserError
from weft.storage import write_text

FINGERPRINT_FILE = "fingerprint.json"
FORMAT = 1
BUCKETS = 4096  # of the word sketch
MAX_SAMPLE_TEXTS = 500  # whose traits are kept
MAX_SKETCH_TEXTS = 5000  # whose words are counted
MAX_READ_TEXTS = 50_000  # that they are drawn from
MIN_TEXTS = 20  # of either side of a test
MIN_EXPECTED = 5.0  # texts of a label, else it is pooled with other rare ones
MAX_UNFAMILIAR = 5  # words shown of a text
TRAITS = ("length", "coverage", "surprise", "confidence", "answer")
_WORD = re.compile(r"\w+")
T = TypeVar("T")


@dataclass(frozen=True)
class TextTraits:
    """The traits of one text and of its answer."""

    values: Mapping[str, float]  # by name, of TRAITS
    label: str | None = None


class Reservoir(Generic[T]):
    """A uniform sample of a stream of unknown length; the same for the same stream."""

    def __init__(self, size: int) -> None:
        self.items: list[T] = []
        self._size, self._seen, self._draw = size, 0, random.Random(0)

    def add(self, item: T) -> None:
        self._seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif (k := self._draw.randrange(self._seen)) < self._size:
            self.items[k] = item


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The traits of texts like those of training."""

    counts: np.ndarray  # (B,) of the words of training texts
    traits: Mapping[str, np.ndarray]  # (n,) sorted
    labels: Mapping[str, int]  # predicted
    _bits: np.ndarray = field(init=False, repr=False)  # (B,) surprise of a word

    def __post_init__(self) -> None:
        total = self.counts.sum() + len(self.counts)
        object.__setattr__(self, "_bits", np.log2(total / (self.counts + 1.0)))

    @property
    def texts(self) -> int:
        """The number of texts in the sample."""
        return max((len(values) for values in self.traits.values()), default=0)

    def surprise(self, text: str) -> float:
        """Return the mean bits of a word of the text under the words of training; 0 of none."""
        buckets = [bucket(word) for word in words_of(text)]
        return float(self._bits[buckets].mean()) if buckets else 0.0

    def unfamiliar(self, text: str) -> list[str]:
        """Return the words of a text that training lacks, or has least."""
        distinct = dict.fromkeys(words_of(text))
        ranked = sorted(distinct, key=lambda word: -self._bits[bucket(word)])
        return [word for word in ranked if self.counts[bucket(word)] == 0][:MAX_UNFAMILIAR]

    def measure(
        self, text: str, coverage: float, value: object, score: float, labels: Iterable[str]
    ) -> TextTraits:
        """Return the traits of a text and its answer; `labels` are those of the model."""
        return TextTraits(*_read_traits(text, coverage, value, score, labels, self.surprise(text)))

    def save(self, folder: Path) -> None:
        """Write the fingerprint into a model folder."""
        packed = zlib.compress(self.counts.astype("<u4").tobytes(), 9)
        traits = {
            name: [float(f"{value:.6g}") for value in values.tolist()]
            for name, values in self.traits.items()
        }
        about = {
            "format": FORMAT,
            "words": base64.b64encode(packed).decode("ascii"),
            "traits": traits,
            "labels": dict(self.labels),
        }
        text = json.dumps(about, ensure_ascii=False)
        write_text(folder / FINGERPRINT_FILE, text + "\n", errors="backslashreplace")


def load_fingerprint(folder: Path) -> Fingerprint | None:
    """Read the fingerprint of a model folder; None if it has none, as older ones."""
    path = folder / FINGERPRINT_FILE
    try:
        saved = jsonio.read(path)
    except FileNotFoundError:
        return None
    try:
        if saved["format"] != FORMAT or not isinstance(saved["traits"], dict):
            raise ValueError(f"format {saved['format']!r}")
        decoder = zlib.decompressobj()
        size = 4 * BUCKETS
        data = decoder.decompress(base64.b64decode(saved["words"], validate=True), size)
        counts = np.frombuffer(data, "<u4").astype(np.float64)
        traits = {
            name: np.sort(np.array(saved["traits"][name], np.float64))
            for name in TRAITS
            if name in saved["traits"]
        }
        labels = {str(name): int(count) for name, count in saved["labels"].items()}
        if len(counts) != BUCKETS or any(
            values.ndim != 1 or not np.isfinite(values).all() for values in traits.values()
        ):
            raise ValueError("numbers are missing")
        if any(count < 0 for count in labels.values()):
            raise ValueError("a negative count")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, zlib.error) as error:
        raise UserError(
            f"{path}: damaged ({type(error).__name__}: {error}). Restore it, or remove it to do "
            "without drift."
        ) from None
    return Fingerprint(counts, traits, labels)


def take_fingerprint(
    training_texts: Iterable[str],
    answered: Sequence[tuple[str, float, object, float]],
    labels: Iterable[str] = (),
) -> Fingerprint:
    """Return the fingerprint of a model.

    `answered` are held-out texts with coverage, value and score of their answers.
    """
    counted = Counter(word for text in training_texts for word in words_of(text))
    counts = np.zeros(BUCKETS)
    for word, count in counted.items():
        counts[bucket(word)] += count
    known = tuple(labels)
    blank = Fingerprint(counts, {}, {})
    measured = [blank.measure(*one, known) for one in answered]
    return Fingerprint(counts, *collect_traits(measured))


def collect_traits(
    measured: Iterable[TextTraits],
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the values of each trait, sorted, and the number of texts of each label."""
    rows = list(measured)
    traits = {
        name: np.sort(np.array([row.values[name] for row in rows if name in row.values]))
        for name in TRAITS
    }
    labels = Counter(row.label for row in rows if row.label is not None)
    return {name: values for name, values in traits.items() if len(values)}, dict(labels)


def _read_traits(
    text: str, coverage: float, value: object, score: float, labels: Iterable[str], surprise: float
) -> tuple[dict[str, float], str | None]:
    values = {
        "length": float(len(words_of(text))),
        "coverage": float(coverage),
        "surprise": surprise,
    }
    label = value if isinstance(value, str) and value in set(labels) else None
    if label is not None:
        values["confidence"] = float(score)
    elif isinstance(value, float) and math.isfinite(value):
        values["answer"] = value
    return values, label


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


def bucket(word: str) -> int:
    """Return the bucket of a word in the sketch."""
    return zlib.crc32(word.encode("utf-8", "replace")) % BUCKETS


@dataclass(frozen=True)
class TraitDrift:
    """One trait of some texts compared with those of training."""

    name: str
    distance: float  # between the distributions, from 0 to 1
    p: float
    usual: float  # the median at training; of labels, the fraction of the one that changed most
    now: float
    label: str = ""  # the label that changed most

    def to_json(self) -> dict[str, object]:
        """Return the comparison as plain values."""
        out: dict[str, object] = {
            "distance": self.distance, "p": self.p, "training": self.usual, "now": self.now,
        }  # fmt: skip
        return {**out, "label": self.label} if self.label else out


@dataclass(frozen=True)
class Drift:
    """Some texts compared with those of training."""

    texts: int
    traits: tuple[TraitDrift, ...]

    @property
    def p(self) -> float:
        """The p-value of all traits together."""
        if not self.traits:
            return 1.0
        return min(1.0, min(one.p for one in self.traits) * len(self.traits))

    @property
    def distance(self) -> float:
        """The largest distance of a trait."""
        return max((one.distance for one in self.traits), default=0.0)


def compare(fingerprint: Fingerprint, measured: Sequence[TextTraits]) -> Drift:
    """Compare texts with those of training; too few texts have no traits to compare."""
    from scipy.stats import ks_2samp

    traits, labels = collect_traits(measured)
    found = []
    for name, values in traits.items():
        usual = fingerprint.traits.get(name)
        if usual is None or min(len(usual), len(values)) < MIN_TEXTS:
            continue
        test = ks_2samp(usual, values)
        medians = float(np.median(usual)), float(np.median(values))
        found.append(TraitDrift(name, float(test.statistic), float(test.pvalue), *medians))
    enough = min(sum(labels.values()), sum(fingerprint.labels.values())) >= MIN_TEXTS
    if enough and len({*labels, *fingerprint.labels}) > 1:
        found.append(_compare_labels(fingerprint.labels, labels))
    return Drift(len(measured), tuple(found))


def _compare_labels(usual: Mapping[str, int], now: Mapping[str, int]) -> TraitDrift:
    """Compare the fractions of labels; rare ones are pooled for the test."""
    from scipy.stats import chi2_contingency

    names = sorted({*usual, *now})
    table = np.array([[one.get(name, 0) for name in names] for one in (usual, now)], float)
    fractions = table / table.sum(1, keepdims=True)
    changes = np.abs(fractions[0] - fractions[1])
    most = int(changes.argmax())
    expected = table.sum(0) * table.sum(1).min() / table.sum()
    rare = expected < MIN_EXPECTED
    pooled = np.column_stack([table[:, ~rare], table[:, rare].sum(1)]) if rare.any() else table
    pooled = pooled[:, pooled.sum(0) > 0]
    p = float(chi2_contingency(pooled)[1]) if pooled.shape[1] > 1 else 1.0
    return TraitDrift(
        "label", float(changes.sum() / 2), p, float(fractions[0, most]), float(fractions[1, most]),
        names[most],
    )  # fmt: skip
