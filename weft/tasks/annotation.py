"""Linguistic annotations of a text, predicted or gold, for scoring and drawing."""

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.jsonio import JsonObject
from weft.notebook import HtmlRepr
from weft.protocols import Saved
from weft.text.annotation.frames import FrameRow
from weft.text.annotation.trees import Tree, TreeBuilder, feed_token, format, tokenise
from weft.text.annotation.word_tuples import TupleRow

if TYPE_CHECKING:
    from weft.decode.heads.averaging import SentenceScores

CharSpan = tuple[int, int]  # characters from, up to
JSON_FIELDS = (
    "words",
    "places",
    "tags",
    "spans",
    "heads",
    "relations",
    "scores",
    "frames",
    "mentions",
    "tuples",
)


@dataclass(frozen=True)
class Decoded:
    """The decoded prediction for one sentence, as numbers."""

    table: np.ndarray  # (T, K) tags and heads of words, or spans, or labels of nodes
    probs: np.ndarray  # the probability of each
    words: tuple[str, ...] = ()
    places: tuple[CharSpan, ...] = ()
    tree: Tree | None = None  # the input tree, if the model reads trees
    fields: tuple[tuple[str, str], ...] = ()  # the input record, if it was one
    sentence_columns: int = 0  # last columns of the table that repeat a label of the sentence

    @property
    def score(self) -> float:
        """The geometric mean of the probabilities; 1 if there are none."""
        if not self.probs.size:
            return 1.0
        return float(np.exp(np.log(np.maximum(self.probs, 1e-12)).mean()))


@dataclass(frozen=True)
class SentenceDistribution:
    """The probabilities of all labels of the words of one sentence, to be averaged."""

    scores: "SentenceScores | None"  # None: there are no words
    words: tuple[str, ...] = ()
    places: tuple[CharSpan, ...] = ()
    tree: Tree | None = None  # the input tree, if the model reads trees


@dataclass(frozen=True, repr=False)
class Annotation(HtmlRepr):
    """One sentence with its tags, spans, arcs or tree; the other fields are empty."""

    # tags, word-numbers, spans, frames, chains, tuples, arcs, constituents, nodes or answer
    kind: str
    words: tuple[str, ...]  # for an answer in a passage, its text as one word
    places: tuple[CharSpan, ...] = ()
    text: str = ""  # that offsets refer to; empty: the words joined by spaces
    tags: tuple[str, ...] = ()  # one a word; several columns are joined by spaces
    spans: tuple[tuple[int, int, str], ...] = ()  # characters from, up to, label
    heads: tuple[int, ...] = ()  # one a word, counted from 1; 0 the root
    relations: tuple[str, ...] = ()  # one a word; of numbers, the range of each
    tree: Tree | None = None  # of constituents, or with a label at every node
    # Of each node of `tree`, as `nodes` orders them, or of each number; from -1 to 1.
    scores: tuple[float, ...] = ()
    frames: tuple[FrameRow, ...] = ()  # the predicates with their roles
    mentions: tuple[tuple[str, int, int], ...] = ()  # entity, words from, up to
    tuples: tuple[TupleRow, ...] = ()  # extracted, as `weft.text.annotation.word_tuples` has them
    # For an answer in a passage: start, end and probability of each token as its first or last.
    starts: tuple[tuple[int, int, float], ...] = ()
    ends: tuple[tuple[int, int, float], ...] = ()
    label: str = ""  # of the sentence as a whole, such as its intent
    label_score: float = 0.0  # its probability, if it was predicted

    def __repr__(self) -> str:
        return f"Annotation({self.kind}: {reprlib.repr(self.text or ' '.join(self.words))})"

    def to_json(self) -> JsonObject:
        """Return the non-empty fields as plain values."""
        out: JsonObject = {"kind": self.kind}
        out |= {name: list(getattr(self, name)) for name in JSON_FIELDS if getattr(self, name)}
        out |= {"label": self.label, "label_score": self.label_score} if self.label else {}
        return out | ({"tree": format(self.tree)} if self.tree else {})

    @classmethod
    def from_json(cls, saved: Saved, text: str = "") -> "Annotation":
        """Restore what `to_json` wrote, with the text that its offsets refer to."""
        rows = {name: tuple(map(_as_tuple, saved.get(name, ()))) for name in JSON_FIELDS}
        tree = _parse_tree(saved["tree"]) if "tree" in saved else None
        label, score = saved.get("label", ""), saved.get("label_score", 0.0)
        return cls(saved["kind"], text=text, tree=tree, label=label, label_score=score, **rows)


def _as_tuple(item: Any) -> Any:
    return tuple(map(_as_tuple, item)) if isinstance(item, list) else item


def _parse_tree(written: str) -> Tree | None:
    """A tree as `format` writes it, where a leaf may have no label: ( word)."""
    builder, out = TreeBuilder(), None
    for token, column in tokenise(written):
        if token == "(":
            builder.open("tree", column, "" if written[column] == " " else None)
        else:
            out = feed_token(builder, token, "tree", column)
    return out
