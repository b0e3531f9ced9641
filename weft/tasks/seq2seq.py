"""Sequence to sequence: translation, summarisation, text from records.

T tokens of an answer, EOS included
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from weft.errors import UserError
from weft.protocols import Saved, Section, Task
from weft.registry import register
from weft.tasks.annotation import Decoded
from weft.tasks.target_vocabulary import TargetVocabulary as TargetVocabulary
from weft.tasks.task import Answer, LabelCheck, Loss
from weft.tasks.text_metrics import MAIN_METRICS, GoldTexts, TextMetrics, check_name
from weft.text.example import Example, GoldAnswers, SkipCounter
from weft.text.formats.parallel import sibling_endings
from weft.text.formats.records import check_slots, delexicalise, linearise, mark_slot, read_record
from weft.text.line_source import SKIP_HINT

if TYPE_CHECKING:
    from weft.batch import LabelledBatch
    from weft.decode.heads.seq2seq import Seq2SeqOutput
    from weft.tokens.tokenizer import Tokenizer


@register("task", "seq2seq")
class Seq2Seq(Task[TargetVocabulary]):
    """A text for a text; the label of an example is its target.

    The target is tokenised by [target], or with `shared` by one tokenizer of both sides.
    `label_smoothing` spreads that fraction of the probability over all tokens;
    `scheduled_sampling` is the fraction of decoder inputs that the model predicts itself while it
    is trained. With `pointer`, source words that are in no vocabulary can be copied (See et al.
    2017); `coverage` weighs repeated attention. With `record`, a source is `slot[value], …` or a
    JSON object; the values of `delexicalise` slots are hidden from the model and written back. Of
    several references the model learns `references`; `grouped` evaluates equal sources once,
    against all their targets. With `autoencode` the target of a text is the text itself (Dai & Le
    2015), and files need no targets; `embedder.word_dropout` corrupts what the encoder reads, so
    that the model learns to denoise (Vincent et al. 2008).
    """

    head = "sequence"
    has_references = True
    has_target_tokenizer = True
    can_average = True  # token by token, during the search

    def __init__(
        self,
        tokenizer: Section | None = None,
        shared: bool = False,
        label_smoothing: float = 0.0,
        scheduled_sampling: float = 0.0,
        pointer: bool = False,
        coverage: float = 0.0,
        record: bool = False,
        delexicalise: tuple[str, ...] = (),
        references: Literal["all", "first"] = "all",
        grouped: bool = False,
        metrics: tuple[str, ...] = ("bleu", "chrf", "exact"),
        autoencode: bool = False,
    ) -> None:
        for name, value in (
            ("label_smoothing", label_smoothing),
            ("scheduled_sampling", scheduled_sampling),
        ):
            if not 0 <= value < 1:
                raise UserError(f"task.{name} should be from 0 to below 1, got {value}.")
        self.tokenizer, self.shared = tokenizer or {}, shared
        self.smoothing, self.sampling = label_smoothing, scheduled_sampling
        self.copy, self.coverage = pointer, coverage
        self.record, self.hidden = record, tuple(delexicalise)
        self.references, self.grouped = references, grouped
        self.autoencode = autoencode
        self.measures = tuple(check_name(name) for name in metrics)
        self._check()
        self.metric = MAIN_METRICS[self.measures[0]]

    def _check(self) -> None:
        if self.coverage < 0:
            raise UserError(f"task.coverage should be 0 or more, got {self.coverage}.")
        if self.coverage and not self.copy:
            raise UserError(
                "task.coverage weighs the attention of copying: set task.pointer = true."
            )
        if self.copy and not self.shared:
            raise UserError(
                "task.pointer writes words of the source, so both sides need one vocabulary: set "
                "task.shared = true."
            )
        if self.copy and (self.smoothing or self.sampling):
            name = "label_smoothing" if self.smoothing else "scheduled_sampling"
            raise UserError(f"task.{name} does not go with task.pointer. Set task.{name} = 0.")
        if self.autoencode and not self.shared:
            raise UserError(
                "task.autoencode writes what it reads, so both sides need one vocabulary: set "
                "task.shared = true."
            )
        if self.autoencode and self.record:
            raise UserError("task.autoencode reads texts, not records. Remove one of the two.")
        if self.hidden and not self.record:
            raise UserError("task.delexicalise names slots of records: set task.record = true.")
        if not self.measures:
            raise UserError(f"task.metrics is empty. Known: {', '.join(MAIN_METRICS)}.")
        for name in ("slots", "restaurants"):
            if name in self.measures and not self.record:
                raise UserError(f"The measure '{name}' reads records: set task.record = true.")
        if {"slots", "restaurants"} <= set(self.measures):
            raise UserError("task.metrics: 'slots' and 'restaurants' are two rules. Keep one.")

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example with its record parsed into slots and values, and linearised.

        The target of an auto-encoder is the text.
        """
        if self.autoencode:
            return replace(example, label=example.text)
        if isinstance(example.label, GoldAnswers):  # wherever they stand, they are texts
            example = replace(example, label=example.label.texts or None)
        return self._parse_record(example, example.where)

    def _parse_record(self, example: Example, where: str) -> Example:
        if not self.record or example.fields:
            return example
        record = read_record(example.text, where)
        return replace(
            example, text=linearise(record, self.hidden), fields=tuple(record.items())
        )  # fmt: skip

    def model_input(self, one: str | Example, space: TargetVocabulary, where: str) -> str | Example:
        """Return the model input of a text; a record may only have known slots."""
        if not self.record:
            return one if isinstance(one, str) else one.text
        example = Example(one) if isinstance(one, str) else one
        opened = self._parse_record(example, example.where if example.file else where)
        check_slots(dict(opened.fields), space.slots, example.where if example.file else where)
        return opened

    def group_references(self, examples: Iterable[Example]) -> Iterator[Example]:
        """Yield the examples to evaluate on; with `grouped`, equal sources with all their targets.

        Grouping holds all examples in memory.
        """
        if not self.grouped:
            yield from examples
            return
        groups: dict[str | tuple[tuple[str, str], ...], Example] = {}
        for example in examples:
            key = example.fields or example.text  # hidden values are in the fields only
            first = groups.setdefault(key, example)
            if first is not example and example.label is not None:
                groups[key] = replace(first, label=(*_target_texts(first), *_target_texts(example)))
        yield from groups.values()

    def training_instances(self, example: Example) -> Iterator[Example]:
        """Yield an example for each reference to learn."""
        if not isinstance(example.label, tuple):
            yield example
            return
        for text in example.label[: 1 if self.references == "first" else None]:
            yield replace(example, label=text)

    def target_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """Yield the targets to learn, with `shared` also the sources; check that there are some."""
        check = _TargetCheck("target text")
        for example in examples:
            if check.count(example):
                record = dict(example.fields)
                for instance in self.training_instances(example):
                    text = delexicalise(_first_text(instance), record, self.hidden)
                    yield TargetVocabulary.without_marks(text)
                if self.shared:
                    yield TargetVocabulary.without_marks(example.text)
        if check.first is not None:  # of no examples at all the tokenizer complains
            check.check()

    def text_space(self, examples: Iterable[Example], tokenizer: "Tokenizer") -> TargetVocabulary:
        """Return the vocabulary of the target, or of both sides, and the slots of records."""
        slots = dict.fromkeys(slot for example in examples for slot, _ in example.fields)
        check_slots(self.hidden, slots, "task.delexicalise")
        marked = tuple(slots) if self.shared else self.hidden
        if marked:
            tokenizer = tokenizer.with_words([mark_slot(slot) for slot in marked])
        return TargetVocabulary(tokenizer, self.shared, self.copy, tuple(slots), self.hidden)

    def load_space(self, saved: Saved) -> TargetVocabulary:
        return TargetVocabulary.from_json(saved)

    def target(self, example: Example, space: TargetVocabulary) -> np.ndarray:
        """Return the ids (T, 1) of the target, EOS included."""
        record = dict(example.fields)
        check_slots(record, space.slots, example.where)
        text = delexicalise(_first_text(example), record, self.hidden)
        return space.encode(text, example.text)[:, None]

    def loss(self, scores: "Seq2SeqOutput", batch: "LabelledBatch") -> Loss:
        if self.copy:
            return Loss(*scores.pointer_loss(batch.target, self.coverage))
        return Loss(*scores.loss(batch.target, self.smoothing, self.sampling))

    def answers(self, scores: Sequence[Decoded], space: TargetVocabulary) -> list[Answer]:
        """Return each text with the mean probability of its tokens."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, decoded: Decoded, space: TargetVocabulary) -> Answer:
        probs = tuple(decoded.probs.ravel().tolist())
        text = space.text(decoded.table, decoded.words, decoded.fields)
        pieces = (space.token_text(int(i), decoded.words) for i in decoded.table.ravel())
        tokens = tuple(zip(pieces, probs, strict=False))  # EOS has a probability, no id
        return Answer(text, decoded.score, scores=probs, tokens=tokens)

    def find_reference(self, example: Example) -> tuple[str, ...] | GoldTexts:
        """Return the references as they are in the file: no word of them is unknown."""
        texts = _target_texts(example)
        return GoldTexts(texts, dict(example.fields)) if self.record else texts

    def missing_label_error(self, example: Example) -> UserError:
        """Return the error for a text without a target, which may be in another file."""
        return UserError(
            f"{example.where}: no target. Fill it in, or {SKIP_HINT}; where targets are in a file "
            f"beside it, name both, A,B, or pass --target with its ending "
            f"({_example_ending(example.file)}); where they are a column, --label."
        )

    def predict_targets(self, scores: Sequence[Decoded], space: TargetVocabulary) -> list[str]:
        return [space.text(found.table, found.words, found.fields) for found in scores]

    def build_metric(self, space: TargetVocabulary) -> TextMetrics:
        return TextMetrics(space, self.measures)


class _TargetCheck(LabelCheck):
    """Notes examples without a target; targets may be in another file."""

    def check(self) -> None:
        if self.labelled or self.first is None or not self.first.file:
            super().check()
            return
        raise UserError(
            f"{self.file}: no text has a target. Pass --target with the ending of the file that "
            f"holds them line by line ({_example_ending(self.file)}), or --label with the "
            "column that does."
        )


def _example_ending(file: str) -> str:
    """Return an example of a value for --target."""
    others = sibling_endings(file)
    return f"'{others[0]}', for one" if others else "'de' for train.de beside train.en"


def _first_text(example: Example) -> str:
    """Return the first reference."""
    return _target_texts(example)[0]


def _target_texts(example: Example) -> tuple[str, ...]:
    """Return every reference, or raise a UserError."""
    label = example.label
    texts = label if isinstance(label, tuple) else (label,)
    kept = tuple(one for one in texts if isinstance(one, str) and one.strip())
    if not kept:
        raise UserError(
            f"{example.where}: there is no text to learn. Pass --label with the column that holds "
            "it, or data.target with the ending of the file beside this one."
        )
    return kept
