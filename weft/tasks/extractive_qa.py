"""Extractive question answering: a question and a passage -> a span of the passage, or none.

n questions
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics.squad import SquadMetric, score_answer, token_f1
from weft.protocols import LabelSpace, Saved, Section
from weft.registry import register
from weft.tasks.annotation import Annotation
from weft.tasks.pair import TextPairTask
from weft.tasks.task import Answer, HeadLoss, Loss
from weft.text.example import Example, GoldAnswers, SkipCounter
from weft.text.formats.squad import check_answers, locate_in_passage
from weft.text.line_source import SKIP_HINT

if TYPE_CHECKING:
    from weft.batch import LabelledBatch

INSPECTED_QUESTIONS = 1000  # questions that say whether there are some without an answer
ANSWER_LABEL = "answer"  # what a drawing marks in a passage

# First and last step; the scores of this span, of none, and of all spans together.
SpanScores = tuple[int, int, float, float, float]
TokenProbs = tuple[tuple[int, int, float], ...]  # characters from, up to, probability


@dataclass(frozen=True)
class QASpace(LabelSpace):
    """Limits of answers, and the margin from which "no answer" is predicted."""

    longest: int
    no_answer: bool
    threshold: float = 0.0

    @property
    def size(self) -> tuple[int, bool]:
        return self.longest, self.no_answer

    def to_json(self) -> JsonObject:
        return {
            "longest": self.longest, "no_answer": self.no_answer, "threshold": self.threshold,
        }  # fmt: skip


class PassageWindow(NamedTuple):
    """One row of a passage: its question, and the character offsets of its steps."""

    text: int
    passage: str
    spans: np.ndarray  # (T, 2) characters from, up to; empty where a step is not of the passage


@dataclass(frozen=True)
class AnswerSpan:
    """The best span over all windows of a passage, and the score of "no answer"."""

    passage: str
    start: int
    end: int
    score: float  # of first and last step, added: comparable between windows
    nothing: float  # the lowest of "no answer" over the windows; -inf where it is not possible
    prob: float  # of this span among all spans of all windows
    no_answer_prob: float
    starts: TokenProbs = ()  # of every passage token as the first of an answer, where wanted
    ends: TokenProbs = ()  # and as the last

    @property
    def text(self) -> str:
        return self.passage[self.start : self.end]

    @property
    def margin(self) -> float:
        """The score of "no answer" minus the score of this span."""
        return self.nothing - self.score


def choose_spans(rows: Iterable[tuple[PassageWindow, SpanScores]], count: int) -> list[AnswerSpan]:
    """Return the best span over all windows of each of `count` questions.

    Raw scores are compared, as BERT's own code does; none counts with its lowest score.
    """
    windows: list[list[tuple[PassageWindow, SpanScores]]] = [[] for _ in range(count)]
    for window, best in rows:
        windows[window.text].append((window, best))
    none = AnswerSpan("", 0, 0, 0.0, 0.0, 0.0, 0.0)
    return [_choose_span(each) if each else none for each in windows]


def _choose_span(rows: Sequence[tuple[PassageWindow, SpanScores]]) -> AnswerSpan:
    window, (first, last, score, *_) = max(rows, key=lambda row: row[1][2])
    nothing = min(best[3] for _, best in rows)
    # That there is none in one window does not speak against what is found in another.
    whole = float(np.logaddexp.reduce([*(best[4] for _, best in rows), nothing]))
    start, end = int(window.spans[first][0]), int(window.spans[last][1])
    return AnswerSpan(
        window.passage, start, end, score, nothing,
        float(np.exp(score - whole)), float(np.exp(nothing - whole)),
    )  # fmt: skip


def boundary_probs(
    rows: Iterable[tuple[PassageWindow, np.ndarray]], count: int
) -> list[tuple[TokenProbs, TokenProbs]]:
    """Return p(start) and p(end) of every passage token, for each of `count` questions.

    A row has the logits (2, 1+T) of a window, "no answer" first. Softmax runs over all windows of a
    passage together, as `choose_spans` compares them; a token in several windows has the sum. Each
    distribution sums to 1, with what "no answer" has where it is possible.
    """
    windows: list[list[tuple[PassageWindow, np.ndarray]]] = [[] for _ in range(count)]
    for window, logits in rows:
        windows[window.text].append((window, logits.astype(np.float64)))
    return [_boundary_probs(each) if each else ((), ()) for each in windows]


def _boundary_probs(
    rows: Sequence[tuple[PassageWindow, np.ndarray]],
) -> tuple[TokenProbs, TokenProbs]:
    none = min((logits[:, 0] for _, logits in rows), key=lambda pair: float(pair.sum()))
    logits = np.concatenate([own[:, 1 : 1 + len(w.spans)] for w, own in rows], axis=1)
    spans = np.concatenate([window.spans for window, _ in rows])
    inside = np.isfinite(logits).all(0)
    if not inside.any():
        return (), ()
    places, owners = np.unique(spans[inside], axis=0, return_inverse=True)

    def distribute(row: np.ndarray, nothing: float) -> TokenProbs:
        probs = np.exp(row - np.logaddexp.reduce([*row, nothing]))
        sums = np.bincount(owners.reshape(-1), probs, len(places))
        return tuple((a, b, p) for (a, b), p in zip(places.tolist(), sums.tolist(), strict=True))

    starts, ends = logits[:, inside]
    return distribute(starts, none[0]), distribute(ends, none[1])


@register("task", "span")
class ExtractiveQA(TextPairTask[QASpace]):
    """The span of a passage that answers a question: extractive question answering.

    Answers have at most `max_answer_tokens` tokens. With `no_answer` some questions have none;
    how sure the model must be to say so is tuned on dev. Of several right answers the one given
    most often is learned, and all count in the measure.
    """

    head = "span"
    metric = "f1"
    is_structured = True
    has_references = True
    has_boundaries = True
    can_average = True

    def __init__(self, no_answer: bool = False, max_answer_tokens: int = 30) -> None:
        if max_answer_tokens < 1:
            raise UserError(
                f"task 'span': 'max_answer_tokens' should be at least 1, got {max_answer_tokens}."
            )
        self.no_answer, self.longest = no_answer, max_answer_tokens
        self.has_threshold = no_answer

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer `no_answer` from the first questions, unless configured."""
        if "no_answer" in settings:
            return {}
        first = (example.label for example in islice(examples, INSPECTED_QUESTIONS))
        return {"no_answer": any(label == GoldAnswers() for label in first)}

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example with its answers located in the passage."""
        example = super().prepare(example, tally)
        label, passage = example.label, example.other or ""
        if label is None:
            if self.no_answer:
                return replace(example, label=GoldAnswers())
            raise UserError(
                f"{locate_question(example)}: there is no answer. Fill it in, or {SKIP_HINT}; if "
                "there are questions without one, pass --set task.no_answer=true."
            )
        try:
            if isinstance(label, (str, tuple)):
                texts = (label,) if isinstance(label, str) else label
                return replace(example, label=locate_in_passage(texts, passage))
            if isinstance(label, GoldAnswers):
                check_answers(label, passage)
        except UserError as error:
            raise UserError(f"{locate_question(example)}: {error}") from None
        if label == GoldAnswers():
            self._answers(example)  # an error now, where rows can be left out
        return example

    def space(self, examples: Iterable[Example]) -> QASpace:
        """Return the limits of answers; raise a UserError if no question has an answer."""
        file, some = "input", False
        for example in examples:
            file = example.file or file
            some = some or bool(self._answers(example).texts)
        if not some:
            raise UserError(f"{file}: no question has an answer; there is nothing to learn.")
        return QASpace(self.longest, self.no_answer)

    def load_space(self, saved: Saved) -> QASpace:
        try:
            return QASpace(
                int(saved["longest"]), bool(saved["no_answer"]), float(saved["threshold"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The saved labels are damaged: {error!r}. Train again.") from error

    def _answers(self, example: Example) -> GoldAnswers:
        label = example.label
        if not isinstance(label, GoldAnswers):
            raise UserError(
                f"{locate_question(example)}: no answer that stands in the passage. Give SQuAD's "
                "JSON, or a table with the columns question, context and answer."
            )
        if not label.texts and not self.no_answer:
            raise UserError(
                f"{locate_question(example)}: this question has no answer. Set "
                f"task.no_answer = true, or {SKIP_HINT}."
            )
        return label

    def target(self, example: Example, space: QASpace) -> np.ndarray:
        """Return the character offsets (1, 2) of the answer to learn; (0, 2) for none."""
        answers = self._answers(example)
        given = Counter(zip(answers.starts, answers.texts, strict=True))  # the first of equals wins
        best = given.most_common(1)
        return np.array([[s, s + len(t)] for (s, t), _ in best], np.int64).reshape(-1, 2)

    def find_reference(self, example: Example) -> tuple[str, ...]:
        """Return all reference answers as they are in the file."""
        return self._answers(example).texts

    def locate_answer(self, target: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """Return the first and last step (2,) of an answer, by the offsets of the steps of a row.

        They are [-1, -1] without an answer, or if the row does not contain all of it.
        """
        none = np.full(2, -1, np.int64)
        real = np.flatnonzero(spans[:, 1] > spans[:, 0])
        if not len(target) or not len(real):
            return none
        start, end = target[0]
        if spans[real[0], 0] > start or spans[real[-1], 1] < end:
            return none
        own = real[(spans[real, 1] > start) & (spans[real, 0] < end)]
        return own[[0, -1]] if len(own) else none

    def loss(self, scores: HeadLoss, batch: "LabelledBatch") -> Loss:
        return Loss(*scores.loss(batch.target))

    def answers(self, scores: Sequence[AnswerSpan], space: QASpace) -> list[Answer]:
        """Return the text of each answer, "" for none, with its probability and offsets."""
        return [self._answer(one, space) for one in scores]

    def _answer(self, decoded: AnswerSpan, space: QASpace) -> Answer:
        unanswered = self._is_unanswered(decoded, space)
        places = () if unanswered else ((decoded.start, decoded.end),)
        seen = annotate_passage(decoded.passage, *places)
        prob = decoded.no_answer_prob if unanswered else decoded.prob
        return Answer(
            "" if unanswered else decoded.text,
            prob,
            tuple((*place, prob) for place in places),
            scores=(decoded.prob, decoded.no_answer_prob),
            structure=replace(seen, starts=decoded.starts, ends=decoded.ends),
            starts=decoded.starts,
            ends=decoded.ends,
        )

    def _is_unanswered(self, found: AnswerSpan, space: QASpace) -> bool:
        return not found.text or (space.no_answer and found.margin > space.threshold)

    def gold(self, example: Example, space: QASpace, predicted: Answer | None = None) -> Annotation:
        """Return the gold annotation: of several answers the one nearest to the predicted."""
        passage, answers = example.other or "", self._answers(example)
        learned = [(int(a), int(b)) for a, b in self.target(example, space)]
        if predicted is None or not learned:
            return annotate_passage(passage, *learned)
        others = [(s, s + len(t)) for s, t in zip(answers.starts, answers.texts, strict=True)]
        given = predicted.parts[0][:2] if predicted.parts else ()

        def nearness(place: tuple[int, int]) -> tuple[float, bool]:
            return token_f1(predicted.value, passage[slice(*place)]), place == given

        return annotate_passage(passage, max([*learned, *others], key=nearness))

    def predict_targets(self, scores: Sequence[AnswerSpan], space: QASpace) -> list[str]:
        return ["" if self._is_unanswered(one, space) else one.text for one in scores]

    def join_spaces(self, spaces: Sequence[QASpace], weights: np.ndarray) -> QASpace:
        """Return the limits of answers, with the mean threshold of "no answer"."""
        threshold = float(weights @ np.array([space.threshold for space in spaces]))
        return replace(spaces[0], threshold=threshold)

    def average(
        self,
        scores: Sequence[Sequence[AnswerSpan]],
        spaces: Sequence[QASpace],
        weights: np.ndarray,
        space: QASpace,
    ) -> list[AnswerSpan]:
        """Return the best span under the mean start and end distributions of the members."""
        from weft.tasks.average_spans import average_spans

        rows = zip(*scores, strict=True)
        return [average_spans(row, weights, space) for row in rows]

    def tune(
        self, scores: Sequence[AnswerSpan], targets: Sequence[Sequence[str]], space: QASpace
    ) -> QASpace:
        """Set the threshold of "no answer" with the highest F1 on held-out questions."""
        if not self.no_answer or not len(scores):
            return space
        f1 = np.array([
            [score_answer(answer, right, no_answer=True)[1] for answer in (best.text, "")]
            for best, right in zip(scores, targets, strict=True)
        ])  # fmt: skip
        margins = np.array([best.margin for best in scores])
        return replace(space, threshold=best_threshold(margins, f1[:, 0], f1[:, 1]))

    def build_metric(self, space: QASpace) -> SquadMetric:
        return SquadMetric(space.no_answer)


def annotate_passage(passage: str, *places: tuple[int, int]) -> Annotation:
    """Return a passage with its answer, if any, for drawing."""
    texts = tuple(passage[start:end] for start, end in places)
    spans = tuple((start, end, ANSWER_LABEL) for start, end in places)
    return Annotation(ANSWER_LABEL, texts, text=passage, spans=spans)


def best_threshold(margins: np.ndarray, answered: np.ndarray, silent: np.ndarray) -> float:
    """Return the margin up to which questions are answered that gives the highest mean score.

    It lies half-way between two neighbouring margins; of equally good ones the nearest to 0 wins.
    """
    order = np.argsort(margins, kind="stable")
    sizes = margins[order].astype(np.float64)
    gains = (answered - silent)[order]
    totals = np.concatenate([[0.0], np.cumsum(gains)])  # of answering so many
    apart = np.concatenate([[True], sizes[1:] > sizes[:-1], [True]])  # none falls between equals
    edges = np.concatenate([[sizes[0] - 1], sizes, [sizes[-1] + 1]])
    cuts = (edges[:-1] + edges[1:]) / 2
    good = np.flatnonzero(apart & (totals >= totals[apart].max() - 1e-9))
    return float(cuts[good[np.abs(cuts[good]).argmin()]])


def locate_question(example: Example) -> str:
    """Return 'file:line: question …', because one line can hold many questions."""
    return f"{example.where}: question '{example.id}'" if example.id else example.where
