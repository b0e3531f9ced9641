"""Explain an ensemble: its own probabilities while words are hidden, the mean of its members'
gradients and attention.

W words   M ways to hide some of them   C choices
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from weft.errors import UserError
from weft.explain.explanation import ExplainedWord, Explanation, Target, WordWeight
from weft.explain.targets.chain_label import ChainTarget
from weft.explain.targets.target import ScoredTarget, TargetRequest
from weft.explain.word_target import WordTarget
from weft.explain.words import Span
from weft.predict.ensemble import EnsembleEngine
from weft.predict.predictor import Predictor
from weft.text.example import Example

SMALLEST_PROB = 1e-300


def average_explanations(
    explained: Sequence[Sequence[Explanation]], own: Sequence[Explanation], weights: np.ndarray
) -> list[Explanation]:
    """Return the explanations of an ensemble: the mean of its members' weights, word by word.

    `own` has the ensemble's answers. A word that a member does not read has no weight there.
    """
    out = []
    for one, *row in zip(own, *explained, strict=True):
        sums: dict[Span, float] = {}
        for member, weight in zip(row, weights.tolist(), strict=True):
            for word in member.words:
                place = (word.start, word.end)
                sums[place] = sums.get(place, 0.0) + weight * word.weight
        words = tuple(WordWeight(*place, sums[place]) for place in sorted(sums))
        out.append(replace(one, words=words))
    return out


@dataclass(frozen=True)
class EnsembleWordTarget:
    """One word of a sentence under all members: the choices that all of them have there."""

    spots: Sequence["WordTarget | ChainTarget"]
    weights: np.ndarray

    def __post_init__(self) -> None:
        if len({(len(spot.words), spot.first) for spot in self.spots}) > 1:
            raise UserError(
                "The members of this ensemble split the sentence in other places. Shorten it."
            )

    @property
    def words(self) -> np.ndarray:
        """(W,) the steps that are words."""
        return self.spots[0].words

    @property
    def first(self) -> int:
        """The first word of the sentence that is read."""
        return self.spots[0].first

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """(C,) the numbers of the choices that no member forbids."""
        common = set.intersection(*(set(spot.choices) for spot in self.spots))
        return tuple(choice for choice in self.spots[0].choices if choice in common)

    def probs(self, hidden: np.ndarray) -> np.ndarray:
        """(M, C) the mean probabilities of the choices while words (M, W) are hidden."""
        total = np.zeros((len(hidden), len(self.choices)))
        for spot, weight in zip(self.spots, self.weights.tolist(), strict=True):
            order = [spot.choices.index(choice) for choice in self.choices]
            total += weight * spot.probs(hidden)[:, order]
        return total

    def scores(self, hidden: np.ndarray) -> np.ndarray:
        """(M, C) log p̄ of the choices while words (M, W) are hidden."""
        return np.log(np.maximum(self.probs(hidden), SMALLEST_PROB))

    def gradients(self, target: Target, steps: int) -> np.ndarray:
        """(W,) the mean share of each word by the members' gradients."""
        total = np.zeros(len(self.words))
        for spot, weight in zip(self.spots, self.weights.tolist(), strict=True):
            assert isinstance(spot, WordTarget)
            index = spot.choices.index(self.choices[target.index])
            own = Target(target.name, index, len(spot.choices), len(spot.choices) == 1)
            total += weight * spot.gradients(own, steps)
        return total

    def attention(self) -> np.ndarray:
        """(W,) the mean attention of the members."""
        looks = [spot.attention() for spot in self.spots if isinstance(spot, WordTarget)]
        return self.weights @ np.stack(looks)


