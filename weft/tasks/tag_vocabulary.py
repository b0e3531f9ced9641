"""The tags of words by column, and their ids."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from weft.errors import UserError, unknown_name
from weft.jsonio import JsonObject
from weft.protocols import LabelSpace, Saved
from weft.text.example import TAG_COLUMN, Example, WordAnnotations


@dataclass(frozen=True)
class TagSpace(LabelSpace):
    """The tags of each column, in order, and the scheme of the first where it marks spans."""

    names: tuple[str, ...] = field()
    entries: tuple[tuple[str, ...], ...] = field()
    scheme: str = ""
    extra_columns: int = 0  # columns of a target that are no tags, such as heads
    # Tags that training never saw, found in evaluation: wrong, but they keep their names.
    others: list[dict[str, int]] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.others.extend({} for _ in self.names)

    @property
    def width(self) -> int:
        """The columns of a target."""
        return len(self.names) + self.extra_columns

    @property
    def size(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The labels and scheme of each column, from which a tag head is built."""
        return tuple(
            (labels, self.scheme if k == 0 else "") for k, labels in enumerate(self.entries)
        )

    def number(self, column: int, tag: str) -> int:
        """Return the id of a tag; tags that training never saw get ids after the others."""
        labels = self.index[column]
        if tag in labels:
            return labels[tag]
        known = self.others[column]
        return len(labels) + known.setdefault(tag, len(known))

    def name(self, column: int, number: int) -> str:
        """Return the tag of an id that `number` returned."""
        labels = self.entries[column]
        if number < len(labels):
            return labels[number]
        return list(self.others[column])[number - len(labels)]

    def column_names(self, column: int, numbers: list[int]) -> tuple[str, ...]:
        """Return the tags of a column with these ids."""
        labels = self.entries[column]
        if max(numbers, default=0) < len(labels):
            return tuple([labels[number] for number in numbers])
        return tuple([self.name(column, number) for number in numbers])

    @cached_property
    def index(self) -> tuple[dict[str, int], ...]:
        """The id of each tag, by column."""
        return tuple({tag: i for i, tag in enumerate(labels)} for labels in self.entries)

    def to_json(self) -> JsonObject:
        return {
            "names": list(self.names),
            "entries": [list(labels) for labels in self.entries],
            "scheme": self.scheme,
        }

    @classmethod
    def from_json(cls, saved: Saved, extra_columns: int = 0) -> "TagSpace":
        """Restore what `to_json` wrote, or raise a UserError if it is damaged."""
        try:
            entries = tuple(tuple(map(str, labels)) for labels in saved["entries"])
            return cls(
                tuple(map(str, saved["names"])), entries, str(saved["scheme"]), extra_columns
            )
        except (KeyError, TypeError) as error:
            raise UserError(f"The saved tags are damaged: {error!r}. Train again.") from error


def require_annotations(example: Example) -> WordAnnotations:
    """Return the word annotations of an example, or raise a UserError."""
    if not isinstance(example.label, WordAnnotations):
        raise UserError(f"{example.where}: no tagged words. Give CoNLL-U, column or span files.")
    return example.label


def read_column(example: Example, name: str) -> tuple[str, ...]:
    """Return one column of an example, by name or number, or raise a UserError."""
    found = require_annotations(example)
    columns = found.columns
    if (
        name not in columns
        and found.main == TAG_COLUMN
        and name.isdecimal()
        and int(name) < len(columns)
    ):
        return list(columns.values())[int(name)]
    if name not in columns:
        raise unknown_name("column", name, columns, example.where)
    return columns[name]


def decode_tags(tags: np.ndarray, space: TagSpace) -> list[tuple[str, ...]]:
    """Return the tags of a sentence by column, as names; empty without words."""
    if not len(tags):
        return [()] * len(space.names)
    return [space.column_names(k, tags[:, k].tolist()) for k in range(len(space.names))]
