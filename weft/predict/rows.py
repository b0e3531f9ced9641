"""The part that neural engines share: texts to rows, rows to answers, windows merged.

Importable without torch: an exported model is an engine, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from weft.batch.indexer import Indexer, Row
from weft.errors import UserError
from weft.predict.output import (
    EngineInput,
    EngineOutput,
    TokenWeight,
    plain_texts,
    word_weights,
)
from weft.predict.preprocess import add_parses, parse_or_text
from weft.protocols import Engine, InputKind, Section
from weft.registry import describe_type, fits
from weft.tasks.annotation import Decoded
from weft.tasks.extractive_qa import PassageWindow, SpanScores, boundary_probs, choose_spans
from weft.tasks.tag import join_parts
from weft.text.example import Example
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, DEFAULT_OVERLAP, Policy
from weft.tokens.word_segmenter import WordSegmenter

if TYPE_CHECKING:
    from pathlib import Path

    from weft.model.traits import Traits

SEGMENTER_FILE = "cuts.json"  # the word segmenter, if one was trained
PARSER_FOLDER = "parser"  # inside the model folder: the parser of a model that reads trees


class RowList(Protocol):
    """Rows of an indexer, to be read in batches."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows, in order."""

    def __len__(self) -> int: ...


class LengthSettings(NamedTuple):
    """The [data] settings that decide how much of a text a saved model reads."""

    max_tokens: int
    truncate: Policy
    overlap: float
    max_characters: int


Rows = TypeVar("Rows", bound=RowList)


