"""A CoNLL-U sentence: rows of ten cells, comments and line breaks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from weft.errors import UserError, unknown_name

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
EMPTY_CELL = "_"
METADATA = re.compile(r"#\s*(\S+)\s*= ?(.*)")  # a comment `# key = value`


@dataclass(frozen=True, slots=True)
class ConlluRow:
    """A row as in the file: a word, a multi-word token (id 3-4) or an empty node (3.1)."""

    id: str
    form: str
    lemma: str = EMPTY_CELL
    upos: str = EMPTY_CELL
    xpos: str = EMPTY_CELL
    feats: str = EMPTY_CELL
    head: str = EMPTY_CELL
    deprel: str = EMPTY_CELL
    deps: str = EMPTY_CELL
    misc: str = EMPTY_CELL

    @property
    def kind(self) -> Literal["word", "range", "empty"]:
        """The kind of row, by its id."""
        return "range" if "-" in self.id else "empty" if "." in self.id else "word"

    @property
    def bounds(self) -> tuple[int, int]:
        """First and last word of a multi-word token; of a word, itself twice."""
        first, _, last = self.id.partition("-")
        return int(first.partition(".")[0]), int((last or first).partition(".")[0])

    @property
    def has_space_after(self) -> bool:
        """True if a space follows in the text."""
        return "SpaceAfter=No" not in self.misc.split("|")

    def __str__(self) -> str:
        return "\t".join([getattr(self, name) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class Sentence:
    """Comments and rows in order, with their line breaks."""

    parts: tuple[str | ConlluRow, ...]  # a str is a comment
    file: str = ""
    line: int = 0  # of the first part
    breaks: tuple[str, ...] = ()  # the line break after each part; empty: all are \\n
    before: str = ""  # text before the first part of a file
    after: str = "\n"  # text between this sentence and the next

    @property
    def comments(self) -> list[str]:
        """The lines that start with #."""
        return [part for part in self.parts if isinstance(part, str)]

    @property
    def rows(self) -> list[ConlluRow]:
        """Words, multi-word tokens and empty nodes in the order of the file."""
        return [part for part in self.parts if not isinstance(part, str)]

    @property
    def words(self) -> list[ConlluRow]:
        """The syntactic words, which have heads and tags."""
        return [row for row in self.rows if row.kind == "word"]

    @property
    def ranges(self) -> list[ConlluRow]:
        """The multi-word tokens."""
        return [row for row in self.rows if row.kind == "range"]

    @property
    def empty(self) -> list[ConlluRow]:
        """The empty nodes of the enhanced graph."""
        return [row for row in self.rows if row.kind == "empty"]

    @property
    def sent_id(self) -> str:
        """The value of the comment `# sent_id = …`, or ""."""
        return (self.field("sent_id") or "").strip()

    @property
    def text(self) -> str | None:
        """The value of the comment `# text = …`, if any."""
        return self.field("text")

    @property
    def heads(self) -> list[int]:
        """The head of each word, from 1, 0 for the root; validate the sentence first."""
        return [int(word.head) for word in self.words]

    def field(self, name: str) -> str | None:
        """Return the value of a comment `# name = value`."""
        for comment in self.comments:
            match = METADATA.fullmatch(comment)
            if match and match[1] == name:
                return match[2]
        return None

    def column(self, name: str) -> list[str]:
        """Return the cells of the words in one column."""
        _check_column(name)
        return [getattr(word, name) for word in self.words]

    def with_column(self, name: str, values: Sequence[str | int]) -> "Sentence":
        """Return the sentence with other cells for its words."""
        _check_column(name)
        count = len(self.words)
        if len(values) != count:
            mismatch = f"{len(values)} values of '{name}' for {count} words"
            raise UserError(f"{self.where()}: {mismatch}. Pass one per word, none for 3-4 or 3.1.")
        left = iter(values)
        parts = [
            replace(part, **{name: _to_cell(next(left))})
            if not isinstance(part, str) and part.kind == "word"
            else part
            for part in self.parts
        ]
        return replace(self, parts=tuple(parts))

    def where(self, row: ConlluRow | None = None) -> str:
        """Return 'file:line: sentence …' of a row, for messages."""
        named = f": sentence '{self.sent_id}'" if self.sent_id else ""
        return (f"{self.file}:{self.line_of(row)}" if self.file else "input") + named

    def line_of(self, row: ConlluRow | None = None) -> int:
        """Return the line of a row, or of the first part."""
        return self.line + next((i for i, part in enumerate(self.parts) if part is row), 0)


def _check_column(name: str) -> None:
    if name not in COLUMNS:
        raise unknown_name("CoNLL-U column", name, COLUMNS)


def _to_cell(value: str | int) -> str:
    text = str(value)
    if "\t" in text or "\n" in text:
        raise UserError(f"A CoNLL-U cell cannot hold a tab or a line break: {text!r:.40}.")
    return text or EMPTY_CELL
