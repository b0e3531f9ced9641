"""Open information extraction: the tuples of a sentence, as rows of a grid of labels.

T words   I implied words   D rows of the grid, as in decode/heads/semantics/tuple_grid.py
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics.structure.carb import CarbScores
from weft.protocols import LabelSpace, Saved
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.semantics.tuple_alignment import align_tuple
from weft.tasks.task import Answer, StructuredTask
from weft.text.annotation.frames import Extractions
from weft.text.annotation.word_tuples import (
    IMPLIED,
    LABELS,
    NONE,
    WordTuple,
    label_words,
    read_labels,
    read_tuples,
)
from weft.text.example import Example, SkipCounter
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.tokens.pretokenizer import split_words

MAX_ROWS = 20
EMPTY_CELL = -1  # of lines behind the words
MIN_PROB = 1e-12
FIX = (
    "Give one tuple a line, separated by tabs: sentence, predicate, arguments; or JSON lines of "
    "`weft extract`."
)


@dataclass(frozen=True)
class TupleSpace(LabelSpace):
    """The labels of words, the same in every row of the grid."""

    rows: int

    @property
    def entries(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # read only
        return (LABELS,) * self.rows

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]  # read only
        return tuple(f"tuple{row}" for row in range(1, self.rows + 1))

    @property
    def size(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        return ((LABELS, ""),) * self.rows

    @property
    def width(self) -> int:
        return self.rows

    def to_json(self) -> JsonObject:
        return {"rows": self.rows}

    @classmethod
    def from_json(cls, saved: Saved) -> "TupleSpace":
        """Restore what `to_json` wrote, or raise a UserError if it is damaged."""
        rows = saved.get("rows")
        if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MAX_ROWS:
            raise UserError(
                "The saved label space of a model of tuples is damaged: 'rows' should be a number "
                f"from 1 to {MAX_ROWS}. Train again."
            )
        return cls(rows)


@register("task", "openie")
class TupleExtraction(StructuredTask[TupleSpace]):
    """The tuples of a sentence: a subject, a relation, and everything else as object.

    Files have a tuple a line, as CaRB and `weft extract` write them. `rows` tuples of a sentence at
    most are learned and found. The metrics are those of CaRB.
    """

    head = "tuple-grid"
    metric = "f1"
    has_references = True
    can_average = False
    file_format = "extractions"

    def __init__(self, rows: int = 5):
        if not 1 <= rows <= MAX_ROWS:
            raise UserError(f"task.rows is a number from 1 to {MAX_ROWS}; got {rows}.")
        self.rows = rows

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example with its words; count tuples that cannot be learned."""
        example = with_words(example)
        found = list(_aligned(example))
        if None in found:
            tally.add("sentences with tuples that they do not word, left out", example.where)
        if sum(one is not None for one in found) > self.rows:
            tally.add(f"sentences with more than {self.rows} tuples", example.where)
        return example

    def space(self, examples: Iterable[Example]) -> TupleSpace:
        """Check that there is a tuple to learn."""
        where, some = "input", False
        for example in examples:
            where = example.file or where
            some = some or any(_aligned(with_words(example)))
        if not some:
            raise UserError(f"{where}: no tuple is worded as its sentence. {FIX}")
        return TupleSpace(self.rows)

    def load_space(self, saved: Saved) -> TupleSpace:
        return TupleSpace.from_json(saved)

    def target(self, example: Example, space: TupleSpace) -> np.ndarray:
        """Return the labels (I + T, D) of implied words and words; rows without a tuple are N."""
        example = with_words(example)
        out = np.full((len(IMPLIED) + len(example.words), space.rows), NONE, np.int64)
        known = [one for one in _aligned(example) if one is not None]
        for row, one in enumerate(known[: space.rows]):
            out[:, row] = label_words(one, len(example.words))
        return out

    def find_reference(self, example: Example) -> Extractions:
        return tuples_of(example)

    def missing_label_error(self, example: Example) -> UserError:
        return UserError(f"{example.where}: no tuples. {FIX}")

    def answers(self, scores: Sequence[Decoded], space: TupleSpace) -> list[Answer]:
        """Return the tuples of each sentence, with the character offsets of their parts."""
        return [self._answer(decoded) for decoded in scores]

    def _answer(self, decoded: Decoded) -> Answer:
        found = find_tuples(decoded)
        text, places = _spaced(decoded)
        structure = annotate_tuples(found, decoded.words, decoded.places)
        value = tuple(one.to_json(text, places) for one in found)
        confidences = tuple(one.confidence for one in found)
        mean = float(np.exp(np.log(np.maximum(confidences, MIN_PROB)).mean())) if found else 1.0
        return Answer(value, mean, scores=confidences, structure=structure)

    def gold(
        self, example: Example, space: TupleSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation: the tuples that are worded as their sentence."""
        example = with_words(example)
        known = [one for one in _aligned(example) if one is not None]
        return annotate_tuples(known, example.words, example.places, example.text)

    def predict_targets(self, scores: Sequence[Decoded], space: TupleSpace) -> list[Extractions]:
        """Return the tuples of each sentence as texts."""
        return [to_extractions(find_tuples(one), *_spaced(one)) for one in scores]

    def build_metric(self, space: TupleSpace) -> CarbScores:
        return CarbScores()


def tuples_of(example: Example) -> Extractions:
    """Return the tuples of an example, or raise a UserError."""
    if not isinstance(example.label, Extractions):
        raise UserError(f"{example.where}: no tuples. {FIX}")
    return example.label


def with_words(example: Example) -> Example:
    """Return the example with the words of its text, as plain text is split."""
    if example.words:
        return example
    words, places = split_words(example.text)
    return replace(example, words=words, places=places)


def _aligned(example: Example) -> Iterator[WordTuple | None]:
    for one in tuples_of(example).tuples:
        yield align_tuple(example.words, example.places, one)


def find_tuples(decoded: Decoded) -> list[WordTuple]:
    """Return the tuples of a decoded grid, each once.

    The confidence is the geometric mean of the probabilities of all labels but none.
    """
    out: dict[tuple[object, ...], WordTuple] = {}
    for labels, probs in zip(decoded.table.T, decoded.probs.T, strict=True):
        marked = labels != NONE
        if not marked.any():
            continue
        confidence = float(np.exp(np.log(np.maximum(probs[marked], MIN_PROB)).mean()))
        one = read_labels(labels.tolist(), confidence)
        if one is not None:
            out.setdefault((one.predicate, one.arguments, one.implied), one)
    return list(out.values())


def annotate_tuples(
    tuples: Sequence[WordTuple],
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    text: str = "",
) -> Annotation:
    """Return tuples as an annotation of the words."""
    rows = tuple(one.to_row() for one in tuples)
    return Annotation("tuples", words, places, text, tuples=rows)


def to_extractions(
    tuples: Iterable[WordTuple], text: str, places: Sequence[tuple[int, int]]
) -> Extractions:
    """Return tuples as texts."""
    return Extractions(tuple(one.to_extraction(text, places) for one in tuples))


def annotated_extractions(annotation: Annotation, text: str) -> Extractions:
    """Return the tuples of an annotation as texts."""
    return to_extractions(read_tuples(annotation.tuples), text, annotation.places)


def _spaced(decoded: Decoded) -> tuple[str, Sequence[tuple[int, int]]]:
    """Return a text with the words of a sentence at their places, or with a space between them."""
    if len(decoded.places) != len(decoded.words):
        return " ".join(decoded.words), locate_spaced_words(decoded.words)
    text = ""
    for word, (start, _) in zip(decoded.words, decoded.places, strict=True):
        text = text.ljust(start) + word
    return text, decoded.places
