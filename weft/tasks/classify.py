"""Text classification: one label a text, or several.

n texts   C labels
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError, near_miss
from weft.jsonio import JsonObject
from weft.metrics import ClassificationMetric, MultiLabelMetric
from weft.protocols import LabelSpace, Saved, Section, Task
from weft.registry import register
from weft.tasks.calibration import LossKind, check_loss, fit_scale, sigmoid, softmax
from weft.tasks.task import (
    Answer,
    LabelCheck,
    Loss,
    add_auxiliary_loss,
    check_auxiliary,
    without_auxiliary,
)
from weft.text.example import CharSpans, Example, GoldAnswers, WordAnnotations
from weft.text.line_source import SKIP_HINT

if TYPE_CHECKING:
    from torch import Tensor

    from weft.batch import LabelledBatch
    from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM

MAX_LISTED_LABELS = 20  # labels listed in a message
SMALLEST_PROB = 1e-300  # of an average, so that it has a logarithm
INSPECTED_EXAMPLES = 1000  # examples from which `multi_label` is inferred


@dataclass(frozen=True)
class ClassSpace(LabelSpace):
    """The labels in order (numbers by value, the rest by letter) and the decision threshold."""

    entries: tuple[str, ...] = field()
    threshold: float = 0.5  # several labels: those at least this probable are predicted
    scale: float = 1.0  # of margins, so that their softmax or sigmoid is a probability

    @property
    def size(self) -> int:
        return len(self.entries)

    @cached_property
    def index(self) -> dict[str, int]:
        return {entry: i for i, entry in enumerate(self.entries)}

    def to_json(self) -> JsonObject:
        saved: JsonObject = {"entries": list(self.entries), "threshold": self.threshold}
        return saved if self.scale == 1 else {**saved, "scale": self.scale}


@register("task", "classify")
class Classify(Task[ClassSpace]):
    """One label a text, or several (`multi_label = true`).

    `loss` is cross-entropy, or a margin: the right label must beat the strongest wrong one by 1
    ("margin", Crammer and Singer 2001) or each of them ("margin-sum", Weston and Watkins 1999); of
    several labels, each is a hinge of its own. Margins are no log-probabilities: one scale, fitted
    on dev, makes probabilities of them.

    `auxiliary` weighs the loss of the language model that it starts from, which goes on to learn
    (Radford et al. 2018).
    """

    head = "linear"
    can_average = True

    def __init__(
        self,
        multi_label: bool = False,
        label_smoothing: float = 0.0,
        auxiliary: float = 0.0,
        loss: LossKind = "cross-entropy",
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise UserError(
                f"task 'classify': label_smoothing is {label_smoothing}; it goes from 0 to below 1."
            )
        check_loss("task 'classify'", loss, label_smoothing, multi_label)
        self.multi_label, self.loss_kind = multi_label, loss
        self.smoothing, self.auxiliary = label_smoothing, check_auxiliary(auxiliary)
        self.metric = "micro_f1" if multi_label else "accuracy"
        self.has_threshold = multi_label or loss != "cross-entropy"

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer several labels a text if one of the first is a list, unless configured."""
        if "multi_label" in settings:
            return {}
        return {
            "multi_label": any(
                isinstance(e.label, tuple) for e in islice(examples, INSPECTED_EXAMPLES)
            )
        }

    def space(self, examples: Iterable[Example]) -> ClassSpace:
        """Return the labels, sorted; by value if every label is a number."""
        seen = LabelCheck("label")
        entries = {name for e in examples if seen.count(e) for name in self._names(e)}
        seen.check()
        if len(entries) == 1:
            (only,) = entries
            raise UserError(
                f"{seen.file}: every example has the label '{only}'; a classifier needs at least "
                "two classes. Add examples of another class, or pass --label with another column."
            )
        if not entries:
            raise UserError(f"{seen.file}: every example has an empty set of labels.")
        return ClassSpace(tuple(sorted(entries, key=_sort_key(entries))))

    def load_space(self, saved: Saved) -> ClassSpace:
        try:
            scale = float(saved.get("scale", 1.0))
            space = ClassSpace(tuple(map(str, saved["entries"])), float(saved["threshold"]), scale)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The saved labels are damaged: {error!r}. Train again.") from error
        if len(space.index) < max(2, space.size):
            raise UserError("The saved labels are damaged: too few or repeated. Train again.")
        if not 0 < scale < math.inf:
            raise UserError(f"The saved labels are damaged: scale {scale}. Train again.")
        return space

    def target(self, example: Example, space: ClassSpace) -> np.ndarray | int:
        """Return the label's index, or a row of C zeros and ones."""
        if example.label is None or example.label == "":
            raise LabelCheck("label").missing(example)
        picked = [self._look_up(name, example, space) for name in self._names(example)]
        if not self.multi_label:
            return picked[0]
        row = np.zeros(space.size, dtype=np.float32)
        row[picked] = 1
        return row

    def loss(self, scores: "Tensor | WithAuxiliaryLM", batch: "LabelledBatch") -> Loss:
        """Return cross-entropy or hinge loss, summed over the labels if several, and the texts."""
        loss = self._label_loss(without_auxiliary(scores), batch)
        return add_auxiliary_loss(loss, scores, self.auxiliary)

    def _label_loss(self, scores: "Tensor", batch: "LabelledBatch") -> Loss:
        from torch.nn import functional as F

        scores = scores.float()  # (n, C)
        if self.loss_kind != "cross-entropy":
            total = self._margin_loss(scores, batch.target)
        elif self.multi_label:
            wanted = batch.target.float() * (1 - self.smoothing) + self.smoothing / 2
            total = F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
        else:
            total = F.cross_entropy(
                scores, batch.target, reduction="sum", label_smoothing=self.smoothing
            )
        return Loss(total, len(scores))

    def _margin_loss(self, scores: "Tensor", target: "Tensor") -> "Tensor":
        from weft.decode.margin_losses import binary_margin_loss, margin_loss

        if self.multi_label:
            return binary_margin_loss(scores, target).sum()
        return margin_loss(scores, target, self.loss_kind == "margin-sum").sum()

    def note(self, space: ClassSpace) -> str:
        if self.loss_kind == "cross-entropy":
            return ""
        fitted = "fitted on dev" if space.scale != 1 else "not calibrated without dev examples"
        return f"probabilities are of margins × {space.scale:.3g}, {fitted}"

    def answers(self, scores: np.ndarray, space: ClassSpace) -> list[Answer]:
        """Return the best label and its probability, or a set of labels, which may be empty.

        A set is ordered by probability; its score is the probability that exactly this set is
        right if the labels are independent.
        """
        probs = self.probabilities(scores, space)  # (n, C)
        if self.multi_label:
            return [_answer_label_set(row, space) for row in probs]
        best = probs.argmax(1)
        return [
            Answer(space.entries[i], float(row[i]), scores=tuple(row.tolist()))
            for row, i in zip(probs, best.tolist(), strict=True)
        ]

    def predict_targets(self, scores: np.ndarray, space: ClassSpace) -> np.ndarray:
        """Return the best label's index (n,), or rows of zeros and ones (n, C)."""
        predicted: np.ndarray
        if self.multi_label:
            predicted = (self.probabilities(scores, space) >= space.threshold).astype(np.int64)
        else:
            predicted = scores.argmax(1)
        return predicted

    def probabilities(self, scores: np.ndarray, space: ClassSpace) -> np.ndarray:
        """Return scores (n, C) as probabilities: softmax over labels, or a sigmoid for each."""
        scores = np.asarray(scores, dtype=np.float64) * space.scale
        return sigmoid(scores) if self.multi_label else softmax(scores)

    def join_spaces(self, spaces: Sequence[ClassSpace], weights: np.ndarray) -> ClassSpace:
        """Return the first label space, with the mean threshold; averages need no scale."""
        threshold = float(weights @ np.array([space.threshold for space in spaces]))
        return replace(spaces[0], threshold=threshold, scale=1.0)

    def average(
        self,
        scores: Sequence[np.ndarray],
        spaces: Sequence[ClassSpace],
        weights: np.ndarray,
        space: ClassSpace,
    ) -> np.ndarray:
        """Return logits (n, C) whose probabilities are p̄ = Σ w_m p_m, label by label.

        They are log p̄, or log p̄ − log(1 − p̄) of each label if there may be several, over the scale
        that margins have.
        """
        total = np.zeros((len(scores[0]), space.size))
        for own, labels, weight in zip(scores, spaces, weights.tolist(), strict=True):
            order = [labels.index[entry] for entry in space.entries]
            total += weight * self.probabilities(own, labels)[:, order]
        total = np.clip(total, SMALLEST_PROB, None)
        if self.multi_label:
            logits: np.ndarray = np.log(total) - np.log(np.clip(1 - total, SMALLEST_PROB, None))
            return logits / space.scale
        return np.log(total) / space.scale

    def tune(self, scores: np.ndarray, targets: np.ndarray, space: ClassSpace) -> ClassSpace:
        """Fit the scale of margins and the threshold of several labels on held-out scores.

        The threshold is the one with the best micro-F1.
        """
        if self.loss_kind != "cross-entropy":
            space = replace(space, scale=fit_scale(scores, targets))
        if not self.multi_label or not np.any(targets):
            return space
        probs = self.probabilities(scores, space)
        return replace(space, threshold=best_threshold(probs.ravel(), np.ravel(targets) > 0))

    def build_metric(self, space: ClassSpace) -> ClassificationMetric | MultiLabelMetric:
        return (
            MultiLabelMetric(space.size) if self.multi_label else ClassificationMetric(space.size)
        )

    def _names(self, example: Example) -> tuple[str, ...]:
        label = example.label
        if isinstance(label, GoldAnswers):
            raise UserError(
                f"{example.where}: the label is an answer that stands in a second text, not a "
                "class. Use a recipe for such answers: --recipe bidaf, or bert-span."
            )
        if isinstance(label, (WordAnnotations, CharSpans)):
            raise UserError(
                f"{example.where}: something is known of every word here, not one label of the "
                "text. Use a recipe for tags: --recipe tagger-bilstm."
            )
        if not isinstance(label, tuple):
            return (str(label),)
        if not self.multi_label:
            raise UserError(
                f"{example.where}: several labels {list(label)} where one is expected. "
                "Pass --set task.multi_label=true to learn several labels a text."
            )
        return label

    def _look_up(self, name: str, example: Example, space: ClassSpace) -> int:
        if name in space.index:
            return space.index[name]
        known = ", ".join(space.entries[:MAX_LISTED_LABELS])
        rest = space.size - MAX_LISTED_LABELS
        more = f", … ({rest} more)" if rest > 0 else ""
        raise UserError(
            f"{example.where}: label '{name}' was not seen in training."
            f"{near_miss(name, space.entries)} Known: {known}{more}. Correct it, add it to the "
            f"training file, or {SKIP_HINT}."
        )


