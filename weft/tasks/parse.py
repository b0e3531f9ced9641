"""A head and a relation for every word, and tags beside them where asked for.

T words   K columns of tags
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import UserError
from weft.metrics.structure.dependencies import Dependencies
from weft.metrics.structure.tags import Tagging
from weft.metrics.value import Figure
from weft.registry import register
from weft.tasks.annotation import Found, Structure
from weft.tasks.tag_vocabulary import TagSets, column, layers, named
from weft.tasks.task import Answer, Loss
from weft.text.example import Example
from weft.untrusted import parse_integer

if TYPE_CHECKING:
    from weft.batch import LabelledBatch

HEAD, RELATION = "head", "deprel"  # columns of CoNLL-U


@register("task", "parse")
class Parse:
    """A dependency tree over the words, with the `tags` columns of the file answered as well."""

    head = "arcs"
    metric = "las"
    tuned = False

    def __init__(self, tags: list[str] = []) -> None:  # noqa: B006 -- never changed
        self.tags = tuple(tags)

    def space(self, examples: Iterable[Example]) -> TagSets:
        """The relations that occur, and the tags of each column."""
        names = (RELATION, *self.tags)
        seen: list[set[str]] = [set() for _ in names]
        for example in examples:
            self._heads(example)
            for found, name in zip(seen, names, strict=True):
                found.update(column(example, name))
        if not seen[0]:
            raise UserError("There are no sentences to learn from. Give CoNLL-U with heads.")
        return TagSets(names, tuple(tuple(sorted(one)) for one in seen), beside=1)

    def load_space(self, saved: dict[str, Any]) -> TagSets:
        return TagSets.from_json(saved, beside=1)

    def target(self, example: Example, space: TagSets) -> np.ndarray:
        """(T, 2 + K) the head, the number of the relation and those of the tags."""
        columns = [self._heads(example)]
        columns += [
            [space.number(k, tag) for tag in column(example, name)]
            for k, name in enumerate(space.names)
        ]
        return np.array(columns, np.int64).T

    def loss(self, scores: Any, batch: "LabelledBatch") -> Loss:
        return Loss(*scores.loss(batch.target))

    def answers(self, scores: Sequence[Found], space: TagSets) -> list[Answer]:
        """Of every word where it stands, its head (0 the root), its relation and its tags."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, found: Found, space: TagSets) -> Answer:
        relations, *tags = named(found.table[:, 1:], space)
        heads = found.table[:, 0].tolist()
        value = tuple(
            {
                "text": word,
                "start": start,
                "end": end,
                "head": heads[i],
                "relation": relations[i],
                **{name: tags[k][i] for k, name in enumerate(space.names[1:])},
            }
            for i, (word, (start, end)) in enumerate(zip(found.words, found.places, strict=True))
        )
        chances = found.chances.ravel().tolist()
        return Answer(
            value, found.score, scores=tuple(chances),
            structure=_structure(found.words, found.places, heads, relations, tags),
        )  # fmt: skip

    def gold(self, example: Example, space: TagSets) -> Structure:
        """What is right, as an answer would show it."""
        relations, *tags = (column(example, name) for name in space.names)
        heads = self._heads(example)
        return _structure(
            example.words, example.places, heads, relations, tags, example.text
        )  # fmt: skip

    def predicted(self, scores: Sequence[Found], space: TagSets) -> list[np.ndarray]:
        return [found.table for found in scores]

    def tune(self, scores: Any, targets: Any, space: TagSets) -> TagSets:
        return space

    def measure(self, space: TagSets) -> "ParseMeasure":
        return ParseMeasure(space)

    def _heads(self, example: Example) -> list[int]:
        columns = layers(example).columns
        found = columns.get(HEAD, ())
        heads = [parse_integer(head) for head in found]
        if not found or None in heads:
            bad = heads.index(None) if found else 0
            told = f"word {bad + 1} has no head" if found else "there is no column of heads"
            raise UserError(
                f"{example.sentence}: {told}. A parser learns from CoNLL-U with heads, 0 the root."
            )
        return [head for head in heads if head is not None]


class ParseMeasure:
    """Words with the right head, with head and relation, and with the right tags."""

    def __init__(self, space: TagSets) -> None:
        self.space = space
        self.arcs = Dependencies()
        self.tagging = Tagging(space.names[1:]) if space.names[1:] else None

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        ours = [named(table[:, 1:], self.space) for table in predicted]
        theirs = [named(table[:, 1:], self.space) for table in gold]
        self.arcs.add(
            [(table[:, 0], names[0]) for table, names in zip(predicted, ours, strict=True)],
            [(table[:, 0], names[0]) for table, names in zip(gold, theirs, strict=True)],
        )
        if self.tagging is not None:
            self.tagging.add([names[1:] for names in ours], [names[1:] for names in theirs])

    def merge(self, other: "ParseMeasure") -> None:
        self.arcs.merge(other.arcs)
        if self.tagging is not None and other.tagging is not None:
            self.tagging.merge(other.tagging)

    @property
    def n(self) -> int:
        return self.arcs.n

    def figures(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Figure]:
        found = self.arcs.figures(resamples, seed, level)
        if self.tagging is not None:
            found |= self.tagging.figures(resamples, seed, level)
        return found


def _structure(
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    heads: Sequence[int],
    relations: tuple[str, ...],
    tags: Sequence[tuple[str, ...]],
    text: str = "",
) -> Structure:
    together = tuple(map(" ".join, zip(*tags, strict=True))) if tags else ()
    return Structure(
        "arcs", words, places, text, together, heads=tuple(heads), relations=relations
    )  # fmt: skip
