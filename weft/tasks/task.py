"""Losses, answers and checks that tasks share. Importable without torch."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, overload

import numpy as np

from weft import registry
from weft.errors import UserError
from weft.notebook import HtmlRepr
from weft.protocols import LabelSpace, Section, Space, Task
from weft.tasks.annotation import Annotation, Decoded, SentenceDistribution
from weft.text.class_balance import balanced_weights, group_rows, positive_weights
from weft.text.example import Example, SkipCounter

if TYPE_CHECKING:
    from torch import Tensor

    from weft.batch import LabelledBatch
    from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM

# A task of any kind: each takes back the label space it made, of its own type.
AnyTask: TypeAlias = Task[Any]

MAX_REPR_CHARACTERS = 100  # characters of a value in a repr
MAX_REPR_ANSWERS = 20  # in the repr of a list


@dataclass(frozen=True)
class Loss:
    """A sum and what it is a sum over; only the trainer divides, once."""

    total: "Tensor"
    count: float
    carried: Any = None  # the state in which the next piece of the same rows begins


@dataclass(frozen=True, repr=False)
class Answer(HtmlRepr):
    """A model's prediction for one text."""

    value: Any
    score: float  # probability of the value where there is one; for a number, the number itself
    parts: tuple[tuple[int, int, float], ...] = ()  # (start, end, weight) of each token, if any
    coverage: float = 1.0  # below 1: some of the input was not read
    scores: tuple[float, ...] = ()  # one per label, in the order of the space
    structure: Annotation | None = None  # to draw, where the answer is about the words
    # (node, probability) from the top to a label in a hierarchy.
    path: tuple[tuple[str, float], ...] = ()
    tokens: tuple[tuple[str, float], ...] = ()  # of a generated text, with their probabilities
    blanks: tuple[tuple[tuple[str, float], ...], ...] = ()  # candidates, with probabilities
    # (start, end, probability) of each passage token as the first or last of an answer span.
    starts: tuple[tuple[int, int, float], ...] = ()
    ends: tuple[tuple[int, int, float], ...] = ()
    abstained: bool | None = None  # True: not confident enough, and no value; None: not asked
    label_set: tuple[str, ...] | None = None  # conformal, most probable first, if asked for

    def __repr__(self) -> str:
        value = repr(self.value)
        value = (
            value if len(value) <= MAX_REPR_CHARACTERS else f"{value[: MAX_REPR_CHARACTERS - 1]}…"
        )
        part = f", coverage={self.coverage:.2f}" if self.coverage < 1 else ""
        if self.label_set is not None:
            part += f", label_set={self.label_set}"
        value = "abstained" if self.abstained else value
        return f"Answer({value}, score={self.score:.4g}{part})"


class Answers(list[Answer], HtmlRepr):
    """The answers of a predictor, in the order of its inputs; notebooks show them as a table."""

    def __init__(self, answers: Iterable[Answer] = (), inputs: Sequence[object] = ()) -> None:
        super().__init__(answers)
        self.inputs = inputs  # one per answer, or none

    @overload
    def __getitem__(self, index: SupportsIndex) -> Answer: ...
    @overload
    def __getitem__(self, index: slice) -> "Answers": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Answer | Answers":
        if not isinstance(index, slice):
            return super().__getitem__(index)
        return Answers(super().__getitem__(index), self.inputs[index])

    def __repr__(self) -> str:
        shown = [repr(answer) for answer in list.__iter__(self[:MAX_REPR_ANSWERS])]
        if len(self) > MAX_REPR_ANSWERS:
            shown.append(f"… {len(self) - MAX_REPR_ANSWERS:,} more")
        return f"[{', '.join(shown)}]"


class HeadLoss(Protocol):
    """The output of a head that computes the loss of its answers."""

    def loss(self, target: "Tensor") -> "tuple[Tensor, int]":
        """Return the summed loss and what it is a sum over."""


class StructuredTask(Task[Space]):
    """A task that answers about the words of a text, or the nodes of its tree."""

    is_structured = True
    can_average = True

    def loss(self, scores: HeadLoss, batch: "LabelledBatch") -> Loss:
        return Loss(*scores.loss(batch.target))

    def average(
        self,
        scores: Sequence[Sequence[SentenceDistribution]],
        spaces: Sequence[Space],
        weights: np.ndarray,
        space: Space,
    ) -> list[Decoded]:
        """Return the labels of each sentence under the members' mean probabilities."""
        from weft.decode.heads.averaging import decode_average

        rows = list(zip(*scores, strict=True))
        for row in rows:
            if len({one.words for one in row}) > 1:
                raise UserError(
                    "The members of this ensemble find other words in the text "
                    f"{' '.join(row[0].words)[:60]!r}. Give it as words, as in a CoNLL file."
                )
        whole = [[one.scores for one in row if one.scores is not None] for row in rows]
        decoded = iter(decode_average([one for one in whole if one], weights, _columns(space)))
        empty = np.zeros((0, max(space.width, 1)), np.int64), np.zeros((0, 1))
        out = []
        for (first, *_), one in zip(rows, whole, strict=True):
            table, probs = next(decoded) if one else empty
            out.append(Decoded(table, probs, first.words, first.places, first.tree))
        return out

    def model_input(self, one: str | Example, space: Space, where: str) -> str | Example:
        """Return the example with the words or the tree of its file, or else its text."""
        if isinstance(one, str):
            return one
        ready = self.prepare(one, SkipCounter()) if one.tree is not None else one
        return ready if ready.words else one.text


