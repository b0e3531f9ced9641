"""Statistics of the predictions on the test set, from one pass over predictions.jsonl."""

import heapq
import json
import math
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

import numpy as np

from weft.compare.sentence_scores import DRAWN_KINDS, SentenceScores, ratio_terms, score_sentence
from weft.errors import UserError
from weft.metrics import ClassScores
from weft.metrics.calibration import Calibration, CalibrationBins, RiskCoverage, risk_coverage
from weft.tasks.annotation import Annotation
from weft.text.example import join_pair

MAX_ERRORS = 20  # the most confident, kept with their texts
MAX_DRAWN_WORDS = 25  # of a sentence whose drawing is readable

# One label per text, several, or a number; or a structure over the words.
Kind = Literal[
    "classes", "sets", "numbers", "tags", "word-numbers", "spans", "arcs", "constituents", "nodes",
    "answer", "frames", "chains", "tuples",
]  # fmt: skip

Value = str | tuple[str, ...] | float | Annotation  # one label or several, a number, or a structure


@dataclass(frozen=True)
class Prediction:
    """A test text with its gold label and its predicted value."""

    text: str
    label: Value
    value: Value
    score: float  # probability of the value; for a number, the number itself
    text_pair: tuple[str, str] | None = None  # both texts of a pair
    uncalibrated: float | None = None  # probability before calibration, where it differs

    @property
    def inputs(self) -> str | tuple[str, str]:
        """The model input: a text or a text pair."""
        return self.text_pair or self.text

    @property
    def is_correct(self) -> bool:
        """True if the prediction equals the label."""
        if isinstance(self.value, Annotation):
            numerator, denominator = ratio_terms(*self.structures)
            return numerator == denominator
        return self.label == self.value

    @property
    def structures(self) -> tuple[Annotation, Annotation]:
        """The predicted and the gold structure."""
        assert isinstance(self.value, Annotation)
        assert isinstance(self.label, Annotation)
        return self.value, self.label

    @property
    def numbers(self) -> tuple[float, ...]:
        """The gold and the predicted number; of a vector, those of each of its numbers."""
        gold = self.label if isinstance(self.label, tuple) else (self.label,)
        predicted = self.value if isinstance(self.value, tuple) else (self.value,)
        return tuple(float(x) for pair in zip(gold, predicted, strict=True) for x in pair)  # type: ignore[arg-type]  # numbers

    @property
    def absolute_error(self) -> float:
        """The distance of a predicted number or vector from gold."""
        return math.dist(self.numbers[::2], self.numbers[1::2])


@dataclass(frozen=True)
class LabelScores:
    """The metrics of one label, and the label it is most often confused with."""

    label: str
    figures: ClassScores
    confused_with: str = ""
    times: int = 0  # count of `confused_with`


@dataclass(frozen=True)
class PredictionStats:
    """Counts over all predictions; texts are kept only for errors and a sample.

    For structures, confusions and classes count words, spans, brackets or nodes, and there is no
    sample.
    """

    kind: Kind
    n: int
    wrong: int  # not exactly correct; 0 for numbers
    confusions: Mapping[tuple[str, str], int]  # (gold, predicted) -> count
    classes: tuple[LabelScores, ...]  # worst F1 first
    calibration: Calibration | None  # for one label per text
    uncalibrated: Calibration | None  # the same before the temperature, where there is one
    curve: RiskCoverage | None  # of the confidences, for labels
    pairs: np.ndarray  # (n, 2) gold and predicted numbers
    errors: tuple[Prediction, ...]  # most confident first; for numbers, largest error first
    sample: tuple[Prediction, ...]  # stratified by label and error, in file order


