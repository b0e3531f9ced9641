"""A number for every word of a text, learned on a standardised scale.

Targets and predictions are tables of whole numbers everywhere else; here each is the bit pattern of
a number in 32 bits. -1, which pads tables, is a pattern of NaN: a word without a number.

T words   n words of all sentences
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics import GroupedRegressionMetric
from weft.metrics.value import MetricRepr, MetricValue
from weft.protocols import LabelSpace, Saved, Section
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.tag_vocabulary import read_column, require_annotations
from weft.tasks.task import Answer, StructuredTask
from weft.text.example import TAG_COLUMN, Example, SkipCounter, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.line_source import SKIP_HINT

MISSING = ("", "_", "-")  # cells of words without a number
BAND_EDGES = (-1.5, -0.5, 0.5, 1.5)  # in deviations from the mean
BANDS = ("very low", "low", "middle", "high", "very high")
FULL_COLOUR = 3.0  # deviations from the mean that have the strongest colour


@dataclass(frozen=True)
class WordScale(LabelSpace):
    """Mean and (population) standard deviation of the numbers of the training words."""

    names: tuple[str, ...] = field()  # the column
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def width(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return 1

    def to_json(self) -> JsonObject:
        return {"names": list(self.names), "mean": self.mean, "deviation": self.deviation}


def pack_numbers(numbers: np.ndarray) -> np.ndarray:
    """Return numbers (T,) as a table of bit patterns (T, 1); NaN becomes -1."""
    bits = np.asarray(numbers, np.float32).view(np.int32).astype(np.int64)
    return np.where(np.isnan(numbers), -1, bits)[:, None]


def unpack_numbers(table: np.ndarray) -> np.ndarray:
    """Return the numbers (T,) of a table (T, 1), NaN where there is none."""
    bits = np.ascontiguousarray(table[:, 0], np.int32)
    return bits.view(np.float32).astype(np.float64)


@register("task", "regress-words")
class RegressWords(StructuredTask[WordScale]):
    """A number for every word: squared error on the standardised scale, answers in the user's unit.

    Numbers stand in one of the `columns` of a file of words, or in a list beside a text whose words
    are set apart by spaces. A word with "_" or "-" in its place has none.
    """

    head = "numbers"
    metric = "pearson"
    can_average = False

    def __init__(self, columns: list[str] = []) -> None:  # noqa: B006 -- never changed
        if len(columns) > 1:
            raise UserError(f"task.columns names one column of numbers, got {columns}.")
        self.columns = tuple(columns)

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer the column from the file, unless it is configured."""
        first = next(islice(examples, 1), None)
        if settings.get("columns") or first is None:
            return {}
        label = first.label
        return {"columns": [label.main if isinstance(label, WordAnnotations) else TAG_COLUMN]}

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example with the words that its numbers belong to, and these in a column."""
        if isinstance(example.label, tuple):
            words = tuple(example.text.split())
            if len(words) != len(example.label):
                raise UserError(
                    f"{example.where}: {len(example.label)} numbers for {len(words)} words. Words "
                    f"are what spaces set apart. Correct the row, or {SKIP_HINT}."
                )
            example = replace(
                example,
                text=" ".join(words),
                words=words,
                places=locate_spaced_words(words),
                label=WordAnnotations({TAG_COLUMN: example.label}, TAG_COLUMN),
            )
        if example.label is not None:
            self._numbers(example)
        return example

    def _numbers(self, example: Example) -> np.ndarray:
        """Return the numbers (T,) of the words, NaN where there is none."""
        name = self.columns[0] if self.columns else require_annotations(example).main
        cells = read_column(example, name)
        numbers = np.full(len(cells), np.nan)
        for i, cell in enumerate(cells):
            if cell in MISSING:
                continue
            try:
                numbers[i] = float(cell)
            except ValueError:
                numbers[i] = math.inf
            if not math.isfinite(numbers[i]):
                raise UserError(
                    f"{example.sentence_where}: word {i + 1}, '{example.words[i]}': {cell!r} is "
                    "not a finite number. Correct it, write _ for a word without one, or name "
                    "another column with --label."
                )
        return numbers

    def space(self, examples: Iterable[Example]) -> WordScale:
        """Return mean and deviation of all numbers, computed in one pass (Chan et al. 1979)."""
        count, mean, squares, where = 0, 0.0, 0.0, "input"
        for example in examples:
            where = example.file or where
            numbers = self._numbers(example)
            numbers = numbers[np.isfinite(numbers)]
            if not len(numbers):
                continue
            own, step = float(numbers.mean()), float(numbers.mean()) - mean
            total = count + len(numbers)
            squares += (
                float(np.square(numbers - own).sum()) + step**2 * count * len(numbers) / total
            )
            mean, count = mean + step * len(numbers) / total, total
        if not count:
            raise UserError(
                f"{where}: no word has a number. Name the column of numbers with --label."
            )
        if not math.isfinite(squares):
            raise UserError(f"{where}: the numbers are too large to average; rescale them.")
        deviation = math.sqrt(squares / count)
        if deviation <= 1e-12 * abs(mean):
            raise UserError(
                f"{where}: every word has the number {mean:g}; there is nothing to learn. Name "
                "another column with --label."
            )
        return WordScale(self.columns or (TAG_COLUMN,), mean, deviation)

    def load_space(self, saved: Saved) -> WordScale:
        try:
            names = tuple(map(str, saved["names"]))
            space = WordScale(names, float(saved["mean"]), float(saved["deviation"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The saved scale is damaged: {error!r}. Train again.") from error
        if not (math.isfinite(space.mean) and 0 < space.deviation < math.inf):
            raise UserError(f"The saved scale is damaged: {space}. Train again.")
        return space

    def target(self, example: Example, space: WordScale) -> np.ndarray:
        """Return the numbers in deviations from the mean, as bit patterns (T, 1)."""
        return pack_numbers((self._numbers(example) - space.mean) / space.deviation)

    def answers(self, scores: Sequence[Decoded], space: WordScale) -> list[Answer]:
        """Return the number of every word in the user's unit; the score is their mean."""
        out = []
        for found in scores:
            standard = unpack_numbers(found.table)
            numbers = tuple((standard * space.deviation + space.mean).tolist())
            seen = _annotate(found.words, found.places, standard, space)
            score = math.fsum(numbers) / len(numbers) if numbers else 0.0
            out.append(Answer(numbers, score, scores=tuple(standard.tolist()), structure=seen))
        return out

    def gold(
        self, example: Example, space: WordScale, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        standard = (self._numbers(example) - space.mean) / space.deviation
        return _annotate(example.words, example.places, standard, space, example.text)

    def predict_targets(self, scores: Sequence[Decoded], space: WordScale) -> list[np.ndarray]:
        return [found.table for found in scores]

    def build_metric(self, space: WordScale) -> "WordNumberMetric":
        return WordNumberMetric(space)


class WordNumberMetric(MetricRepr):
    """Pearson, Spearman and squared error over all words that have a number.

    Intervals resample sentences.
    """

    def __init__(self, space: WordScale) -> None:
        self.numbers = GroupedRegressionMetric(unit=space.deviation or 1.0)

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        for ours, theirs in zip(predicted, gold, strict=True):
            right = unpack_numbers(theirs)
            known = np.isfinite(right)
            self.numbers.add(unpack_numbers(ours)[known], right[known])

    def merge(self, other: "WordNumberMetric") -> None:
        self.numbers.merge(other.numbers)

    @property
    def n(self) -> int:
        return self.numbers.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        return self.numbers.compute(resamples, seed, level)


def _annotate(
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    standard: np.ndarray,
    space: WordScale,
    text: str = "",
) -> Annotation:
    """Return the numbers as written, their bands, and colours from -1 to 1."""
    known = np.isfinite(standard)
    numbers = standard * space.deviation + space.mean
    tags = tuple(f"{x:.4g}" if real else "_" for x, real in zip(numbers, known, strict=True))
    bands = np.searchsorted(BAND_EDGES, np.where(known, standard, 0.0), side="right").tolist()
    names = tuple(BANDS[k] if real else "" for k, real in zip(bands, known, strict=True))
    colours = np.clip(np.where(known, standard, 0.0) / FULL_COLOUR, -1, 1).round(4).tolist()
    return Annotation(
        "word-numbers", words, places, text, tags, relations=names, scores=tuple(colours)
    )  # fmt: skip
