"""Annotated documents as a folder for BRAT: a .txt and an .ann file for each.

Words are text-bound annotations named by their tag; heads are relations between them; a predicate
is an event with its roles; entities and mentions are spans, mentions of one chain are equivalent.
"""

import re
from collections.abc import Iterator
from itertools import count

from weft.annotate.document import VERB, AnnotatedDocument, AnnotatedSentence

WORD, PREDICATE, ARGUMENT, MENTION, COREFERENCE = (
    "Token", "Predicate", "Argument", "Mention", "Coreference",
)  # fmt: skip


def format_annotations(document: AnnotatedDocument) -> str:
    """Return the lines of the .ann file."""
    return "".join(f"{line}\n" for line in _Numbered(document).lines())


def safe_name(name: str) -> str:
    """Return the name of a document as one of a file that stays in its folder."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._")[:100] or "text"


class _Numbered:
    """The lines of one document, with the numbers that are already given away."""

    def __init__(self, document: AnnotatedDocument) -> None:
        self.document = document
        self.texts, self.relations, self.events, self.notes = count(1), count(1), count(1), count(1)

    def lines(self) -> Iterator[str]:
        layers = self.document.layers
        for sentence in self.document.sentences:
            if "tags" in layers or "dependencies" in layers:
                yield from self._words(sentence)
            for frame in sentence.frames:
                yield from self._frame(sentence, frame)
        for start, end, label in self.document.entities:
            yield self._span(label, start, end)[1]
        for spans in self.document.chains().values():
            mentions = [self._span(MENTION, start, end) for start, end in spans]
            yield from (line for _, line in mentions)
            if len(mentions) > 1:
                yield f"*\t{COREFERENCE} {' '.join(name for name, _ in mentions)}"

    def _span(self, label: str, start: int, end: int) -> tuple[str, str]:
        """Return the number of a text-bound annotation, and its line."""
        name = f"T{next(self.texts)}"
        covered = self.document.text[start:end].replace("\n", " ")
        return name, f"{name}\t{_type(label)} {start} {end}\t{covered}"

    def _words(self, sentence: AnnotatedSentence) -> Iterator[str]:
        tags = sentence.tags.get("upos") or next(iter(sentence.tags.values()), ())
        labels = tags or (WORD,) * len(sentence.words)
        words = [
            self._span(label, *place) for label, place in zip(labels, sentence.places, strict=True)
        ]
        yield from (line for _, line in words)
        for k, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
            if head:
                ends = f"Arg1:{words[head - 1][0]} Arg2:{words[k][0]}"
                yield f"R{next(self.relations)}\t{_type(relation)} {ends}"

    def _frame(
        self, sentence: AnnotatedSentence, frame: tuple[int, str, tuple[tuple[str, int, int], ...]]
    ) -> Iterator[str]:
        word, sense, roles = frame
        trigger, line = self._span(PREDICATE, *sentence.places[word])
        yield line
        arguments = []
        for label, i, j in roles:
            if label != VERB:
                name, line = self._span(ARGUMENT, sentence.places[i][0], sentence.places[j - 1][1])
                yield line
                arguments.append(f" {_type(label)}:{name}")
        event = f"E{next(self.events)}"
        yield f"{event}\t{PREDICATE}:{trigger}{''.join(arguments)}"
        yield f"#{next(self.notes)}\tAnnotatorNotes {event}\t{sense}"


def _type(label: str) -> str:
    """Return a label as BRAT allows types: letters, digits, hyphens and underscores."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", label) or "_"