def read_predictions(
    path: str | Path, sample: int = 1000, errors: int = MAX_ERRORS, seed: int = 0
) -> PredictionStats:
    """Read a predictions.jsonl of any size; only file offsets are kept in memory, not texts."""
    counts = _Counts(errors)
    with _open(Path(path)) as file:
        for offset, prediction in _read_lines(file, Path(path)):
            counts.add(prediction, offset)
        if counts.kind is None:
            raise UserError(f"{path}: no predictions.")
        worst = [offset for _, _, offset in sorted(counts.worst, reverse=True)]
        chosen = _stratified_sample(counts.strata, sample, seed)
        texts = {offset: _read_prediction(file, offset) for offset in {*worst, *chosen}}
    return PredictionStats(
        kind=counts.kind,
        n=counts.n,
        wrong=counts.n - counts.right,
        confusions=dict(counts.confusions),
        classes=counts.classes(),
        calibration=counts.bins.calibration() if counts.kind == "classes" else None,
        uncalibrated=counts.before.calibration() if counts.is_calibrated else None,
        curve=counts.curve(),
        pairs=np.frombuffer(counts.pairs, dtype=np.float64).reshape(-1, 2),
        errors=tuple(texts[offset] for offset in worst),
        sample=tuple(texts[offset] for offset in chosen),
    )


class _Counts:
    """Running counts by label, calibration bins and file offsets."""

    def __init__(self, errors: int) -> None:
        self.kind: Kind | None = None
        self.n = self.right = 0
        self.confusions: Counter[tuple[str, str]] = Counter()
        self.gold: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()
        self.both: Counter[str] = Counter()
        self.bins, self.before = CalibrationBins(), CalibrationBins()
        self.is_calibrated = False  # a temperature changed some score
        self.scores, self.correct = array("d"), array("b")
        self.pairs = array("d")
        self.strata: dict[tuple[str, bool], array[int]] = {}  # offsets by label and correctness
        self.worst: list[tuple[float, int, int]] = []  # a heap of (error score, -order, offset)
        self.errors = errors

    def add(self, prediction: Prediction, offset: int) -> None:
        self.kind = self.kind or prediction_kind(prediction.value)
        self.n += 1
        if isinstance(prediction.value, Annotation):
            self._count_labels(score_sentence(*prediction.structures))
            self._keep(_error_score(prediction), offset)
            self.right += prediction.is_correct
            return
        if self.kind == "numbers":
            self.pairs.extend(prediction.numbers)
            stratum, badness = "", prediction.absolute_error
        else:
            labels, values = _label_names(prediction.label), _label_names(prediction.value)
            self.gold.update(labels)
            self.predicted.update(values)
            self.both.update(set(labels) & set(values))
            stratum = labels[0] if len(labels) == 1 else f"{len(labels)} labels"
            badness = -1.0 if prediction.is_correct else prediction.score
            self.scores.append(prediction.score)
            self.correct.append(prediction.is_correct)
        if self.kind == "classes":
            self.confusions[str(prediction.label), str(prediction.value)] += 1
            self.bins.add(prediction.score, prediction.is_correct)
            before = prediction.uncalibrated
            self.is_calibrated = self.is_calibrated or before is not None
            self.before.add(prediction.score if before is None else before, prediction.is_correct)
        right = self.kind == "numbers" or prediction.is_correct
        self.right += right
        self.strata.setdefault((stratum, right), array("q")).append(offset)
        self._keep(badness, offset)

    def curve(self) -> RiskCoverage | None:
        """Return the risk-coverage curve of labels; None for numbers and structures."""
        if not self.scores:
            return None
        return risk_coverage(np.array(self.scores), np.array(self.correct, dtype=bool))

    def _count_labels(self, counts: SentenceScores) -> None:
        self.confusions.update(counts.confusions)
        self.gold.update(counts.gold)
        self.predicted.update(counts.predicted)
        self.both.update(counts.correct)

    def _keep(self, badness: float, offset: int) -> None:
        if badness >= 0 and self.errors:
            keep = heapq.heappush if len(self.worst) < self.errors else heapq.heappushpop
            keep(self.worst, (badness, -self.n, offset))

    def classes(self) -> tuple[LabelScores, ...]:
        """Return the metrics of every label, worst F1 first, ties by frequency."""
        confused: dict[str, tuple[int, str]] = {}
        for (label, value), count in sorted(self.confusions.items()):
            if label != value and count > confused.get(label, (0, ""))[0]:
                confused[label] = (count, value)
        out = []
        for label in self.gold | self.predicted:
            figures = _class_figures(self.both[label], self.predicted[label], self.gold[label])
            times, confused_with = confused.get(label, (0, ""))
            out.append(LabelScores(label, figures, confused_with, times))
        return tuple(sorted(out, key=lambda c: (c.figures.f1, -c.figures.support, c.label)))


