"""Text classification: one label a text, or several.

n texts   C labels
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError, near_miss, unknown_name
from weft.jsonio import JsonObject
from weft.metrics import ClassificationMetric, MultiLabelMetric
from weft.metrics.hierarchy import HierarchicalMetric
from weft.metrics.thresholds import (
    Goal,
    Threshold,
    choose_threshold,
    load_threshold,
    parse_goal,
)
from weft.protocols import LabelSpace, Saved, Section, Task
from weft.registry import register
from weft.tasks.confidence.calibration import (
    MIN_ROWS,
    LossKind,
    check_loss,
    fit_scale,
    fit_temperature,
    sigmoid,
    softmax,
    uncalibrate,
)
from weft.tasks.confidence.table import ConfidenceTable, build_table, load_table
from weft.tasks.task import (
    Answer,
    LabelCheck,
    Loss,
    add_auxiliary_loss,
    check_auxiliary,
    without_auxiliary,
)
from weft.text.example import CharSpans, Example, GoldAnswers, WordAnnotations, sentence_label
from weft.text.label_tree import NO_NODE, SEPARATOR, LabelTree, check_path, looks_hierarchical
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
    scale: float = 1.0  # of logits or margins, 1 / temperature, so that probabilities are right
    confidence: ConfidenceTable | None = None  # of held-out texts
    out_of_scope: str = ""  # label of texts that none of the others fits; "": there is none
    rejection: float = 0.0  # out of scope if the best label in scope is no more probable
    separator: str = ""  # between the levels of labels that are paths in a tree
    positive: str = ""  # of two labels: the one that is predicted from the threshold on
    reached: Threshold | None = None  # what the threshold led to on dev, if it has a goal
    class_counts: tuple[int, ...] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        return len(self.entries)

    @cached_property
    def index(self) -> dict[str, int]:
        return {entry: i for i, entry in enumerate(self.entries)}

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """The labels, and the out-of-scope label behind them if training had none of it."""
        extra = self.out_of_scope and self.out_of_scope not in self.index
        return (*self.entries, self.out_of_scope) if extra else self.entries

    @cached_property
    def outside(self) -> int | None:
        """The index of the out-of-scope label among the answers."""
        return self.answers.index(self.out_of_scope) if self.out_of_scope else None

    @cached_property
    def tree(self) -> LabelTree | None:
        return LabelTree(self.answers, self.separator) if self.separator else None

    def to_json(self) -> JsonObject:
        saved: JsonObject = {"entries": list(self.entries), "threshold": self.threshold}
        if self.separator:
            saved["separator"] = self.separator
        if self.scale != 1:
            saved["scale"] = self.scale
        if self.confidence is not None:
            saved["confidence"] = self.confidence.to_json()
        if self.out_of_scope:
            saved |= {"out_of_scope": self.out_of_scope, "rejection": self.rejection}
        if self.positive:
            saved["positive"] = self.positive
        if self.reached is not None:
            saved["reached"] = asdict(self.reached)
        return saved


@register("task", "classify")
class Classify(Task[ClassSpace]):
    """One label a text, or several (`multi_label = true`).

    `loss` is cross-entropy, or a margin: the right label must beat the strongest wrong one by 1
    ("margin", Crammer and Singer 2001) or each of them ("margin-sum", Weston and Watkins 1999); of
    several labels, each is a hinge of its own. Margins are no log-probabilities: one scale, fitted
    on dev, makes probabilities of them. That of logits is a temperature (Guo et al. 2017).

    `auxiliary` weighs the loss of the language model that it starts from, which goes on to learn
    (Radford et al. 2018).

    With `hierarchy`, labels are paths in a tree, their levels split at `separator`: an answer is a
    path, the probability of an inner node is the sum over its subtree, and every level is measured.
    `ancestor_weight` weighs the loss of the inner nodes on the right path, −log of that sum.

    `threshold_for` is the goal of the decision threshold, which is chosen on dev: "f1", or the best
    precision at "recall=0.9", or the best recall at "precision=0.9". Of two labels, `positive` is
    predicted from the threshold on; the default is the rarer one in train. Of several labels a
    text, precision and recall are those of all decisions, and the goal is "f1" without a setting.
    """

    head = "linear"
    can_average = True
    has_classes = True
    has_confidence = True
    takes_weights = True

    def __init__(
        self,
        multi_label: bool = False,
        label_smoothing: float = 0.0,
        auxiliary: float = 0.0,
        loss: LossKind = "cross-entropy",
        hierarchy: bool = False,
        separator: str = " > ",
        ancestor_weight: float = 0.0,
        threshold_for: str = "",
        positive: str = "",
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise UserError(
                f"task 'classify': label_smoothing is {label_smoothing}; it goes from 0 to below 1."
            )
        check_loss("task 'classify'", loss, label_smoothing, multi_label)
        if hierarchy and (multi_label or threshold_for or loss != "cross-entropy"):
            other = "multi_label = true" if multi_label else f"loss = '{loss}'"
            other = f"threshold_for = '{threshold_for}'" if threshold_for else other
            raise UserError(
                f"task 'classify': hierarchy is for one label a text and cross-entropy, not for "
                f"{other}. Set hierarchy=false to learn flat labels."
            )
        if not separator.strip():
            raise UserError("task 'classify': separator is blank; give the mark between levels.")
        self.multi_label, self.loss_kind = multi_label, loss
        if not 0 <= ancestor_weight < math.inf:
            raise UserError(f"task.ancestor_weight is a weight, 0 or more; got {ancestor_weight}.")
        self.hierarchy, self.separator = hierarchy, separator
        self.ancestor_weight = ancestor_weight
        self.smoothing, self.auxiliary = label_smoothing, check_auxiliary(auxiliary)
        self.metric = "micro_f1" if multi_label else "accuracy"
        self.goal = parse_goal(threshold_for, "task.threshold_for") if threshold_for else Goal()
        self.threshold_for, self.positive = threshold_for and str(self.goal), positive
        if positive and (multi_label or not threshold_for):
            reason = "one label a text" if multi_label else "a threshold: set task.threshold_for"
            raise UserError(f"task.positive = '{positive}' needs {reason}. Remove it.")
        self.has_threshold = multi_label or bool(threshold_for)

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer several labels a text, and a hierarchy, from the first, unless configured."""
        first = [example.label for example in islice(examples, INSPECTED_EXAMPLES)]
        several = any(isinstance(label, tuple) for label in first)
        out: dict[str, object] = {} if "multi_label" in settings else {"multi_label": several}
        flat = settings.get("multi_label", several) or "loss" in settings
        if "hierarchy" not in settings and not flat:
            out["hierarchy"] = looks_hierarchical(first, settings.get("separator", SEPARATOR))
        return out

    def space(self, examples: Iterable[Example]) -> ClassSpace:
        """Return the labels, sorted; by value if every label is a number."""
        seen = LabelCheck("label")
        entries = Counter(name for e in examples if seen.count(e) for name in self._names(e))
        seen.check()
        if len(entries) == 1:
            (only,) = entries
            raise UserError(
                f"{seen.file}: every example has the label '{only}'; a classifier needs at least "
                "two classes. Add examples of another class, or pass --label with another column."
            )
        if not entries:
            raise UserError(f"{seen.file}: every example has an empty set of labels.")
        names = tuple(sorted(entries, key=_sort_key(entries)))
        space = ClassSpace(
            names,
            separator=self.separator if self.hierarchy else "",
            class_counts=tuple(entries[name] for name in names),
        )
        if self.threshold_for and not self.multi_label:
            space = self.with_positive(space, self.positive, space.class_counts)
        return space

    @staticmethod
    def with_positive(space: ClassSpace, label: str, counts: Sequence[int]) -> ClassSpace:
        """Return the space of two labels with the positive one: by default the rarer."""
        if space.size != 2 or space.out_of_scope:
            extra = f" and '{space.out_of_scope}' for out of scope" if space.out_of_scope else ""
            raise UserError(
                f"task.threshold_for decides between two labels, or on several labels a text "
                f"(task.multi_label); here a text has one of {space.size} labels{extra}. Remove it."
            )
        if label and label not in space.index:
            raise unknown_name("label", label, space.entries, "task.positive")
        rarer = space.entries[0 if counts[0] < counts[1] else 1]
        return replace(space, positive=label or rarer)

    def load_space(self, saved: Saved) -> ClassSpace:
        try:
            scale = float(saved.get("scale", 1.0))
            space = ClassSpace(
                tuple(map(str, saved["entries"])), float(saved["threshold"]), scale,
                load_table(saved["confidence"]) if "confidence" in saved else None,
                str(saved.get("out_of_scope", "")), float(saved.get("rejection", 0.0)),
                str(saved.get("separator", "")),
                str(saved.get("positive", "")),
                load_threshold(saved["reached"]) if "reached" in saved else None,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The saved labels are damaged: {error!r}. Train again.") from error
        if len(space.index) < max(2, space.size):
            raise UserError("The saved labels are damaged: too few or repeated. Train again.")
        if not 0 < scale < math.inf:
            raise UserError(f"The saved labels are damaged: scale {scale}. Train again.")
        if space.positive and (space.size != 2 or space.positive not in space.index):
            raise UserError(
                f"The saved labels are damaged: positive '{space.positive}'. Train again."
            )
        if not 0 <= space.rejection <= 1:
            raise UserError(
                f"The saved labels are damaged: rejection {space.rejection}. Train again."
            )
        return space

    def with_out_of_scope(self, space: ClassSpace, label: str) -> ClassSpace:
        """Return the space with a label for texts that none of the others fits."""
        if self.threshold_for:
            raise UserError(
                "task.threshold_for and data.out_of_scope both decide what is rejected. Remove one."
            )
        if self.multi_label:
            raise UserError(
                "data.out_of_scope is for one label a text; of several labels, a text may have "
                "none. Remove it."
            )
        if len(set(space.entries) - {label}) < 2:
            raise UserError(
                f"data.out_of_scope: without '{label}' there are fewer than two labels. Name "
                "another."
            )
        return replace(space, out_of_scope=label)

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

    def classes(self, target: np.ndarray | int, space: ClassSpace) -> tuple[np.ndarray, ...]:
        return (np.flatnonzero(target) if self.multi_label else np.atleast_1d(target),)

    def loss(self, scores: "Tensor | WithAuxiliaryLM", batch: "LabelledBatch") -> Loss:
        """Return cross-entropy or hinge loss, summed over the labels if several, and the texts."""
        loss = self._label_loss(without_auxiliary(scores), batch)
        return add_auxiliary_loss(loss, scores, self.auxiliary, batch.row_weights)

    def _label_loss(self, scores: "Tensor", batch: "LabelledBatch") -> Loss:
        from weft.decode.label_losses import ancestor_loss, label_loss, label_set_loss

        loss = label_set_loss if self.multi_label else label_loss
        scores = scores.float()  # (n, C)
        total = loss(
            scores,
            batch.target,
            self.loss_kind,
            balance=batch.balance,
            smoothing=self.smoothing,
            row_weights=batch.row_weights,
        )
        if self.ancestor_weight and batch.levels is not None:
            total = total + self.ancestor_weight * ancestor_loss(
                scores, batch.target, batch.levels, batch.row_weights
            )
        return Loss(total, len(scores) if batch.row_weights is None else batch.count)

    def note(self, space: ClassSpace) -> str:
        notes = []
        if self.loss_kind != "cross-entropy":
            fitted = "fitted on dev" if space.scale != 1 else "not calibrated without dev examples"
            notes.append(f"probabilities are of margins × {space.scale:.3g}, {fitted}")
        if self.threshold_for:
            notes.append(self._describe_threshold(space))
        return "; ".join(notes)

    def _describe_threshold(self, space: ClassSpace) -> str:
        """Return what is predicted from which probability on, and what that reached on dev."""
        what = "labels are"
        if space.positive:
            rarer = "" if self.positive else " (the rarer class)"
            what = f"'{space.positive}'{rarer} is"
        decision = f"{what} predicted from a probability of {space.threshold:.3g} on"
        if space.reached is None:
            return f"{decision}; the threshold for {self.goal} was not tuned"
        reached = space.reached
        shown = f"precision {reached.precision:.3f} and recall {reached.recall:.3f} on dev"
        if reached.reaches(self.goal):
            return f"{decision}, for {self.goal}: {shown}, which has {reached.n:,} of them"
        return f"{decision}: {self.goal} cannot be reached on dev, this is the most; {shown}"

    def describe_confidence(self, space: ClassSpace) -> str:
        """Return what is known of the confidences, for the log of a run."""
        table = space.confidence
        if table is None or (table.n < MIN_ROWS and space.scale == 1):
            found = "no dev texts" if table is None else f"only {table.n} dev texts"
            return f"confidences are not calibrated: {found}, {MIN_ROWS} are needed; temperature 1"
        fitted = (
            f"temperature {1 / space.scale:.3g}, fitted on {table.n:,} dev texts"
            if space.scale != 1
            else f"temperature 1: a fitted one was no better on {table.n:,} dev texts, cross-fitted"
        )
        kept = [(a, table.coverage_at(a)) for a in (0.9, 0.95, 0.99)]
        shown = ", ".join(f"{c:.0%} of texts at {a:.0%}" for a, c in kept if c)
        promises = f"answers under a promise of accuracy: {shown or 'none'}"
        if space.out_of_scope and not space.rejection:
            promises += f"; no threshold for '{space.out_of_scope}': no dev text has this label"
        return f"{fitted}; {promises}"

    def answers(self, scores: np.ndarray, space: ClassSpace) -> list[Answer]:
        """Return the best label and its probability, or a set of labels, which may be empty.

        A set is ordered by probability; its score is the probability that exactly this set is
        right if the labels are independent.
        """
        probs = self.probabilities(scores, space)  # (n, C)
        if self.multi_label:
            return [_answer_label_set(row, space) for row in probs]
        best, confidences = _decide(probs, space)
        answers = [
            Answer(space.answers[i], confidence, scores=tuple(row.tolist()))
            for row, i, confidence in zip(probs, best.tolist(), confidences.tolist(), strict=True)
        ]
        return answers if space.tree is None else _with_paths(answers, probs, best, space.tree)

    def uncalibrated_score(self, answer: Answer, space: ClassSpace) -> float | None:
        """Return the probability of the answer at temperature 1; None if that is its score."""
        if space.scale == 1 or self.loss_kind != "cross-entropy" or self.multi_label:
            return None
        before = uncalibrate(np.array([answer.scores]), space.scale)[0]  # (C,)
        if space.positive:
            return float(before[space.index[str(answer.value)]])
        inside = _in_scope(before[None], space)[0].max()
        answered = answer.value == space.out_of_scope and bool(space.out_of_scope)
        return float(1 - inside if answered else before.max())

    def predict_targets(self, scores: np.ndarray, space: ClassSpace) -> np.ndarray:
        """Return the answer's index (n,), or rows of zeros and ones (n, C)."""
        predicted: np.ndarray
        if self.multi_label:
            predicted = (self.probabilities(scores, space) >= space.threshold).astype(np.int64)
        elif space.out_of_scope or space.positive:
            predicted, _ = _decide(self.probabilities(scores, space), space)
        else:
            predicted = scores.argmax(1)
        return predicted

    def probabilities(self, scores: np.ndarray, space: ClassSpace) -> np.ndarray:
        """Return scores (n, C) as probabilities: softmax over labels, or a sigmoid for each."""
        scores = np.asarray(scores, dtype=np.float64) * space.scale
        return sigmoid(scores) if self.multi_label else softmax(scores)

    def join_spaces(self, spaces: Sequence[ClassSpace], weights: np.ndarray) -> ClassSpace:
        """Return the first label space, with mean thresholds and without a scale.

        The confidence table of one member does not hold for the average, so there is none.
        """
        threshold = float(weights @ np.array([space.threshold for space in spaces]))
        rejection = float(weights @ np.array([space.rejection for space in spaces]))
        return replace(
            spaces[0], threshold=threshold, rejection=rejection, scale=1.0, confidence=None,
            reached=None,
        )  # fmt: skip

    def average(
        self,
        scores: Sequence[np.ndarray],
        spaces: Sequence[ClassSpace],
        weights: np.ndarray,
        space: ClassSpace,
    ) -> np.ndarray:
        """Return logits (n, C) whose probabilities are p̄ = Σ w_m p_m, label by label.

        They are log p̄, or log p̄ − log(1 − p̄) of each label if there may be several. A temperature
        of the ensemble comes on top.
        """
        total = np.zeros((len(scores[0]), space.size))
        for own, labels, weight in zip(scores, spaces, weights.tolist(), strict=True):
            order = [labels.index[entry] for entry in space.entries]
            total += weight * self.probabilities(own, labels)[:, order]
        total = np.clip(total, SMALLEST_PROB, None)
        if self.multi_label:
            logits: np.ndarray = np.log(total) - np.log(np.clip(1 - total, SMALLEST_PROB, None))
            return logits
        return np.log(total)

    def tune(self, scores: np.ndarray, targets: np.ndarray, space: ClassSpace) -> ClassSpace:
        """Choose on held-out scores what decides between labels.

        That is the threshold of several labels or of the positive one, by micro-F1 or the goal of
        `threshold_for`, or the probability below which a text is out of scope, by the F1 of the
        out-of-scope label.
        """
        if space.out_of_scope:
            return self._tune_rejection(scores, targets, space)
        if not self.multi_label and not space.positive:
            return space
        probs = self.probabilities(scores, space)
        wanted = np.asarray(targets) > 0  # (n, C), or below (n,)
        if space.positive:
            index = space.index[space.positive]
            probs, wanted = probs[:, index], np.asarray(targets) == index
        if not wanted.any():
            return space
        found = choose_threshold(probs.ravel(), wanted.ravel(), self.goal)
        reached = found if self.threshold_for else None
        return replace(space, threshold=found.value, reached=reached)

    def _tune_rejection(
        self, scores: np.ndarray, targets: np.ndarray, space: ClassSpace
    ) -> ClassSpace:
        outside = np.asarray(targets) == space.outside
        if not outside.any():
            return replace(space, rejection=0.0)
        probs = self.probabilities(scores, space)
        best = _in_scope(probs, space).max(1)
        # What is out of scope by its own class stays so at any threshold.
        own, _ = _decide(probs, replace(space, rejection=0.0))
        doubts = np.where(own == space.outside, 1.0, 1 - best)
        cut = choose_threshold(doubts, outside, Goal()).value
        return replace(space, rejection=max(0.0, 1 - cut))

    def calibrate(self, scores: np.ndarray, targets: np.ndarray, space: ClassSpace) -> ClassSpace:
        """Fit the temperature on held-out scores, and count errors by confidence.

        No label changes: thresholds of several labels move with the temperature.
        """
        known = np.ones(len(targets), bool) if self.multi_label else targets < space.size
        margins = self.loss_kind != "cross-entropy"
        fit = fit_scale if margins else fit_temperature
        scale = fit(scores[known], targets[known])
        if self.multi_label or space.positive:
            moved = sigmoid(scale / space.scale * _logit(space.threshold))
            space = replace(space, threshold=float(moved))
        space = replace(space, scale=scale)
        if space.out_of_scope:  # the best label's probability has changed
            space = self._tune_rejection(scores, targets, space)
        probs = self.probabilities(scores, space)
        predicted = self.predict_targets(scores, space)
        if self.multi_label:
            right = (predicted == (targets > 0)).all(1)
            confidences = np.where(predicted > 0, probs, 1 - probs).prod(1)
            return replace(space, confidence=build_table(confidences, right))
        _, confidences = _decide(probs, space)
        nonconformity = np.ones(len(targets))  # of a label that the model cannot score
        nonconformity[known] -= probs[known, targets[known]]
        if space.outside is not None:  # in a set if it is the answer, or probable enough
            nonconformity[(targets == space.outside) & (predicted == space.outside)] = 0
        table = build_table(confidences, predicted == targets, nonconformity)
        return replace(space, confidence=table)

    def build_metric(self, space: ClassSpace) -> ClassificationMetric | MultiLabelMetric:
        if self.multi_label:
            return MultiLabelMetric(space.size, pooled=bool(self.threshold_for))
        if space.tree is not None:
            return HierarchicalMetric(space.tree.path_ids, space.outside)
        positive = space.index[space.positive] if space.positive else None
        return ClassificationMetric(len(space.answers), space.outside, positive)

    def _names(self, example: Example) -> tuple[str, ...]:
        label = sentence_label(example.label)
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
            if self.hierarchy:
                check_path(str(label), self.separator, example.where)
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
        if name == space.out_of_scope:
            return space.size
        known = ", ".join(space.entries[:MAX_LISTED_LABELS])
        rest = space.size - MAX_LISTED_LABELS
        more = f", … ({rest} more)" if rest > 0 else ""
        raise UserError(
            f"{example.where}: label '{name}' was not seen in training."
            f"{near_miss(name, space.entries)} Known: {known}{more}. Correct it, add it to the "
            f"training file, or {SKIP_HINT}."
        )


def _decide(probs: np.ndarray, space: ClassSpace) -> tuple[np.ndarray, np.ndarray]:
    """Return the answer to each row of probabilities (n, C), and its confidence.

    Out of scope are texts whose best label in scope is too improbable (Hendrycks and Gimpel 2017)
    and those of the out-of-scope class, where training had one. Their confidence is the probability
    that is not on that label. Of two labels, a threshold decides on the positive one.
    """
    best = probs.argmax(1)
    confidences: np.ndarray = probs.max(1)
    if space.positive:
        index = space.index[space.positive]
        best = np.where(probs[:, index] >= space.threshold, index, 1 - index)
        return best, probs[np.arange(len(probs)), best]
    if space.out_of_scope:
        in_scope = _in_scope(probs, space).max(1)
        rejected = (best == space.outside) | (in_scope <= space.rejection)
        best = np.where(rejected, space.outside, best)
        confidences = np.where(rejected, 1 - in_scope, confidences)
    return best, confidences


def _in_scope(probs: np.ndarray, space: ClassSpace) -> np.ndarray:
    """Return the probabilities (n, C), 0 for the out-of-scope class."""
    if space.out_of_scope not in space.index:
        return probs
    probs = probs.copy()
    probs[:, space.index[space.out_of_scope]] = 0
    return probs


def _logit(prob: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        logit: np.ndarray = np.log(np.array(prob)) - np.log1p(-np.array(prob))
    return logit


def _with_paths(
    answers: Sequence[Answer], probs: np.ndarray, best: np.ndarray, tree: LabelTree
) -> list[Answer]:
    """Return answers with every level of their path and its probability."""
    above = tree.node_probs(probs)  # (n, N)
    return [
        replace(
            answer,
            path=tuple(
                (tree.nodes[node], min(1.0, float(row[node])))
                for node in tree.path_ids[i].tolist()
                if node != NO_NODE
            )
            if i < probs.shape[1]
            else ((answer.value, answer.score),),  # out of scope, which has no score of its own
        )
        for answer, row, i in zip(answers, above, best.tolist(), strict=True)
    ]


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
