"""The tree of constituents over a sentence, with a tag for every word.

T words   K labelled spans
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from weft.errors import UserError
from weft.metrics.structure.brackets import BracketedTree, BracketF1
from weft.metrics.structure.tags import TagAccuracy
from weft.metrics.value import MetricRepr, MetricValue
from weft.protocols import Saved, Section
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.tag_vocabulary import TagSpace, read_column
from weft.tasks.task import Answer, StructuredTask
from weft.text import column_layout
from weft.text.annotation.constituents import pos_tags, split_unaries, to_tree, tree_to_spans
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree, format
from weft.text.example import Example, SkipCounter, WordAnnotations
from weft.text.formats import brackets
from weft.text.formats.conllu_offsets import locate_spaced_words

CONSTITUENT, TAG = 0, 1  # columns of names
INSPECTED_SENTENCES = 100  # sentences whose columns say where the parse bits are
EMPTY_CELL = -1  # where a table has more lines than words, or than spans


@register("task", "constituency")
class Constituency(StructuredTask[TagSpace]):
    """The bracketed tree of a sentence, from trees or from a column of parse `bits`.

    Empty elements, function tags and a bracket around everything (TOP, ROOT) are taken off. With
    parse bits, `tags` is the column of the words' tags.
    """

    head = "brackets"
    metric = "f1"
    reads_trees = True

    def __init__(self, bits: str = "", tags: str = "") -> None:
        self.bits, self.tags = bits, tags

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer the columns of parse bits and tags if the file has columns."""
        some = [
            e.label
            for e in islice(examples, INSPECTED_SENTENCES)
            if isinstance(e.label, WordAnnotations)
        ]
        if not some or settings.get("bits"):
            return {}
        names = list(some[0].columns)
        for i, name in enumerate(names):
            # The first of them: columns of roles, written with the same brackets, come after it.
            cells = [cell for label in some for cell in label.columns.get(name, ("",))]
            if all(map(column_layout.PARSE_BIT.fullmatch, cells)):
                return {"bits": name, "tags": settings.get("tags") or names[max(i - 1, 0)]}
        raise UserError(
            f"No column of parse bits such as (S(NP* among {', '.join(names)}. "
            "Give bracketed trees, or set task.bits to the column."
        )

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example with its tree stripped, and the tree's words."""
        tree = example.tree
        if tree is None:
            if not self.bits:
                raise UserError(
                    f"{example.sentence_where}: there is no tree. Give a file of bracketed trees, "
                    "or columns with parse bits (task.bits)."
                )
            tags = read_column(example, self.tags)
            bits = read_column(example, self.bits)
            places = [f"{example.sentence_where}: word {i}" for i in range(1, len(bits) + 1)]
            tree = brackets.from_parse_bits(example.words, tags, bits, places)
        bare = brackets.strip(brackets.strip_root(tree))
        if bare is None:
            raise UserError(f"{example.sentence_where}: a tree without words. Remove it.")
        bare = brackets.strip_root(bare)
        words = tuple(bare.words)
        if words == example.words:
            return replace(example, tree=bare)
        text = " ".join(words)
        return replace(
            example, text=text, tree=bare, words=words, places=locate_spaced_words(words)
        )

    def space(self, examples: Iterable[Example]) -> TagSpace:
        """Return the labels of constituents, unary chains as one, and the tags of words."""
        labels: set[str] = set()
        words: set[str] = set()
        for example in examples:
            tree = _tree_of(example)
            labels.update(span.label for span in tree_to_spans(tree))
            words.update(pos_tags(tree))
        if not labels:
            raise UserError("There is no tree with a constituent to learn from.")
        return TagSpace(
            ("constituent", "tag"), (tuple(sorted(labels)), tuple(sorted(words))), extra_columns=2
        )

    def load_space(self, saved: Saved) -> TagSpace:
        return TagSpace.from_json(saved, extra_columns=2)

    def target(self, example: Example, space: TagSpace) -> np.ndarray:
        """Return (max(T, K), 4): per row the tag of a word; label, start and end of a span."""
        tree = _tree_of(example)
        found, names = tree_to_spans(tree), pos_tags(tree)
        out = np.full((max(len(found), len(names)), 4), EMPTY_CELL, np.int64)
        out[: len(names), 0] = [space.number(TAG, name) for name in names]
        for row, (label, start, end) in zip(out, found, strict=False):
            row[1:] = space.number(CONSTITUENT, label), start, end
        return out

    def answers(self, scores: Sequence[Decoded], space: TagSpace) -> list[Answer]:
        """Return each tree in brackets; "" without words."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, decoded: Decoded, space: TagSpace) -> Answer:
        if not decoded.words:
            return Answer("", 1.0, structure=Annotation("constituents", ()))
        labelled, names = _read_table(decoded.table, space)
        tree = to_tree(labelled, decoded.words, names)
        probs = tuple(decoded.probs.ravel().tolist())
        return Answer(
            format(tree), decoded.score, scores=probs,
            structure=Annotation(
                "constituents", decoded.words, decoded.places, tags=tuple(names), tree=tree
            ),
        )  # fmt: skip

    def gold(
        self, example: Example, space: TagSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        tree = _tree_of(example)
        return Annotation(
            "constituents", example.words, example.places, example.text, tuple(pos_tags(tree)),
            tree=tree,
        )  # fmt: skip

    def predict_targets(self, scores: Sequence[Decoded], space: TagSpace) -> list[np.ndarray]:
        return [found.table for found in scores]

    def build_metric(self, space: TagSpace) -> "ConstituencyMetric":
        return ConstituencyMetric(space)


class ConstituencyMetric(MetricRepr):
    """Labelled brackets as evalb counts them, and words with the right tag.

    Punctuation is not counted; the gold tree decides what is punctuation.
    """

    def __init__(self, space: TagSpace) -> None:
        self.space = space
        self.brackets = BracketF1()
        self.tagging = TagAccuracy(("tag",))

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        for ours, theirs in zip(predicted, gold, strict=True):
            prediction, tagged = _read_table(ours, self.space)
            true, names = _read_table(theirs, self.space)
            tree = BracketedTree(split_unaries(prediction), names)
            self.brackets.add([tree], [BracketedTree(split_unaries(true), names)])
            self.tagging.add([[tuple(tagged)]], [[tuple(names)]])

    def merge(self, other: "ConstituencyMetric") -> None:
        self.brackets.merge(other.brackets)
        self.tagging.merge(other.tagging)

    @property
    def n(self) -> int:
        return self.brackets.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        values = self.brackets.compute(resamples, seed, level)
        return values | self.tagging.compute(resamples, seed, level)


def _tree_of(example: Example) -> Tree:
    assert example.tree is not None, "prepared examples have one"
    return example.tree


def _read_table(table: np.ndarray, space: TagSpace) -> tuple[list[Span], list[str]]:
    """Return the labelled spans and the tags of a table."""
    labelled = [
        Span(space.name(CONSTITUENT, label), start, end)
        for label, start, end in table[table[:, 2] >= 0, 1:].tolist()
    ]
    return labelled, [space.name(TAG, tag) for tag in table[:, 0].tolist() if tag >= 0]