def prediction_kind(value: object) -> Kind:
    """Return the kind of a predicted value."""
    if isinstance(value, Annotation):
        return cast(Kind, value.kind)
    if isinstance(value, (tuple, list)):
        vector = bool(value) and all(isinstance(x, float) for x in value)
        return "numbers" if vector else "sets"
    return "classes" if isinstance(value, str) else "numbers"


def _error_score(prediction: Prediction) -> float:
    """Return an error score: the number of errors, weighted by their fraction; -1 if correct."""
    predicted, gold = prediction.structures
    numerator, denominator = ratio_terms(predicted, gold)
    score = (denominator - numerator) ** 2 / denominator if numerator < denominator else -1.0
    # A drawing of a long sentence is unreadable: it comes after all others.
    return (
        score / 1e6
        if predicted.kind in DRAWN_KINDS and len(predicted.words) > MAX_DRAWN_WORDS
        else score
    )


def _class_figures(both: int, predicted: int, gold: int) -> ClassScores:
    precision, recall = both / predicted if predicted else 0.0, both / gold if gold else 0.0
    return ClassScores(precision, recall, 2 * both / (predicted + gold), gold)


def _stratified_sample(
    strata: Mapping[tuple[str, bool], Sequence[int]], limit: int, seed: int
) -> list[int]:
    """Return the offsets of at most `limit` texts, allocated to strata by largest remainder.

    If `limit` allows, every stratum is represented: rare labels and rare errors are informative.
    """
    total = sum(map(len, strata.values()))
    if total <= limit:
        return sorted(offset for offsets in strata.values() for offset in offsets)
    names = sorted(strata)
    least = 1 if len(names) <= limit else 0
    exact = {name: len(strata[name]) * limit / total for name in names}
    quota = {name: max(least, math.floor(exact[name])) for name in names}
    order = sorted(names, key=lambda name: quota[name] - exact[name])
    while sum(quota.values()) < limit:  # the largest remainders first
        for name in order[: limit - sum(quota.values())]:
            quota[name] += 1
    while sum(quota.values()) > limit:  # the largest strata give back what the smallest got
        quota[max(names, key=lambda name: quota[name])] -= 1
    draw = random.Random(seed)
    return sorted(
        offset
        for name in names
        for offset in draw.sample(strata[name], min(quota[name], len(strata[name])))
    )


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.") from None


def _read_lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, Prediction]]:
    """Yield the file offset of each prediction, and the prediction."""
    offset = 0
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield offset, _parse(line)
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}:{number}: damaged ({error!r}). Retrain.") from None
        offset += len(line)


def _read_prediction(file: BinaryIO, offset: int) -> Prediction:
    file.seek(offset)
    return _parse(file.readline())


def _parse(line: bytes) -> Prediction:
    row = json.loads(line)
    value, label = row["value"], row["label"]
    if "structure" in row:
        passage = row.get("other") or row["text"]  # the text that offsets refer to
        value, label = (Annotation.from_json(row[side], passage) for side in ("structure", "gold"))
        text_pair = (row["text"], row["other"]) if "other" in row else None
        return Prediction(row["text"], label, value, float(row["score"]), text_pair)
    match prediction_kind(value):
        case "numbers" if isinstance(value, list):
            value, label = tuple(value), tuple(map(float, label))
        case "numbers":
            label = float(label)
        case "sets":
            # Sorted, so that equal sets compare equal.
            value, label = tuple(sorted(map(str, value))), tuple(sorted(_label_names(label)))
        case "classes":
            label = str(label)
    before = row.get("uncalibrated")
    text_pair = (row["text"], row["other"]) if "other" in row else None
    text = row["text"] if text_pair is None else join_pair(*text_pair)
    return Prediction(
        text,
        label,
        value,
        float(row["score"]),
        text_pair,
        None if before is None else float(before),
    )


def _label_names(label: object) -> tuple[str, ...]:
    return tuple(map(str, label)) if isinstance(label, (tuple, list)) else (str(label),)
