"""Tuples of open information extraction as words of a sentence, so that they have offsets.

T words
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.jsonio import JsonObject
from weft.text.annotation.frames import Extraction

CharSpan = tuple[int, int]
# A tuple as plain values: confidence, predicate, arguments with their roles, implied words.
TupleRow = tuple[float, tuple[int, ...], tuple[tuple[str, tuple[int, ...]], ...], tuple[str, ...]]
# Words that a predicate may have and its sentence not, as in "is president of" (OpenIE6).
IMPLIED = ("is", "of", "from")
LABELS = ("N", "S", "R", "O")  # of a word in a tuple: none, subject, relation, object
NONE, SUBJECT, RELATION, OBJECT = range(4)


@dataclass(frozen=True, slots=True)
class TupleArgument:
    """The words of an argument, and its semantic role where there is one."""

    words: tuple[int, ...]
    role: str = ""


@dataclass(frozen=True, slots=True)
class WordTuple:
    """A predicate and its arguments, the subject first, each as word numbers in order."""

    predicate: tuple[int, ...]
    arguments: tuple[TupleArgument, ...]
    confidence: float
    implied: tuple[str, ...] = ()  # words of the predicate that the sentence does not have

    def to_row(self) -> TupleRow:
        """Return the tuple as plain values."""
        arguments = tuple((one.role, one.words) for one in self.arguments)
        return self.confidence, self.predicate, arguments, self.implied

    def to_extraction(self, text: str, places: Sequence[CharSpan]) -> Extraction:
        """Return the tuple as texts; parts of the sentence that lie apart are joined by spaces."""
        return Extraction(
            self._predicate_text(text, places),
            tuple(join_words(text, places, one.words) for one in self.arguments),
            self.confidence,
        )

    def _predicate_text(self, text: str, places: Sequence[CharSpan]) -> str:
        """Return the predicate: "is" stands before the words of the sentence, the others after."""
        first, *others = IMPLIED
        parts = [first] * (first in self.implied)
        parts += [join_words(text, places, self.predicate)] if self.predicate else []
        return " ".join([*parts, *(word for word in others if word in self.implied)])

    def to_json(self, text: str, places: Sequence[CharSpan]) -> JsonObject:
        """Return texts with their character offsets, and the confidence."""
        arguments = [
            {"role": one.role} | _part_json(text, places, one.words) for one in self.arguments
        ]
        predicate = _part_json(text, places, self.predicate)
        predicate["text"] = self._predicate_text(text, places)
        return {"confidence": self.confidence, "predicate": predicate, "arguments": arguments}


def read_tuples(rows: Iterable[TupleRow]) -> list[WordTuple]:
    """Return tuples from plain values."""
    return [
        WordTuple(
            predicate, tuple(TupleArgument(words, role) for role, words in own), confidence, implied
        )
        for confidence, predicate, own, implied in rows
    ]


def label_words(one: WordTuple, count: int) -> np.ndarray:
    """Return the labels of the implied words, then of the words of a sentence, (3 + T,)."""
    out = np.full(len(IMPLIED) + count, NONE, np.int64)
    first, *others = one.arguments
    for label, parts in ((OBJECT, others), (SUBJECT, [first])):
        for part in parts:
            out[[len(IMPLIED) + word for word in part.words]] = label
    out[[len(IMPLIED) + word for word in one.predicate]] = RELATION
    out[[IMPLIED.index(word) for word in one.implied]] = RELATION
    return out


def read_labels(labels: Sequence[int], confidence: float) -> WordTuple | None:
    """Return the tuple that labels (3 + T,) say; None without a subject or a predicate."""
    marked = list(enumerate(labels, -len(IMPLIED)))
    subject, relation, other = (
        tuple(word for word, label in marked if label == wanted and word >= 0)
        for wanted in (SUBJECT, RELATION, OBJECT)
    )
    implied = tuple(word for word, label in zip(IMPLIED, labels, strict=False) if label == RELATION)
    if not subject or not (relation or implied):
        return None
    arguments = [TupleArgument(subject)] + [TupleArgument(other)] * bool(other)
    return WordTuple(relation, tuple(arguments), confidence, implied)


def find_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the stretches of neighbouring words, as start and end."""
    out: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if out and out[-1][1] == number:
            out[-1] = (out[-1][0], number + 1)
        else:
            out.append((number, number + 1))
    return out


def char_spans(places: Sequence[CharSpan], words: Iterable[int]) -> list[CharSpan]:
    """Return the characters of each stretch of words."""
    return [(places[start][0], places[end - 1][1]) for start, end in find_runs(words)]


def join_words(text: str, places: Sequence[CharSpan], words: Iterable[int]) -> str:
    """Return the text of some words, with single spaces."""
    parts = (text[start:end] for start, end in char_spans(places, words))
    return " ".join(" ".join(parts).split())


def _part_json(text: str, places: Sequence[CharSpan], words: tuple[int, ...]) -> JsonObject:
    spans = [list(span) for span in char_spans(places, words)]
    return {"text": join_words(text, places, words), "spans": spans}
