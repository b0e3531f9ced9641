"""A tag for every word: parts of speech, features, chunks, entities; one column or several.

T words   K columns
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import UserError, unknown_name
from weft.measure.chunks import Chunks
from weft.measure.figure import Figure
from weft.measure.tags import Tagging
from weft.registry import register
from weft.tasks.structure import Found, Structure
from weft.tasks.task import Answer, Loss
from weft.text import schemes
from weft.text.example import Example, Layers

if TYPE_CHECKING:
    from weft.batch import Labelled

FIRST = 1000  # sentences whose tags say whether they mark spans


def joined(parts: Sequence[Found]) -> Found:
    """The stretches of one sentence as a whole."""
    if len(parts) == 1:
        return parts[0]
    tables = [part.table for part in parts] or [np.zeros((0, 1), np.int64)]
    chances = [part.chances for part in parts] or [np.zeros((0, 1), np.float32)]
    return Found(
        np.concatenate(tables), np.concatenate(chances),
        tuple(word for part in parts for word in part.words),
        tuple(place for part in parts for place in part.places),
    )  # fmt: skip


@dataclass(frozen=True)
class TagSets:
    """The tags of each column, in order, and the scheme of the first where it marks spans."""

    names: tuple[str, ...]
    entries: tuple[tuple[str, ...], ...]
    scheme: str = ""
    # Tags that training never saw, met while measuring: wrong, but they keep their names.
    others: list[dict[str, int]] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.others.extend({} for _ in self.names)

    @property
    def size(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """What a head for tags is built for."""
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


@register("task", "tag")
class Tag:
    """A tag for every word, from one or several `columns` of the file.

    With a `scheme` (IO, IOB1, IOB2, BILOU, BIOES) the tags of the first column mark spans, and
    spans are what is answered and measured; `invalid` tags are repaired as conlleval reads them,
    or an error.
    """

    head = "tags"
    higher_is_better = True
    tuned = False

    def __init__(
        self,
        columns: list[str] = [],  # noqa: B006 -- never changed; a list is what a config holds
        scheme: str = "",
        invalid: str = "repair",
    ) -> None:
        self.columns = tuple(columns)
        self.scheme = schemes.scheme_named(scheme) if scheme else ""
        if invalid not in ("error", "repair"):
            raise unknown_name("way with invalid tags", invalid, ("error", "repair"), "task 'tag'")
        self.invalid = invalid
        one = self.columns[0] if self.columns else "tag"
        self.metric = "f1" if self.scheme else one if len(self.columns) < 2 else "all"

    @staticmethod
    def settle(given: dict[str, Any], examples: Iterable[Example]) -> dict[str, Any]:
        """What the file says where the configuration does not: the column, and its scheme."""
        some = [e for e in islice(examples, FIRST) if isinstance(e.label, Layers)]
        if not some or not isinstance(some[0].label, Layers):
            return {}
        columns = list(given.get("columns") or [some[0].label.main])
        out: dict[str, Any] = {"columns": columns}
        if "scheme" not in given:
            rows = [_column(e, columns[0]) for e in some]
            marks = {tag[:2] for tags in rows for tag in tags}
            spanned = "O" in marks and all(m == "O" or m[1:] == "-" for m in marks)
            out["scheme"] = schemes.recognise(rows) if spanned and len(marks) > 1 else ""
        return out

    def space(self, examples: Iterable[Example]) -> TagSets:
        """The tags that occur in each column; of spans, every mark of every label."""
        names: tuple[str, ...] = self.columns
        seen: list[set[str]] = []
        where = "input"
        for example in examples:
            where = example.file or where
            names = names or (_layers(example).main,)
            seen = seen or [set() for _ in names]
            for found, name in zip(seen, names, strict=True):
                found.update(_column(example, name))
        if not seen or not any(seen):
            raise UserError(f"{where}: there are no tagged words. Give CoNLL-U or column files.")
        if self.scheme:
            seen[0] |= _every_mark(seen[0], self.scheme)
        return TagSets(names, tuple(tuple(sorted(tags)) for tags in seen), self.scheme)

    def load_space(self, saved: dict[str, Any]) -> TagSets:
        try:
            entries = tuple(tuple(map(str, labels)) for labels in saved["entries"])
            return TagSets(tuple(map(str, saved["names"])), entries, str(saved["scheme"]))
        except (KeyError, TypeError) as error:
            raise UserError(f"The saved tags are damaged: {error!r}. Train again.") from error

    def target(self, example: Example, space: TagSets) -> np.ndarray:
        """(T, K) the numbers of the tags."""
        columns = [_column(example, name) for name in space.names]
        if space.scheme:
            if self.invalid == "error" and (fault := schemes.fault(columns[0], space.scheme)):
                raise UserError(f"{example.where}: word {fault[0] + 1}: {fault[1]}")
            columns[0] = tuple(
                schemes.convert(columns[0], space.scheme, space.scheme, invalid="repair")
            )
        return np.array(
            [[space.number(k, tag) for tag in column] for k, column in enumerate(columns)], np.int64
        ).T

    def loss(self, scores: Any, batch: "Labelled") -> Loss:
        return Loss(*scores.loss(batch.target))

    def answers(self, scores: Sequence[Found], space: TagSets) -> list[Answer]:
        """The tags of each text or, where they mark spans, the spans with their characters."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, found: Found, space: TagSets) -> Answer:
        columns = _named(found.table, space)
        chances = tuple(found.chances.ravel().tolist())
        score = float(np.exp(np.log(np.maximum(found.chances, 1e-12)).mean())) if chances else 1.0
        seen = _structure(found.words, found.places, columns, space.scheme)
        value: tuple
        if not space.scheme:
            several = len(columns) > 1
            value = tuple(map(list, zip(*columns, strict=True))) if several else columns[0]
            return Answer(value, score, scores=chances, structure=seen)
        spans = schemes.spans(columns[0], space.scheme, "repair")
        value = tuple(
            {"label": label, "start": start, "end": end, "text": " ".join(found.words[i:j])}
            for (start, end, label), (_, i, j) in zip(seen.spans, spans, strict=True)
        )
        return Answer(value, score, scores=chances, structure=seen)

    def gold(self, example: Example, space: TagSets) -> Structure:
        """What is right, as an answer would show it."""
        columns = [_column(example, name) for name in space.names]
        return _structure(example.words, example.places, columns, space.scheme, example.text)

    def predicted(self, scores: Sequence[Found], space: TagSets) -> list[np.ndarray]:
        return [found.table for found in scores]

    def tune(self, scores: Any, targets: Any, space: TagSets) -> TagSets:
        return space

    def measure(self, space: TagSets) -> "TagMeasure":
        return TagMeasure(space)


