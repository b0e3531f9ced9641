"""Annotations of meaning: predicates with their roles, coreference chains, extracted tuples."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.text.annotation.schemes import Span

# PropBank's modifiers, as in its guidelines, OntoNotes and CoNLL-2005.
MODIFIERS = (
    "ADJ", "ADV", "CAU", "COM", "CXN", "DIR", "DIS", "DSP", "EXT", "GOL", "LOC", "LVB", "MNR",
    "MOD", "NEG", "PNC", "PRD", "PRP", "PRR", "PRX", "REC", "REF", "SLC", "STR", "TMP",
)  # fmt: skip
_CORE = re.compile(r"A(?:RG)?[0-5A]")
_ROLE = re.compile(rf"(?:[CR]-)?(?:V|A(?:RG)?[0-5A](?:-\w+)?|A(?:RGM|M)-(?:{'|'.join(MODIFIERS)}))")

# A predicate as plain values: its word, its sense, and the roles as (label, start, end).
FrameRow = tuple[int, str, tuple[tuple[str, int, int], ...]]
Mention = Span  # its label is the entity; it counts the words of the document


def is_role(name: str) -> bool:
    """Return whether PropBank has a role of this name: V, ARG1, R-ARGM-TMP, A0."""
    return bool(_ROLE.fullmatch(name))


def is_core_role(name: str) -> bool:
    """Return whether this is a numbered role, which a predicate has once."""
    return bool(_CORE.fullmatch(name))


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate and the roles of its arguments, as spans of words."""

    word: int  # the word that the file marks
    sense: str  # its roleset, such as come.03
    roles: tuple[Span, ...]  # in the order of the sentence; V is the predicate itself


@dataclass(frozen=True, slots=True)
class Frames:
    """The predicates of a sentence, in order."""

    predicates: tuple[Predicate, ...]

    def to_rows(self) -> tuple[FrameRow, ...]:
        """Return the predicates as plain values."""
        return tuple(
            (one.word, one.sense, tuple((label, start, end) for label, start, end in one.roles))
            for one in self.predicates
        )


def read_frames(rows: Iterable[FrameRow]) -> Frames:
    """Return predicates from plain values."""
    return Frames(
        tuple(
            Predicate(word, sense, tuple(Span(*role) for role in roles))
            for word, sense, roles in rows
        )
    )


@dataclass(frozen=True, slots=True)
class Coreference:
    """The mentions of a document, and where its sentences begin, counted in words."""

    mentions: tuple[Mention, ...]
    sentences: tuple[int, ...] = (0,)
    speakers: tuple[str, ...] = ()  # of each word, "" where unknown; empty: of none
    genre: str = ""  # of the document
    constituents: tuple[Span, ...] = ()  # of its trees, if the file has them

    @property
    def chains(self) -> dict[str, tuple[Mention, ...]]:
        """The mentions of each entity, in the order of the document."""
        out: dict[str, list[Mention]] = {}
        for mention in self.mentions:
            out.setdefault(mention.label, []).append(mention)
        return {entity: tuple(own) for entity, own in out.items()}


@dataclass(frozen=True, slots=True)
class Extraction:
    """A tuple of open information extraction: a predicate and its arguments, as texts."""

    predicate: str
    arguments: tuple[str, ...]
    confidence: float | None = None  # of a system; None of gold tuples
    line: int = field(default=0, compare=False)  # of the file
    # Characters of the predicate and of each argument, if the file has them.
    spans: tuple[tuple[tuple[int, int], ...], ...] = field(default=(), compare=False)

    def locate(self, sentence: str) -> tuple[tuple[int, int] | None, ...]:
        """Return the characters of predicate and arguments; None of one that is worded anew."""
        out: list[tuple[int, int] | None] = []
        for part in (self.predicate, *self.arguments):
            start = sentence.find(part.strip()) if part.strip() else -1
            out.append((start, start + len(part.strip())) if start >= 0 else None)
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Extractions:
    """The tuples of one sentence."""

    tuples: tuple[Extraction, ...]
