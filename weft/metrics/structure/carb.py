"""Tuples of open information extraction, scored as CaRB does (Bhardwaj et al. 2019).

A tuple counts as predicate, first argument, and all others as one. Precision matches each tuple
with one gold tuple at most, greedily by precision; recall takes the best tuple of each gold one.
Words are compared as they are written.

R resamples   E tuples of all sentences   n sentences
"""

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.metrics.bootstrap import draw_resamples, percentile_interval
from weft.metrics.value import MetricRepr, MetricValue
from weft.text.annotation.frames import Extraction, Extractions

CONTEXT_MARK = "C: "  # a gold argument with it is context, which is not scored
BE = frozenset({"be", "is", "am", "are", "was", "were", "been", "being"})
REPORTING = ("said", "told", "added", "adds", "says")  # their arguments may be swapped
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Words = tuple[list[str], ...]  # of a predicate and at most two arguments


@dataclass(frozen=True)
class Curve:
    """Precision and recall at each confidence, from the lowest to the highest."""

    precision: np.ndarray
    recall: np.ndarray
    confidence: np.ndarray

    @property
    def f1(self) -> np.ndarray:
        total = self.precision + self.recall
        return np.where(total > 0, 2 * self.precision * self.recall / np.maximum(total, 1e-300), 0)

    @property
    def area(self) -> float:
        """The area under the curve from recall 0, where precision is 1."""
        recall, precision = np.append(self.recall, 0.0), np.append(self.precision, 1.0)
        if len(recall) < 2:
            return 0.0
        return float(((recall[:-1] - recall[1:]) * (precision[:-1] + precision[1:]) / 2).sum())


@dataclass(frozen=True)
class SentenceCurve:
    """The gain of a sentence at each of its confidences, from the highest to the lowest."""

    gold: int  # gold tuples
    steps: tuple[tuple[float, float, int, float], ...]  # confidence; precision, tuples, recall


def match_tuples(predicted: Extraction, gold: Extraction) -> tuple[float, float]:
    """Return the fractions of the words of a tuple that are right, and of gold words found."""
    wanted, ours = _split(gold), _split(predicted)
    best = _match_words(ours, wanted)
    if len(ours) == 3 and any(verb in gold.predicate for verb in REPORTING):
        rest = [word for argument in predicted.arguments[1:] for word in argument.split()]
        swapped = (ours[0], rest, predicted.arguments[0].split())
        best = max(best, _match_words(swapped, wanted))
    return best


def _split(one: Extraction) -> Words:
    """Return the words of predicate, first argument, and all others as one."""
    arguments = [argument.split() for argument in one.arguments]
    rest = [[word for own in arguments[1:] for word in own]] if len(arguments) > 1 else []
    return (one.predicate.split(), *arguments[:1], *rest)


def _match_words(ours: Words, gold: Words) -> tuple[float, float]:
    left, shared = _common(ours[0], gold[0])
    if "be" in left and not BE.isdisjoint(gold[0]):
        shared += 1
    # A tuple that shares no word of the predicate, or lacks an argument, is no match at all.
    if not shared or len(ours) < len(gold):
        return 0.0, 0.0
    claimed, wanted = len(ours[0]), len(gold[0])
    for mine, theirs in zip(ours[1:], gold[1:], strict=False):
        shared += _common(mine, theirs)[1]
        claimed, wanted = claimed + len(mine), wanted + len(theirs)
    return shared / claimed if claimed else 0.0, shared / wanted if wanted else 0.0


def _common(ours: Sequence[str], gold: Iterable[str]) -> tuple[list[str], int]:
    """Return our words that are not in gold, and how many are."""
    left = list(ours)
    for word in gold:
        if word in left:
            left.remove(word)
    return left, len(ours) - len(left)


def score_sentence(predicted: Extractions, gold: Extractions) -> SentenceCurve:
    """Return the gain of the tuples of a sentence at each of their confidences."""
    wanted = [_without_context(one) for one in gold.tuples]
    ours = predicted.tuples
    confidences = [1.0 if one.confidence is None else one.confidence for one in ours]
    scores = np.array([[match_tuples(one, each) for one in ours] for each in wanted])
    steps, before = [], (0.0, 0, 0.0)
    for confidence in sorted(set(confidences), reverse=True):
        kept = [k for k, own in enumerate(confidences) if own >= confidence]
        now = (0.0, 0, 0.0)  # without gold, a sentence does not count
        if wanted:
            precision, recall = scores[:, kept, 0], scores[:, kept, 1]
            now = (_match_greedily(precision), len(kept), float(recall.max(1).sum()))
        steps.append((confidence, now[0] - before[0], now[1] - before[1], now[2] - before[2]))
        before = now
    return SentenceCurve(len(wanted), tuple(steps))


def _without_context(one: Extraction) -> Extraction:
    kept = tuple(argument for argument in one.arguments if CONTEXT_MARK not in argument)
    return Extraction(one.predicate, kept)


