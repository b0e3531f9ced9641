"""The names that answers at every word are made of, by column, and their numbers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.errors import UserError, unknown_name
from weft.text.example import TAG_COLUMN, Example, WordAnnotations


@dataclass(frozen=True)
class TagSpace:
    """The tags of each column, in order, and the scheme of the first where it marks spans."""

    names: tuple[str, ...]
    entries: tuple[tuple[str, ...], ...]
    scheme: str = ""
    extra_columns: int = 0  # columns of numbers in the table that stand beside those of names
    # Tags that training never saw, met while measuring: wrong, but they keep their names.
    others: list[dict[str, int]] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.others.extend({} for _ in self.names)

    @property
    def width(self) -> int:
        """Columns of the table that is the right answer."""
        return len(self.names) + self.extra_columns

    @property
    def size(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The labels and scheme of each column, from which a tag head is built."""
        return tuple(
            (labels, self.scheme if k == 0 else "") for k, labels in enumerate(self.entries)
        )

    def number(self, column: int, tag: str) -> int:
        """The number of a tag; one that training never saw has one beyond the others."""
        labels = self.index[column]
        if tag in labels:
            return labels[tag]
        known = self.others[column]
        return len(labels) + known.setdefault(tag, len(known))

    def name(self, column: int, number: int) -> str:
        """The tag of a number that `number` gave."""
        labels = self.entries[column]
        if number < len(labels):
            return labels[number]
        return list(self.others[column])[number - len(labels)]

    @property
    def index(self) -> tuple[dict[str, int], ...]:
        if not hasattr(self, "_index"):
            made = tuple({tag: i for i, tag in enumerate(labels)} for labels in self.entries)
            object.__setattr__(self, "_index", made)
        return self._index  # type: ignore[attr-defined]

    def to_json(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "entries": [list(labels) for labels in self.entries],
            "scheme": self.scheme,
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any], beside: int = 0) -> "TagSpace":
        """Restore what `to_json` wrote, or raise a UserError if it is damaged."""
        try:
            entries = tuple(tuple(map(str, labels)) for labels in saved["entries"])
            return cls(tuple(map(str, saved["names"])), entries, str(saved["scheme"]), beside)
        except (KeyError, TypeError) as error:
            raise UserError(f"The saved tags are damaged: {error!r}. Train again.") from error


def require_annotations(example: Example) -> WordAnnotations:
    """Return the word annotations of an example, or raise a UserError."""
    if not isinstance(example.label, WordAnnotations):
        raise UserError(f"{example.where}: no tagged words. Give CoNLL-U, column or span files.")
    return example.label


def read_column(example: Example, name: str) -> tuple[str, ...]:
    """One column of the words of an example, by name or by number, or a UserError."""
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
    """The tags of a sentence column by column, by name; of no words there are none."""
    if not len(tags):
        return [()] * len(space.names)
    return [
        tuple(space.name(k, int(number)) for number in tags[:, k]) for k in range(len(space.names))
    ]
