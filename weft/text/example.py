"""What a reader hands on: one text with its label and the place it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import UserError
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree


@dataclass(frozen=True, slots=True)
class WordAnnotations:
    """What is known of each word of a sentence, by the name of the column."""

    columns: Mapping[str, tuple[str, ...]]
    main: str = ""  # the column that is meant where none is named


@dataclass(frozen=True, slots=True)
class CharSpans:
    """Labelled stretches of a text, in characters."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """Stretches of the second text that answer the first, which asks; none: there is no answer."""

    texts: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()  # the character at which each begins


TAG_COLUMN = "tag"  # the name of a column file's main column
PAIR_SEPARATOR = " ⟷ "  # two texts that people are shown
SINGULAR = {
    "answers": "answer", "do": "does", "files": "file", "labels": "label", "rows": "row",
    "sentences": "sentence", "spans": "span", "texts": "text",
}  # fmt: skip
PLURAL = {"empty text": "empty texts", "broken tree": "broken trees"}
UNKNOWN_WORDS = "texts with words that the model does not tell apart"  # unknown, or too long

Label = str | tuple[str, ...] | float | WordAnnotations | CharSpans | GoldAnswers | None


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
    def whole(self) -> str:
        """The text, or both of them, for people to read."""
        return self.text if self.other is None else join_pair(self.text, self.other)

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
            f"{count} {PLURAL.get(what, what) if count > 1 else _singular(what)}: "
            + ", ".join(self.places[what])
            + (", …" if count > len(self.places[what]) else "")
            for what, count in self.counts.items()
        ]

    def __bool__(self) -> bool:
        return bool(self.counts)


def _singular(what: str) -> str:
    """What is said of several, said of one."""
    return " ".join(SINGULAR.get(word, word) for word in what.split(" "))


def join_pair(text: str, other: str) -> str:
    """Two texts on one line."""
    return f"{text}{PAIR_SEPARATOR}{other}"


def parse_label(value: Any) -> Label:
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
    if (found := parse_answers(value)) is not None:
        return found
    if isinstance(value, list) and all(isinstance(item, (str, int)) for item in value):
        return tuple(str(parse_label(item)) for item in value)
    raise UserError(
        f"the label should be a text, a number or a list of texts, found {value!r:.40}."
    )


def parse_answers(value: Any) -> GoldAnswers | None:
    """Answers as SQuAD writes them, [{"text": …, "answer_start": …}, …], or as columns of them."""
    if isinstance(value, Mapping) and {"text", "answer_start"} <= set(value):
        columns: Any = value["text"], value["answer_start"]
        if not all(isinstance(column, list) for column in columns):
            columns = [columns[0]], [columns[1]]
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        columns = [[one.get(key) for one in value] for key in ("text", "answer_start")]
    else:
        return None
    texts, starts = columns
    try:
        if len(texts) != len(starts) or not all(isinstance(text, str) for text in texts):
            raise ValueError
        return GoldAnswers(tuple(texts), tuple(int(start) for start in starts))
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            "each answer should have a 'text' and the number of the character where it begins, "
            f"'answer_start'; found {value!r:.60}."
        ) from None