def _match_greedily(precision: np.ndarray) -> float:
    """Return the summed precision of pairs (gold, tuple), best first, each used once."""
    left, total = precision.copy(), 0.0
    for _ in range(min(left.shape)):
        best = int(left.argmax())  # the first of equals, by gold tuple
        row, column = divmod(best, left.shape[1])
        total += float(left[row, column])
        left[row], left[:, column] = -1.0, -1.0
    return total


class CarbScores(MetricRepr):
    """CaRB's scores: optimal F1 over confidences, its precision and recall, AUC, and last F1.

    `last_f1` is the F1 of all tuples. Intervals are over sentences that have gold tuples.
    """

    def __init__(self) -> None:
        self.sentences: list[SentenceCurve] = []

    def add(self, predicted: Sequence[Extractions], gold: Sequence[Extractions]) -> None:
        """Score the tuples of some sentences."""
        pairs = zip(predicted, gold, strict=True)
        self.sentences += [score_sentence(ours, wanted) for ours, wanted in pairs]

    def merge(self, other: "CarbScores") -> None:
        self.sentences += other.sentences

    @property
    def n(self) -> int:
        return sum(one.gold > 0 for one in self.sentences)

    def curve(self) -> Curve:
        """Return precision and recall at each confidence."""
        return self._prepare()(np.ones(len(self.sentences)))

    def _prepare(self) -> "_CurveSums":
        return _CurveSums(sorted(self.sentences, key=lambda one: (one.gold, one.steps)))

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        names = ("f1", "precision", "recall", "auc", "last_f1")
        if not self.n:
            return {name: MetricValue(0.0, 0.0, 0.0, 0) for name in names}
        sums = self._prepare()
        ones = np.ones(len(self.sentences), np.int64)
        whole = _summarise(sums(ones))
        drawn = [
            _summarise(sums(weights))
            for block in draw_resamples(ones, resamples, seed)
            for weights in block
        ]
        resampled = np.array(drawn).reshape(-1, len(names))
        return {
            name: percentile_interval(whole[k], resampled[:, k], self.n, level)
            for k, name in enumerate(names)
        }


class _CurveSums:
    """Curves of weighted sentences, from steps sorted once."""

    def __init__(self, sentences: Sequence[SentenceCurve]) -> None:
        self.gold = np.array([one.gold for one in sentences], float)  # (n,)
        owner = np.repeat(np.arange(len(sentences)), [len(one.steps) for one in sentences])
        steps = np.array([step for one in sentences for step in one.steps]).reshape(-1, 4)
        order = np.argsort(-steps[:, 0], kind="stable")
        self.owner, steps = owner[order], steps[order]
        last = np.append(np.diff(steps[:, 0]) != 0, True)[: len(steps)]
        self.ends = np.flatnonzero(last)[::-1]  # of runs of one confidence, lowest first
        self.confidence, self.added = steps[self.ends, 0], steps[:, 1:]  # (E, 3)

    def __call__(self, weights: np.ndarray) -> Curve:
        sums = np.cumsum(self.added * weights[self.owner, None], axis=0)[self.ends]
        right, claimed, found = sums.T
        # Without a tuple, precision is 1.
        precision = np.where(claimed > 0, right / np.maximum(claimed, 1), 1.0)
        return Curve(precision, found / max(weights @ self.gold, 1.0), self.confidence)


def _summarise(curve: Curve) -> tuple[float, ...]:
    if not len(curve.confidence):
        return (0.0,) * 5
    best = int(curve.f1.argmax())
    point = (curve.f1[best], curve.precision[best], curve.recall[best])
    return (*map(float, point), curve.area, float(curve.f1[0]))


def sentence_key(sentence: str) -> str:
    """Return a sentence without spaces and punctuation, by which CaRB finds its tuples."""
    text = sentence.replace(" ", "")
    for written, bracket in BRACKETS.items():
        text = text.replace(written, bracket)
    return text.translate(_PUNCTUATION)


def pair_by_sentence(
    predicted: Iterable[tuple[str, Extractions]], gold: Iterable[tuple[str, Extractions]]
) -> tuple[list[Extractions], list[Extractions]]:
    """Return the tuples of sentences in either file, predicted and gold; none where one is missing.

    Lines of one sentence belong together wherever they stand. Of two sentences with one key, the
    later counts, as in the script.
    """
    ours, wanted = _by_key(predicted), _by_key(gold)
    keys = [*wanted, *(key for key in ours if key not in wanted)]
    none = Extractions(())
    return [ours.get(key, none) for key in keys], [wanted.get(key, none) for key in keys]


def _by_key(sentences: Iterable[tuple[str, Extractions]]) -> dict[str, Extractions]:
    texts: dict[str, tuple[Extraction, ...]] = {}
    for text, found in sentences:
        texts[text] = texts.get(text, ()) + found.tuples
    return {sentence_key(text): Extractions(found) for text, found in texts.items()}
