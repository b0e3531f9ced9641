"""What a reader hands on: one text with its label and the place it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import UserError
from weft.text.schemes import Span
from weft.text.trees import Tree


@dataclass(frozen=True, slots=True)
class Layers:
    """What is known of each word of a sentence, by the name of the column."""

    columns: Mapping[str, tuple[str, ...]]
    main: str = ""  # the column that is meant where none is named


@dataclass(frozen=True, slots=True)
class Marks:
    """Labelled stretches of a text, in characters."""

    spans: tuple[Span, ...]


Label = str | tuple[str, ...] | float | Layers | Marks | None


@dataclass(frozen=True, slots=True)
class Example:
    text: str
    label: Label = None  # a class or several, a number, something of the words, or nothing
    id: str = ""
    file: str = ""
    line: int = 0  # counted from 1; 0 when the text did not come from a file
    words: tuple[str, ...] = ()  # where the file says what the words are
    places: tuple[tuple[int, int], ...] = ()  # (start, end) of each word in the text
    tree: Tree | None = None  # where the file has trees
    fields: tuple[tuple[str, str], ...] = ()  # slots and values, where the text is a record
    vectors: Any = field(default=None, compare=False)  # (T, F) where it stands for a matrix
    other: str | None = None  # the second text, where there are two

    @property
    def where(self) -> str:
        """'file:line', for messages."""
        return f"{self.file}:{self.line}" if self.file else "input"

    @property
    def sentence(self) -> str:
        """'file:line: sentence …', for messages about one of its words."""
        return f"{self.where}: sentence '{self.id}'" if self.id else self.where


@dataclass
class Tally:
    """Counts what was left out or cut, with the first places, so that nothing goes in silence."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    open: bool = True  # files are gone through more than once, and counted only once

    SHOWN = 5

    def add(self, what: str, where: str) -> None:
        if not self.open:
            return
        self.counts[what] = self.counts.get(what, 0) + 1
        places = self.places.setdefault(what, [])
        if len(places) < self.SHOWN:
            places.append(where)

    def lines(self) -> list[str]:
        """One sentence a kind of loss."""
        return [
            f"{count} {what}: {', '.join(self.places[what])}"
            + (", …" if count > len(self.places[what]) else "")
            for what, count in self.counts.items()
        ]

    def __bool__(self) -> bool:
        return bool(self.counts)


def label_of(value: Any) -> Label:
    """A typed label (of JSON, of Parquet) as Weft holds it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if value - value != 0:
            raise UserError(f"the label is {value}, not a finite number. Remove the row.")
        return value
    if isinstance(value, list) and all(isinstance(item, (str, int)) for item in value):
        return tuple(str(label_of(item)) for item in value)
    raise UserError(
        f"the label should be a text, a number or a list of texts, found {value!r:.40}."
    )
