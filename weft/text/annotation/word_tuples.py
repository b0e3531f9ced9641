"""Tuples of open information extraction as words of a sentence, so that they have offsets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.jsonio import JsonObject
from weft.text.annotation.frames import Extraction

CharSpan = tuple[int, int]


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

    def to_extraction(self, text: str, places: Sequence[CharSpan]) -> Extraction:
        """Return the tuple as texts; parts of the sentence that lie apart are joined by spaces."""
        return Extraction(
            join_words(text, places, self.predicate),
            tuple(join_words(text, places, one.words) for one in self.arguments),
            self.confidence,
        )

    def to_json(self, text: str, places: Sequence[CharSpan]) -> JsonObject:
        """Return texts with their character offsets, and the confidence."""
        arguments = [
            {"role": one.role} | _part_json(text, places, one.words) for one in self.arguments
        ]
        predicate = _part_json(text, places, self.predicate)
        return {"confidence": self.confidence, "predicate": predicate, "arguments": arguments}


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