@dataclass(frozen=True)
class EnsembleTarget(ScoredTarget):
    """The mean of the members' probabilities of one answer, token or span.

    Members may read different words; a word that one of them does not read changes nothing there.
    """

    targets: Sequence[ScoredTarget]
    weights: np.ndarray

    @property
    def text(self) -> str:  # type: ignore[override]  # read only
        return self.targets[0].text

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.targets[0].name

    @property
    def second(self) -> int:  # type: ignore[override]
        return self.targets[0].second

    @cached_property
    def spans(self) -> list[Span]:  # type: ignore[override]
        """The words that any member reads."""
        return sorted({(int(a), int(b)) for target in self.targets for a, b in target.spans})

    @cached_property
    def marks(self) -> list[Span]:  # type: ignore[override]
        marked = {(int(a), int(b)) for target in self.targets for a, b in target.marks}
        return sorted(marked - set(self.spans))

    @cached_property
    def _orders(self) -> list[list[int]]:
        """The index in `spans` of each word of each member."""
        numbers = {span: i for i, span in enumerate(self.spans)}
        return [[numbers[int(a), int(b)] for a, b in target.spans] for target in self.targets]

    def probs(self, hidden: np.ndarray) -> np.ndarray:
        pairs = zip(self.targets, self._orders, strict=True)
        return self.weights @ np.stack([target.probs(hidden[:, order]) for target, order in pairs])

    def log_probs(self, hidden: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(self.probs(hidden), SMALLEST_PROB))

    def gradients(self, steps: int) -> np.ndarray:
        return self._sum([target.gradients(steps) for target in self.targets])

    def attention(self) -> np.ndarray:
        return self._sum([target.attention() for target in self.targets])

    def _sum(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """(W,) the mean of the members' weights of each word."""
        total = np.zeros(len(self.spans))
        for own, order, weight in zip(values, self._orders, self.weights.tolist(), strict=True):
            np.add.at(total, order, weight * own)
        return total


@dataclass(frozen=True)
class EnsembleVectorTarget(EnsembleTarget):
    """The mean projection of the members' vectors, which has no logarithm."""

    def log_probs(self, hidden: np.ndarray) -> np.ndarray:
        return self.probs(hidden)


def joint_requests(
    predictor: Predictor, examples: Sequence[Example], task: str, word: str, target: str
) -> list[TargetRequest]:
    """Return what is explained of each example: the ensemble's answer span, token or vector."""
    assert isinstance(predictor.engine, EnsembleEngine)
    weights = predictor.engine.weights
    out = []
    for example in examples:
        requests = _member_requests(predictor, example, task, word, target)
        targets = [request.target for request in requests]
        joint = EnsembleVectorTarget if task == "embed" else EnsembleTarget
        at = _average_words([one.at for one in requests if one.at is not None], weights)
        out.append(TargetRequest(joint(targets, weights), requests[0].answer, at))
    return out


def _member_requests(
    predictor: Predictor, example: Example, task: str, word: str, target: str
) -> list[TargetRequest]:
    """Return the request of each member, all for the answer of the ensemble."""
    members = predictor.engine.members
    if task == "span":
        from weft.explain.targets.answer_span import request_answer

        (ready,) = (one for one in predictor.prepare_inputs([example]) if isinstance(one, Example))
        (answer,) = predictor([ready], parts=True)
        return [request_answer(member, ready, answer, target) for member in members]
    if task == "embed":
        from weft.explain.targets.sentence_vector import request_vector

        return [request_vector(member, example.text) for member in members]
    from weft.explain.targets.next_token import least_expected, request_token

    (answer,) = predictor([example.text])
    word = word or str(1 + least_expected(np.array(answer.scores)))
    return [request_token(member, example.text, answer, word, target) for member in members]


def _average_words(found: Sequence[ExplainedWord], weights: np.ndarray) -> ExplainedWord | None:
    """Return the explained word with the mean of the probabilities that all members name."""
    if not found:
        return None
    rows = [dict(one.probs) for one in found]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    means = {name: float(weights @ np.array([row[name] for row in rows])) for name in names}
    return replace(found[0], probs=tuple(means.items()))
