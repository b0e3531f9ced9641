"""Dependency parsing: a head and a relation for every word, and optional tags.

T words   K columns of tags
"""

from collections.abc import Iterable, Sequence

import numpy as np

from weft.errors import UserError
from weft.metrics.structure.dependencies import AttachmentScores
from weft.metrics.structure.tags import TagAccuracy
from weft.metrics.value import MetricRepr, MetricValue
from weft.protocols import Saved
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.tag_vocabulary import TagSpace, decode_tags, read_column, require_annotations
from weft.tasks.task import Answer, StructuredTask
from weft.text.example import Example
from weft.untrusted import parse_integer

HEAD, RELATION = "head", "deprel"  # columns of CoNLL-U


@register("task", "parse")
class Parse(StructuredTask[TagSpace]):
    """A dependency tree over the words, with the `tags` columns of the file answered as well."""

    head = "arcs"
    metric = "las"

    def __init__(self, tags: list[str] = []) -> None:  # noqa: B006 -- never changed
        self.tags = tuple(tags)

    def space(self, examples: Iterable[Example]) -> TagSpace:
        """Return the relations, and the tags of each column."""
        names = (RELATION, *self.tags)
        seen: list[set[str]] = [set() for _ in names]
        for example in examples:
            self._heads(example)
            for found, name in zip(seen, names, strict=True):
                found.update(read_column(example, name))
        if not seen[0]:
            raise UserError("There are no sentences to learn from. Give CoNLL-U with heads.")
        return TagSpace(names, tuple(tuple(sorted(one)) for one in seen), extra_columns=1)

    def load_space(self, saved: Saved) -> TagSpace:
        return TagSpace.from_json(saved, extra_columns=1)

    def target(self, example: Example, space: TagSpace) -> np.ndarray:
        """Return the head, the relation id and the tag ids of each word (T, 2 + K)."""
        columns = [self._heads(example)]
        columns += [
            [space.number(k, tag) for tag in read_column(example, name)]
            for k, name in enumerate(space.names)
        ]
        table: np.ndarray = np.array(columns, np.int64).T
        return table

    def answers(self, scores: Sequence[Decoded], space: TagSpace) -> list[Answer]:
        """Return the offsets, head (0 the root), relation and tags of every word."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, decoded: Decoded, space: TagSpace) -> Answer:
        relations, *tags = decode_tags(decoded.table[:, 1:], space)
        heads = decoded.table[:, 0].tolist()
        value = tuple(
            {
                "text": word,
                "start": start,
                "end": end,
                "head": heads[i],
                "relation": relations[i],
                **{name: tags[k][i] for k, name in enumerate(space.names[1:])},
            }
            for i, (word, (start, end)) in enumerate(
                zip(decoded.words, decoded.places, strict=True)
            )
        )
        probs = decoded.probs.ravel().tolist()
        return Answer(
            value, decoded.score, scores=tuple(probs),
            structure=_annotate(decoded.words, decoded.places, heads, relations, tags),
        )  # fmt: skip

    def gold(
        self, example: Example, space: TagSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        relations, *tags = (read_column(example, name) for name in space.names)
        heads = self._heads(example)
        return _annotate(
            example.words, example.places, heads, relations, tags, example.text
        )  # fmt: skip

    def predict_targets(self, scores: Sequence[Decoded], space: TagSpace) -> list[np.ndarray]:
        return [found.table for found in scores]

    def build_metric(self, space: TagSpace) -> "ParseMetric":
        return ParseMetric(space)

    def _heads(self, example: Example) -> list[int]:
        columns = require_annotations(example).columns
        column = columns.get(HEAD, ())
        heads = [parse_integer(head) for head in column]
        if not column or None in heads:
            bad = heads.index(None) if column else 0
            message = f"word {bad + 1} has no head" if column else "there is no column of heads"
            raise UserError(
                f"{example.sentence_where}: {message}. "
                "A parser learns from CoNLL-U with heads, 0 the root."
            )
        return [head for head in heads if head is not None]


class ParseMetric(MetricRepr):
    """Words with the right head, with head and relation, and with the right tags."""

    def __init__(self, space: TagSpace) -> None:
        self.space = space
        self.arcs = AttachmentScores()
        self.tagging = TagAccuracy(space.names[1:]) if space.names[1:] else None

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        ours = [decode_tags(table[:, 1:], self.space) for table in predicted]
        theirs = [decode_tags(table[:, 1:], self.space) for table in gold]
        self.arcs.add(
            [(table[:, 0], names[0]) for table, names in zip(predicted, ours, strict=True)],
            [(table[:, 0], names[0]) for table, names in zip(gold, theirs, strict=True)],
        )
        if self.tagging is not None:
            self.tagging.add([names[1:] for names in ours], [names[1:] for names in theirs])

    def merge(self, other: "ParseMetric") -> None:
        self.arcs.merge(other.arcs)
        if self.tagging is not None and other.tagging is not None:
            self.tagging.merge(other.tagging)

    @property
    def n(self) -> int:
        return self.arcs.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        values = self.arcs.compute(resamples, seed, level)
        if self.tagging is not None:
            values |= self.tagging.compute(resamples, seed, level)
        return values


def _annotate(
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    heads: Sequence[int],
    relations: tuple[str, ...],
    tags: Sequence[tuple[str, ...]],
    text: str = "",
) -> Annotation:
    together = tuple(map(" ".join, zip(*tags, strict=True))) if tags else ()
    return Annotation(
        "arcs", words, places, text, together, heads=tuple(heads), relations=relations
    )  # fmt: skip
