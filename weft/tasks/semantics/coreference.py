"""Coreference: which mentions of a document are of the same entity.

T words   L lines of a table, as in decode/heads/semantics/coreference.py
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics.structure.coreference import CoreferenceScores
from weft.protocols import LabelSpace, Saved
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.task import Answer, StructuredTask
from weft.text.annotation.frames import Coreference, Mention
from weft.text.annotation.mention_heads import find_heads
from weft.text.example import Example, SkipCounter

CHAIN, SINGLETON = "chain", "singleton"
EMPTY_CELL = -1  # of lines behind the last one
WIDTH = 4
FIX = (
    "Give a column of mention brackets such as (3 … 3), with '#begin document (NAME)' and "
    "'#end document' around each document."
)

Singletons = Literal["auto", "keep", "drop"]


@dataclass(frozen=True)
class CoreferenceSpace(LabelSpace):
    """The genres of documents, and a flag for annotated entities of one mention."""

    singletons: bool
    genres: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[str, ...]:  # type: ignore[override]  # read only
        return (CHAIN, SINGLETON) if self.singletons else (CHAIN,)

    @property
    def size(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The kinds of entities, and the genres."""
        return ((self.entries, ""), (self.genres, ""))

    @property
    def width(self) -> int:
        return WIDTH

    def to_json(self) -> JsonObject:
        return {"singletons": self.singletons, "genres": list(self.genres)}

    @classmethod
    def from_json(cls, saved: Saved) -> "CoreferenceSpace":
        """Restore what `to_json` wrote, or raise a UserError if it is damaged."""
        singletons, genres = saved.get("singletons"), saved.get("genres")
        fine = isinstance(genres, list) and all(isinstance(one, str) for one in genres)
        if not isinstance(singletons, bool) or not fine or len({*genres}) < len(genres):  # type: ignore[misc, arg-type]
            raise UserError(
                "The saved label space of a coreference model is damaged: 'singletons' should be "
                "true or false, 'genres' a list of distinct texts. Train again."
            )
        return cls(singletons, tuple(genres))  # type: ignore[arg-type]


@register("task", "coref")
class CoreferenceResolution(StructuredTask[CoreferenceSpace]):
    """The chains of mentions of a document, each about one entity.

    Files have a column of mention brackets, as in CoNLL-2012; a document is one row. `singletons`
    says whether entities with a single mention count: "auto" as in the training file, "keep" and
    "drop" otherwise; "drop" leaves them out of gold annotation, too.
    """

    head = "word-coreference"
    metric = "conll"
    has_references = True
    can_average = False
    file_format = "coreference"

    def __init__(self, singletons: Singletons = "auto"):
        self.singletons = singletons

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example; count mentions that cannot be learned."""
        gold = coreference_of(example)
        spans = {(mention.start, mention.end) for mention in gold.mentions}
        if len(find_heads(example.words, spans, gold.constituents)) < len(spans):
            tally.add("documents with mentions that share all their words", example.where)
        return example

    def space(self, examples: Iterable[Example]) -> CoreferenceSpace:
        """Learn the genres, and whether there are singletons."""
        genres: set[str] = set()
        where, links, singletons = "input", False, False
        for example in examples:
            where = example.file or where
            gold = coreference_of(example)
            genres |= {gold.genre} if gold.genre else set()
            sizes = [len(chain) for chain in gold.chains.values()]
            links |= any(size > 1 for size in sizes)
            singletons |= 1 in sizes
        if not links:
            raise UserError(f"{where}: no entity has two mentions; there is nothing to link. {FIX}")
        return CoreferenceSpace(
            singletons if self.singletons == "auto" else self.singletons == "keep",
            tuple(sorted(genres)),
        )

    def load_space(self, saved: Saved) -> CoreferenceSpace:
        return CoreferenceSpace.from_json(saved)

    def target(self, example: Example, space: CoreferenceSpace) -> np.ndarray:
        """Return (L, 4), at least a line per word: head, entity, start and end of each mention."""
        gold = self.find_reference(example)
        if not space.singletons:
            gold = without_singletons(gold)
        spans = {(m.start, m.end): m.label for m in reversed(gold.mentions)}
        heads = find_heads(example.words, spans, gold.constituents)
        numbers: dict[str, int] = {}
        lines = [
            (head, numbers.setdefault(spans[span], len(numbers)), *span)
            for span, head in sorted(heads.items())
        ]
        out = np.full((max(len(lines), len(example.words)), WIDTH), EMPTY_CELL, np.int64)
        if lines:
            out[: len(lines)] = lines
        return out

    def find_reference(self, example: Example) -> Coreference:
        gold = coreference_of(example)
        return without_singletons(gold) if self.singletons == "drop" else gold

    def missing_label_error(self, example: Example) -> UserError:
        return UserError(f"{example.where}: no coreference. {FIX}")

    def answers(self, scores: Sequence[Decoded], space: CoreferenceSpace) -> list[Answer]:
        """Return the chains of each document, with the character offsets of their mentions."""
        return [self._answer(decoded) for decoded in scores]

    def _answer(self, decoded: Decoded) -> Answer:
        found = read_table(decoded)
        structure = annotate_chains(found, decoded.words, decoded.places)
        value = tuple(
            {"entity": int(entity), "mentions": [_mention_json(one, decoded) for one in chain]}
            for entity, chain in found.chains.items()
        )
        probs = tuple(decoded.probs.ravel().tolist())
        return Answer(value, decoded.score, scores=probs, structure=structure)

    def gold(
        self, example: Example, space: CoreferenceSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        gold = self.find_reference(example)
        return annotate_chains(gold, example.words, example.places, example.text)

    def predict_targets(
        self, scores: Sequence[Decoded], space: CoreferenceSpace
    ) -> list[Coreference]:
        """Return the chains of each document."""
        return [read_table(decoded) for decoded in scores]

    def build_metric(self, space: CoreferenceSpace) -> CoreferenceScores:
        return CoreferenceScores()


def coreference_of(example: Example) -> Coreference:
    """Return the mentions of an example, or raise a UserError."""
    if not isinstance(example.label, Coreference):
        raise UserError(f"{example.where}: no coreference. {FIX}")
    return example.label


def without_singletons(gold: Coreference) -> Coreference:
    """Return the mentions of entities that have more than one."""
    counts = Counter(label for label, _, _ in {*gold.mentions})
    kept = tuple(one for one in gold.mentions if counts[one.label] > 1)
    return replace(gold, mentions=kept)


def annotate_chains(
    gold: Coreference,
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    text: str = "",
) -> Annotation:
    """Return mentions as an annotation of the words; entities are numbered as they come."""
    names: dict[str, str] = {}
    mentions = tuple(
        (names.setdefault(label, str(len(names) + 1)), start, end)
        for label, start, end in sorted(gold.mentions, key=lambda one: (one.start, -one.end))
    )
    return Annotation("chains", words, places, text, mentions=mentions)


def read_table(decoded: Decoded) -> Coreference:
    """Return the mentions of a decoded table, in order; entities are numbered from 1."""
    lines = sorted(decoded.table.tolist(), key=lambda line: (line[2], -line[3]))
    names: dict[int, str] = {}
    return Coreference(
        tuple(
            Mention(names.setdefault(entity, str(len(names) + 1)), start, end)
            for _, entity, start, end in lines
        )
    )


def _mention_json(mention: Mention, decoded: Decoded) -> JsonObject:
    """Return a mention with its character offsets."""
    start, end = decoded.places[mention.start][0], decoded.places[mention.end - 1][1]
    return {
        "start": start,
        "end": end,
        "text": " ".join(decoded.words[mention.start : mention.end]),
    }