def _columns(space: LabelSpace) -> list[tuple[tuple[str, ...], str]]:
    """Return the labels and the span scheme of each column."""
    size = space.size
    assert isinstance(size, tuple)
    return [column for column in size if isinstance(column, tuple)]


def build_task(config: Section, **inferred: object) -> AnyTask:
    """Build the task of a configuration with the settings inferred from the file."""
    tokenizer = config.get("target") or config.get("tokenizer", {})
    task: AnyTask = registry.build("task", {**config["task"], **inferred}, tokenizer=tokenizer)
    return task


def check_auxiliary(auxiliary: float) -> float:
    """Return the weight of the auxiliary LM loss, or raise a UserError if it is negative."""
    if not 0 <= auxiliary < math.inf:
        raise UserError(f"task.auxiliary is a weight, 0 or more; got {auxiliary}.")
    return auxiliary


def add_auxiliary_loss(
    loss: Loss,
    scores: "Tensor | WithAuxiliaryLM",
    auxiliary: float,
    row_weights: "Tensor | None" = None,
) -> Loss:
    """Return the loss of the answers plus, while a language model is trained, that of its tokens.

    L = L_task + λ L_tokens, the latter per token on average (Radford et al. 2018).
    """
    from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM

    if not isinstance(scores, WithAuxiliaryLM):
        return loss
    from weft.decode.label_losses import weighted_sum

    return Loss(loss.total + auxiliary * weighted_sum(scores.nats(), row_weights), loss.count)


def without_auxiliary(scores: "Tensor | WithAuxiliaryLM") -> "Tensor":
    """Return the logits of the answers alone."""
    from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM

    return scores.scores if isinstance(scores, WithAuxiliaryLM) else scores


class LabelCheck:
    """Watches for examples without a label while an answer space is learned."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted  # "label" or "number", for messages
        self.file = "input"
        self.labelled = 0
        self.first: Example | None = None  # the first example without a label

    def count(self, example: Example) -> bool:
        """Count the example and return True if it has a label."""
        self.file = example.file or self.file
        if example.label is not None and example.label != "":
            self.labelled += 1
            return True
        self.first = self.first or example
        return False

    def check(self) -> None:
        """A UserError when there was nothing to learn from, or a label was missing."""
        if self.labelled and self.first:
            raise self.missing(self.first)
        if not self.labelled:
            message = "no example has a label" if self.first else "there are no examples"
            raise UserError(
                f"{self.file}: {message}. "
                f"Pass --label with the column that holds the {self.wanted}."
            )

    def missing(self, example: Example) -> UserError:
        """The error for one example without a label."""
        return UserError(
            f"{example.where}: no {self.wanted}. Add it, remove the row, "
            f"or pass --label with the column that holds the {self.wanted}."
        )


def compute_metrics(
    task: AnyTask, space: LabelSpace, scores: Any, targets: "np.ndarray | Sequence[object]"
) -> dict[str, float]:
    """Return every metric of held-out scores, thresholds tuned on them, without intervals."""
    metric = task.build_metric(space)
    metric.add(task.predict_targets(scores, task.tune(scores, targets, space)), targets)
    return {name: value.value for name, value in metric.compute(resamples=0).items()}


def class_weights(
    targets: Iterable[np.ndarray | int], task: AnyTask, space: LabelSpace
) -> tuple[np.ndarray, ...]:
    """Return the weights of the classes of each column (C,), from the training targets."""
    size = space.size
    sizes = [size] if isinstance(size, int) else [len(labels) for labels, _ in _columns(space)]
    counts = [np.zeros(size, np.int64) for size in sizes]
    n = 0
    for target in targets:
        n += 1
        for column, found in zip(counts, task.classes(target, space), strict=True):
            np.add.at(column, found, 1)
    if task.multi_label:
        return (positive_weights(counts[0], n),)
    return tuple(balanced_weights(column) for column in counts)


def class_groups(
    targets: Iterable[np.ndarray | int], task: AnyTask, space: LabelSpace
) -> list[np.ndarray]:
    """Return the rows of each class; a row with several classes is in several groups."""

    def classes(target: np.ndarray | int) -> Iterator[int]:
        # The classes of several columns are told apart by their remainder.
        columns = task.classes(target, space)
        return chain.from_iterable(
            (found * len(columns) + k).tolist() for k, found in enumerate(columns)
        )

    return group_rows(classes(target) for target in targets)