class TagMeasure:
    """Words with the right tag, and the right spans where tags mark spans."""

    def __init__(self, space: TagSets) -> None:
        self.space = space
        self.tagging = Tagging(space.names)
        self.chunks = Chunks()

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        ours = [_named(tags, self.space) for tags in predicted]
        theirs = [_named(tags, self.space) for tags in gold]
        self.tagging.add(ours, theirs)
        if self.space.scheme:
            said, true = (
                [schemes.spans(columns[0], self.space.scheme, "repair") for columns in rows]
                for rows in (ours, theirs)
            )
            self.chunks.add(said, true)

    def merge(self, other: "TagMeasure") -> None:
        self.tagging.merge(other.tagging)
        self.chunks.merge(other.chunks)

    @property
    def n(self) -> int:
        return self.tagging.n

    def figures(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Figure]:
        found = self.tagging.figures(resamples, seed, level)
        if self.space.scheme:
            found = {**self.chunks.figures(resamples, seed, level), **found}
        return found


def _structure(
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    columns: Sequence[tuple[str, ...]],
    scheme: str,
    text: str = "",
) -> Structure:
    if not scheme:
        tags = tuple(map(" ".join, zip(*columns, strict=True)))
        return Structure("tags", words, places, text, tags)
    spans = tuple(
        (places[first][0], places[last - 1][1], label)
        for label, first, last in schemes.spans(columns[0], scheme, "repair")
    )
    return Structure("spans", words, places, text, columns[0], spans)


def _layers(example: Example) -> Layers:
    if not isinstance(example.label, Layers):
        raise UserError(
            f"{example.where}: no tagged words. The task 'tag' reads CoNLL-U and column files."
        )
    return example.label


def _column(example: Example, name: str) -> tuple[str, ...]:
    columns = _layers(example).columns
    if name not in columns:
        raise unknown_name("column", name, columns, example.where)
    return columns[name]


def _named(tags: np.ndarray, space: TagSets) -> list[tuple[str, ...]]:
    """The tags of a sentence column by column, by name."""
    return [
        tuple(space.name(k, int(number)) for number in tags[:, k]) for k in range(len(space.names))
    ]


def _every_mark(tags: Iterable[str], scheme: str) -> set[str]:
    """All tags that the scheme has for the labels of some tags."""
    labels = {label for mark, label in map(schemes.split_tag, tags) if mark != schemes.OUTSIDE}
    found = {schemes.OUTSIDE}
    for label in labels:
        for length in (1, 3):
            found.update(schemes.tags([schemes.Span(label, 0, length)], length, scheme))
        if scheme == "IOB1":
            found.add(f"B-{label}")
    return found
