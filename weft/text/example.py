"""A text with its label and its origin, as readers yield it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.errors import UserError
from weft.text.annotation.frames import Coreference, Extractions, Frames
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree
from weft.text.location import format_location

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class WordAnnotations:
    """Annotations of each word of a sentence, by column name."""

    columns: Mapping[str, tuple[str, ...]]
    main: str = ""  # the default column
    label: str = ""  # of the sentence as a whole, such as its intent


@dataclass(frozen=True, slots=True)
class CharSpans:
    """Labelled spans of a text, in characters."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """Spans of the second text that answer the question; empty if it has no answer."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()  # character offsets


TAG_COLUMN = "tag"  # the main column of a column file
PAIR_SEPARATOR = " ⟷ "  # between two texts that are displayed
SINGULAR = {
    "answers": "answer", "do": "does", "files": "file", "labels": "label", "rows": "row",
    "sentences": "sentence", "spans": "span", "texts": "text",
}  # fmt: skip
PLURAL = {"empty text": "empty texts", "broken tree": "broken trees"}
UNKNOWN_WORDS = "texts with words that the model does not tell apart"  # unknown, or too long

Label = (
    str
    | tuple[str, ...]
    | float
    | WordAnnotations
    | CharSpans
    | GoldAnswers
    | Frames
    | Coreference
    | Extractions
    | None
)


@dataclass(frozen=True, slots=True)
class Example:
    text: str
    label: Label = None  # a class or several, a number, annotations, or nothing
    id: str = ""
    file: str = ""
    line: int = 0  # from 1; 0 if the text is not from a file
    words: tuple[str, ...] = ()  # if the file gives them
    places: tuple[tuple[int, int], ...] = ()  # (start, end) of each word in the text
    tree: Tree | None = None  # if the file has trees
    fields: tuple[tuple[str, str], ...] = ()  # slots and values of a record
    vectors: "npt.ArrayLike | None" = field(
        default=None, compare=False
    )  # (T, F), the matrix the text refers to
    other: str | None = None  # second text of a pair
    weight: float = 1.0  # of its loss in training: 2 counts as much as two copies
    group: str = ""  # rows of one group, such as a dialogue, are never split between parts

    @property
    def where(self) -> str:
        """'file:line' or, for a table in memory, 'train[17]', for messages."""
        return format_location(self.file, self.line) if self.file else "input"

    @property
    def full_text(self) -> str:
        """The text, or both texts, for display."""
        return self.text if self.other is None else join_pair(self.text, self.other)

    @property
    def sentence_where(self) -> str:
        """'file:line: sentence …', for messages about one of its words."""
        return f"{self.where}: sentence '{self.id}'" if self.id else self.where


@dataclass
class SkipCounter:
    """Counts skipped and truncated rows by kind, with the first places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    enabled: bool = True  # False while a file is read again

    MAX_PLACES = 5

    def add(self, kind: str, where: str) -> None:
        if not self.enabled:
            return
        self.counts[kind] = self.counts.get(kind, 0) + 1
        places = self.places.setdefault(kind, [])
        if len(places) < self.MAX_PLACES:
            places.append(where)

    def lines(self) -> list[str]:
        """Return one line per kind."""
        return [
            f"{count} {PLURAL.get(kind, kind) if count > 1 else _singular(kind)}: "
            + ", ".join(self.places[kind])
            + (", …" if count > len(self.places[kind]) else "")
            for kind, count in self.counts.items()
        ]

    def __bool__(self) -> bool:
        return bool(self.counts)


def _singular(phrase: str) -> str:
    """Return a plural phrase in the singular."""
    return " ".join(SINGULAR.get(word, word) for word in phrase.split(" "))


def sentence_label(label: Label) -> Label:
    """Return the label of the sentence where its words are tagged, too, else the label itself."""
    return label.label if isinstance(label, WordAnnotations) and label.label else label


def join_pair(text: str, other: str) -> str:
    """Return two texts on one line."""
    return f"{text}{PAIR_SEPARATOR}{other}"


def parse_label(value: object) -> Label:
    """Convert a typed label (JSON, Parquet) to a Label."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if value - value != 0:
            raise UserError(f"label {value} is not a finite number. Remove the row.")
        return value
    if (answers := parse_answers(value)) is not None:
        return answers
    if isinstance(value, list) and all(isinstance(item, (str, int, float)) for item in value):
        return tuple(str(parse_label(item)) for item in value)
    raise UserError(f"the label must be a text, a number or a list of either, found {value!r:.40}.")


def parse_weight(value: object) -> float:
    """Return the weight of a row, a number of 0 or more."""
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        weight = float(value)
        if not 0 <= weight < math.inf:
            raise ValueError
    except (ValueError, OverflowError):
        shown = "nothing" if value in (None, "") else f"{value!r:.40}"
        raise UserError(f"the weight should be a number of 0 or more, found {shown}.") from None
    return weight


def parse_answers(value: object) -> GoldAnswers | None:
    """Parse SQuAD answers, [{"text": …, "answer_start": …}, …] or the same as columns."""
    if isinstance(value, Mapping) and {"text", "answer_start"} <= set(value):
        texts, starts = value["text"], value["answer_start"]
        if not isinstance(texts, list) or not isinstance(starts, list):
            texts, starts = [texts], [starts]
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        texts, starts = ([one.get(key) for one in value] for key in ("text", "answer_start"))
    else:
        return None
    try:
        if len(texts) != len(starts) or not all(isinstance(text, str) for text in texts):
            raise ValueError
        return GoldAnswers(tuple(texts), tuple(int(start) for start in starts))
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            "each answer needs a 'text' and an 'answer_start', the offset of its first character; "
            f"found {value!r:.60}."
        ) from None
