"""Tokenise splits into stores, and keep the references of dev rows."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from weft.batch import TokenStore
from weft.batch.indexer import Indexer, Row
from weft.errors import UserError
from weft.model import UNKNOWN_ID, EncoderModel, Model
from weft.predict.rows import passage_window
from weft.protocols import LabelSpace
from weft.run.data import Data, Source, labelled_only, not_weighted_error
from weft.tasks.annotation import Decoded
from weft.tasks.extractive_qa import (
    AnswerSpan,
    ExtractiveQA,
    PassageWindow,
    choose_spans,
    locate_question,
)
from weft.tasks.task import AnyTask
from weft.text.example import UNKNOWN_WORDS, Example, SkipCounter
from weft.train.logger import RunLogger

TOKENISE_CHUNK_TEXTS = 10_000  # texts tokenised together

Target: TypeAlias = Any  # a number or an array; its shape depends on task and model


@dataclass(frozen=True)
class DevReference:
    """The references of a dev row, the words it can copy, and its record."""

    right: object
    words: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    window: PassageWindow | None = (
        None  # what of a passage it is, where answers are looked for in one
    )


@dataclass
class SplitTokeniser:
    """Tokenises the splits of one run into stores."""

    task: AnyTask
    space: LabelSpace
    data: Data
    folder: Path
    logger: RunLogger
    tally: SkipCounter
    model: Model
    index: Indexer
    dev_references: list[DevReference] = field(
        default_factory=list
    )  # of each dev row, where texts are measured
    examples: int = 0  # of a split that have become rows

    def tokenise(self, examples: Source, name: str) -> TokenStore:
        """Tokenise a split; truncated and skipped texts go into the tally."""
        model = self.model
        if model.traits.pooling == "decoder" and self.index.policy == "windows":
            raise UserError(
                'data.truncate = "windows" would write a text for every window. Choose another, '
                'such as "head".'
            )
        if isinstance(self.task, ExtractiveQA) and self.index.policy == "head+tail":
            raise UserError(
                'data.truncate = "head+tail" would let an answer reach over what is not read. '
                'Choose another, such as "windows".'
            )
        self.examples = 0
        columns = self.space.width if model.traits.is_structured else 0
        trees = model.traits.input_kind == "trees"
        store = TokenStore(
            self.index.subtoken_kinds, self.folder, columns=columns, trees=trees,
            features=model.traits.features, pairs=model.traits.input_kind == "pairs",
            marks=model.head.num_marks,
        )  # fmt: skip
        self.tally.enabled = True
        rows = self.logger.reading(
            labelled_only(examples, self.data, self.tally), f"tokenising {name}"
        )
        kept = self._with_targets(self._training_instances(rows, name))
        while chunk := list(islice(kept, TOKENISE_CHUNK_TEXTS)):
            if model.traits.input_kind in ("text", "pairs", "vectors"):
                self._tokenise_texts(chunk, store, name)
            else:
                self._tokenise_words(chunk, store, name)
        self.tally.enabled = False
        return store.close()

    def _training_instances(self, rows: Iterator[Example], name: str) -> Iterator[Example]:
        """Yield one example per reference for training; for evaluation, group the references."""
        task = self.task
        if name == "train":
            return (instance for example in rows for instance in task.training_instances(example))
        return task.group_references(rows)

    def _with_targets(self, examples: Iterator[Example]) -> Iterator[tuple[Example, Target]]:
        for example in examples:
            if example.weight != 1 and not self.task.takes_weights:
                raise not_weighted_error(example, f"the task of the head '{self.task.head}'")
            try:
                yield example, self.task.target(example, self.space)
            except UserError:
                if self.data.on_bad_row == "error":
                    raise
                self.tally.add("unknown labels skipped", example.where)

    def _tokenise_words(
        self, chunk: list[tuple[Example, Target]], store: TokenStore, name: str
    ) -> None:
        """Append rows of words, or of tree nodes."""
        examples = [example for example, _ in chunk]
        trees = self.model.traits.input_kind == "trees"
        for row in self.index.tree_rows(examples) if trees else self.index.sentence_rows(examples):
            example, target = chunk[row.text]
            if (
                self.model.traits.input_kind == "words"
                and not self.model.traits.needs_full_sentence
            ):
                target = target[row.start : row.start + len(row.ids)]
            self._count_unknown(row, example, name)
            if name == "dev" and self.task.has_references:
                reference = self.task.find_reference(example)
                self.dev_references.append(DevReference(reference, row.words, ()))
            store.append(
                row.ids, target, example.line, row.subtokens, row.parents, weight=example.weight,
                marks=row.marks,
            )  # fmt: skip

    def _count_unknown(self, row: Row, example: Example, name: str) -> None:
        """Count a text with unknown words."""
        if row.read_fraction and row.coverage < row.read_fraction:
            self.tally.add(f"{name} {UNKNOWN_WORDS}", f"{example.where} ({row.unknown})")

    def _tokenise_texts(
        self, chunk: list[tuple[Example, Target]], store: TokenStore, name: str
    ) -> None:
        """Append rows of tokens, or of vectors."""
        self._check_lengths(chunk)
        task = self.task
        for row in self._index([example for example, _ in chunk]):
            example, target = chunk[row.text]
            window = None
            if isinstance(task, ExtractiveQA):
                window = passage_window(
                    self.model.traits, row, example.other or "", self.examples + row.text
                )
                target = self._locate_answer(target, window, example, name)
                if target is None:
                    continue
            if self._is_too_short(row, target, example):
                continue
            if name == "dev" and task.has_references:
                self.dev_references.append(
                    DevReference(task.find_reference(example), row.words, example.fields, window)
                )
            if row.read_fraction < 1:
                what = f"{name} texts read only in part"
                self.tally.add(what, f"{example.where} ({row.read_fraction:.0%})")
            self._count_unknown(row, example, name)
            if row.clipped:
                self.tally.add(f"{name} texts with words too long to spell out", example.where)
            if (
                beyond := self.model.traits.extended_vocab_start
            ):  # what was cut off the source cannot be copied
                seen = (target < beyond) | np.isin(target, row.ids)
                target = np.where(seen, target, UNKNOWN_ID)
            store.append(
                row.ids, target, example.line, row.subtokens,
                second=row.second, weight=example.weight,
            )  # fmt: skip
        self.examples += len(chunk)

    def _is_too_short(self, row: Row, target: Target, example: Example) -> bool:
        """Return True for a row to skip: its steps cannot hold its target."""
        model = self.model
        needed = model.head.min_steps(target)
        if not needed:
            return False
        assert isinstance(model, EncoderModel)
        steps = -(-len(row.ids) // model.encoder.stride)
        if needed <= steps:
            return False
        if self.data.on_bad_row == "error":
            raise UserError(
                f"{example.where}: the text needs {needed} steps, and the recording has {steps}. "
                "Correct it, lower embedder.stack or hop_ms, or pass --on-bad-row skip."
            )
        self.tally.add("rows too short for their texts skipped", example.where)
        return True

    def _locate_answer(
        self, target: Target, window: PassageWindow, example: Example, name: str
    ) -> Target | None:
        """Return the steps of an answer in a row; None if the row cannot be trained on."""
        task = self.task
        assert isinstance(task, ExtractiveQA)
        steps = task.locate_answer(target, window.spans)
        if name == "train" and steps[0] >= 0:
            (first, last), ((start, end),) = steps.tolist(), target.tolist()
            if (window.spans[first, 0], window.spans[last, 1]) != (start, end):
                self.tally.add("train answers widened to whole tokens", locate_question(example))
            if last - first >= task.longest:
                message = (
                    f"train answers of more than {task.longest} tokens (task.max_answer_tokens)"
                )
                self.tally.add(message, locate_question(example))
        learned = name != "train" or task.no_answer or steps[0] >= 0
        return steps if learned else None

    def _index(self, examples: list[Example]) -> Iterator[Row]:
        def where(i: int) -> str:
            return examples[i].where

        if self.model.traits.features:
            traits = self.model.traits
            return self.index.feature_rows(examples, traits.features, where, traits.frontend)
        others = (
            [e.other or "" for e in examples] if self.model.traits.input_kind == "pairs" else ()
        )
        return self.index.rows([example.text for example in examples], where, others=others)

    def _check_lengths(self, chunk: list[tuple[Example, Target]]) -> None:
        most = self.model.head.max_target_length or math.inf
        for example, target in chunk if most < math.inf else ():
            if len(target) > most:
                raise UserError(
                    f"{example.where}: the target has {len(target)} tokens, and the decoder "
                    f"writes at most {most}. Shorten it, or raise decoder.max_positions."
                )


def predictions_and_references(
    rows: Iterable[Any], references: Sequence[DevReference], store: TokenStore
) -> tuple[Sequence[Decoded | AnswerSpan], Sequence[object]]:
    """Return the decoded predictions and their references."""
    windows = [reference.window for reference in references if reference.window is not None]
    if windows:
        expected = {
            window.text: reference.right
            for window, reference in zip(windows, references, strict=True)
        }
        merged = choose_spans(zip(windows, rows, strict=True), max(expected) + 1)
        return [merged[text] for text in expected], list(expected.values())
    decoded = [Decoded(*row) for row in rows]
    if not references:
        return decoded, list(store.targets)
    complete = [
        replace(one, words=reference.words, fields=reference.fields)
        for one, reference in zip(decoded, references, strict=True)
    ]
    return complete, [reference.right for reference in references]