class RowEngine(Engine, Generic[Rows]):
    """Texts -> rows -> scores; a subclass runs its network over rows."""

    indexer: Indexer

    @property
    def traits(self) -> "Traits":
        """The properties of the network."""
        raise NotImplementedError

    @property
    def sentence_columns(self) -> int:
        """The last columns of a decoded table that are of the whole sentence."""
        return 0

    def wrap_rows(self, rows: Sequence[Row], pairs: bool) -> Rows:
        """Return rows in the form that the network is run on."""
        raise NotImplementedError

    def row_logits(self, rows: Rows) -> np.ndarray:
        """Return the logits (R, C) of rows."""
        raise NotImplementedError

    def weighed_logits(self, rows: Rows) -> tuple[np.ndarray, list[list[float] | None]]:
        """Return the logits (R, C) of rows, and the weight of each step in the pooled vector."""
        raise NotImplementedError

    def decode_rows(self, rows: Rows) -> list[Any]:
        """Return the decoded prediction of each row."""
        raise NotImplementedError

    def boundary_rows(self, rows: Rows) -> tuple[list[SpanScores], list[np.ndarray]]:
        """Return the best span of each row, and its boundary logits (2, 1+T)."""
        raise NotImplementedError

    @property
    def input_kind(self) -> InputKind:
        return self.traits.input_kind

    @property
    def word_segmenter(self) -> WordSegmenter | None:
        return self.indexer.segmenter

    def index(self, inputs: Sequence[EngineInput], spans: bool = False) -> Rows:
        """Return the rows that the model reads; with `spans`, also the offsets of their tokens."""
        kind = self.traits.input_kind
        if kind == "trees":
            return self.wrap_rows(list(self.indexer.tree_rows(self._with_trees(inputs))), False)
        if kind == "words":
            return self.wrap_rows(list(self.indexer.sentence_rows(inputs)), False)
        if kind == "vectors":
            examples = [Example(one) if isinstance(one, str) else one for one in inputs]
            width, frontend = self.traits.features, self.traits.frontend
            return self.wrap_rows(
                list(self.indexer.feature_rows(examples, width, frontend=frontend)), False
            )
        # A bi-encoder can also read one text alone.
        pairs = kind == "pairs" and not any(isinstance(one, str) for one in inputs)
        others = [_second_text(one) for one in inputs] if pairs else ()
        rows = self.indexer.rows(plain_texts(inputs), spans=spans, others=others)
        return self.wrap_rows(list(rows), pairs)

    def _with_trees(self, inputs: Sequence[EngineInput]) -> list[Example]:
        """Return the texts with trees; empty texts have none."""
        examples = [parse_or_text(one) if isinstance(one, str) else one for one in inputs]
        bare = [i for i, one in enumerate(examples) if one.tree is None and one.text.strip()]
        if bare and self.parser is None:
            first = examples[bare[0]]
            where = first.where if first.file else f"text {bare[0] + 1}"
            raise UserError(
                f"{where}: this model needs a tree, and the text has none. Give "
                "bracketed trees such as (3 (2 The) (4 good)), or train it with a parser: "
                "data.parser=FOLDER, a model of --recipe constituency."
            )
        return add_parses(examples, self.parser) if self.parser is not None and bare else examples

    def predict(self, inputs: Sequence[EngineInput], parts: bool = False) -> EngineOutput:
        """Return the scores of each input; the windows of a long text count equally."""
        pairs = self.traits.input_kind == "pairs"
        if self.traits.is_structured:
            return self._find_spans(inputs, parts) if pairs else self._decode_texts(inputs)
        if parts and not pairs:  # offsets in two texts would be ambiguous
            return self._classify_with_weights(inputs)
        return self._classify(inputs)

    def _classify(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the logits of each text or pair."""
        rows = self.index(inputs)
        logits = self.row_logits(rows)
        coverage, read = row_coverage(rows.rows, len(inputs))
        return EngineOutput(average_windows(logits, rows.rows, len(inputs)), coverage, read=read)

    def _classify_with_weights(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the logits of each text, and the weight of each token in its vector."""
        rows = self.index(inputs, spans=True)
        parts: list[list[TokenWeight]] = [[] for _ in inputs]
        logits, weights = self.weighed_logits(rows)
        for row, own in zip(rows.rows, weights, strict=True):
            parts[row.text] += _weigh_tokens(row, own)
        coverage, read = row_coverage(rows.rows, len(inputs))
        merged = average_windows(logits, rows.rows, len(inputs))
        return EngineOutput(merged, coverage, [tuple(own) for own in parts], read)

    def _find_spans(self, inputs: Sequence[EngineInput], parts: bool) -> EngineOutput:
        """Return the best answer span of each passage over all its windows.

        With `parts`, also the start and end distributions over the passage.
        """
        rows = self.index(inputs)
        windows = [
            passage_window(self.traits, row, _second_text(inputs[row.text]), row.text)
            for row in rows.rows
        ]
        coverage, read = row_coverage(rows.rows, len(inputs))
        if not parts:
            scores = self.decode_rows(rows) if len(rows) else []
            spans = choose_spans(zip(windows, scores, strict=True), len(inputs))
            return EngineOutput(spans, coverage, read=read)
        best, logits = self.boundary_rows(rows)
        spans = choose_spans(zip(windows, best, strict=True), len(inputs))
        probs = boundary_probs(zip(windows, logits, strict=True), len(inputs))
        spans = [replace(s, starts=a, ends=b) for s, (a, b) in zip(spans, probs, strict=True)]
        return EngineOutput(spans, coverage, read=read)

    def _decode_texts(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the labels of the words of each text, or the generated text."""
        rows = self.index(inputs)
        decoded: list[list[Decoded]] = [[] for _ in inputs]
        predictions = self.decode_rows(rows) if len(rows) else ()
        for row, (table, probs) in zip(rows.rows, predictions, strict=True):
            if not row.read_fraction:
                continue  # an empty text has no prediction
            offsets = () if row.spans is None else tuple(map(tuple, row.spans.tolist()))
            source = inputs[row.text]
            fields = source.fields if isinstance(source, Example) else ()
            decoded[row.text].append(
                Decoded(table, probs, row.words, offsets, row.tree, fields, self.sentence_columns)
            )
        whole = [join_parts(parts) for parts in decoded]
        weights = [() if one.tree is not None else word_weights(one) for one in whole]
        coverage, read = row_coverage(rows.rows, len(whole))
        return EngineOutput(whole, coverage, weights, read)


def passage_window(traits: "Traits", row: Row, passage: str, text: int) -> PassageWindow:
    """Return the part of the passage in a row, aligned with the steps of the head."""
    assert row.spans is not None
    offsets = row.spans.copy()
    offsets[: row.second] = 0
    own = offsets[row.second :] if traits.is_bi_encoder else offsets
    return PassageWindow(text, passage, own)


def row_coverage(rows: Sequence[Row], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (texts,) the coverage of each text, and the fraction of its tokens read."""
    covered, read = np.zeros(count), np.zeros(count)
    for row in rows:
        covered[row.text], read[row.text] = row.coverage, row.read_fraction
    return covered, read


def average_windows(values: np.ndarray, rows: Sequence[Row], count: int) -> np.ndarray:
    """Average the values of the rows of each text."""
    if len(values) == count:
        return values
    owners = np.array([row.text for row in rows])
    out = np.zeros((count, values.shape[1]))
    np.add.at(out, owners, values)
    return out / np.bincount(owners, minlength=count)[:, None]


def step_weights(
    weights: np.ndarray | None, lengths: Sequence[int]
) -> Iterator[list[float] | None]:
    """Yield the pooling weight of each step of each row; None if the pool has none."""
    if weights is None:
        yield from (None for _ in lengths)
        return
    for values, length in zip(weights.tolist(), lengths, strict=True):
        yield values[:length]


def length_settings(data: Section, path: "Path") -> LengthSettings:
    """Return the length limits, the truncation policy and the overlap of windows."""
    limit, policy = data.get("max_tokens"), data.get("truncate")
    # Older models lack these two.
    overlap = data.get("overlap", DEFAULT_OVERLAP)
    characters = data.get("max_characters", DEFAULT_MAX_CHARACTERS)
    for name, value, hint in (
        ("max_tokens", limit, int), ("truncate", policy, Policy), ("overlap", overlap, float),
        ("max_characters", characters, int),
    ):  # fmt: skip
        if not fits(value, hint):
            raise UserError(f"{path}: data.{name} should be {describe_type(hint)}, got {value!r}.")
    if limit < 0 or characters < 0 or not 0 <= overlap < 1:  # type: ignore[operator]
        raise UserError(
            f"{path}: data.max_tokens is {limit}, data.overlap {overlap}: out of range."
        )
    return LengthSettings(limit, policy, overlap, characters)  # type: ignore[arg-type]


def _weigh_tokens(row: Row, weights: list[float] | None) -> list[TokenWeight]:
    """Return (start, end, weight) of the tokens of a row."""
    assert row.spans is not None
    # With a stride, a weight belongs to no single token.
    if weights is None or len(weights) < len(row.spans):
        return []
    kept = weights[len(weights) - len(row.spans) :]  # without a leading [CLS]
    return [
        (start, end, weight) for (start, end), weight in zip(row.spans.tolist(), kept, strict=True)
    ]


def _second_text(one: EngineInput) -> str:
    return "" if isinstance(one, str) else one.other or ""