def best_threshold(probs: np.ndarray, right: np.ndarray) -> float:
    """Return the cut with the highest F1, half-way between two neighbouring probabilities.

    Of equally good cuts the one nearest 0.5 wins. One sort tries every distinct cut.
    """
    order = np.argsort(-probs, kind="stable")
    probs, right = probs[order], right[order]
    last = np.append(probs[1:] < probs[:-1], True)  # a cut cannot fall between equals
    f1 = 2 * np.cumsum(right)[last] / (np.arange(1, len(right) + 1)[last] + right.sum())
    upper = probs[last]
    lower = np.append(upper[1:], 0.0)
    cuts = (upper + lower) / 2
    cuts = np.where(cuts > lower, cuts, upper)  # neighbouring floats have no middle
    best = np.flatnonzero(f1 == f1.max())
    return float(cuts[best[np.abs(cuts[best] - 0.5).argmin()]])


def _answer_label_set(row: np.ndarray, space: ClassSpace) -> Answer:
    """Return every label above the threshold, most probable first."""
    chosen = row >= space.threshold
    order = np.argsort(-row, kind="stable")
    value = tuple(space.entries[i] for i in order.tolist() if chosen[i])
    whole = float(np.where(chosen, row, 1 - row).prod())
    return Answer(value, whole, scores=tuple(row.tolist()))


def _sort_key(entries: Iterable[str]) -> Callable[[str], tuple[float, str]]:
    """Return a key that sorts by value if every label is a number, else by letter."""
    if all(_is_number(entry) for entry in entries):
        return lambda entry: (float(entry), entry)
    return lambda entry: (0.0, entry)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
