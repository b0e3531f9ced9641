"""Semantic roles by the rules of srl-eval.pl, the scorer of CoNLL-2005.

A continuation C-X belongs to the argument X that began last, and one without it is an X. An
argument is right when its label and all its parts are. V, the predicate itself, is not counted;
references R-X are arguments like others.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.metrics.bootstrap import safe_divide
from weft.metrics.classify import ClassScores, score_labels
from weft.metrics.sentence_counts import SentenceCounts, Statistic
from weft.metrics.value import MetricValue
from weft.text.annotation.frames import Frames, Predicate
from weft.text.annotation.schemes import Span

CONTINUATION = "C-"
EXCLUDED = frozenset({"V"})


@dataclass(frozen=True)
class Argument:
    """A labelled argument and its parts, in order; most have one."""

    label: str
    parts: tuple[tuple[int, int], ...]

    @property
    def extent(self) -> tuple[int, int]:
        """The first word, and the word after the last part."""
        return self.parts[0][0], self.parts[-1][1]


@dataclass(frozen=True)
class RolePrediction:
    """The roles of one sentence, for predicates that are given and for those that are predicted."""

    given: Frames
    found: Frames


def join_continuations(roles: Iterable[Span]) -> list[Argument]:
    """Return the arguments of a predicate, V included, each continuation with its argument."""
    arguments: list[Argument] = []
    latest: dict[str, int] = {}  # the argument of each label that began last
    for label, start, end in sorted(roles, key=lambda role: (role.start, -role.end)):
        base = label.removeprefix(CONTINUATION)
        if base != label and base in latest:
            head = arguments[latest[base]]
            arguments[latest[base]] = Argument(base, (*head.parts, (start, end)))
        else:
            latest[base] = len(arguments)
            arguments.append(Argument(base, ((start, end),)))
    return arguments


def match_arguments(predicted: Iterable[Span], gold: Iterable[Span]) -> list[list[Argument]]:
    """Return the right, the excess and the missed arguments of one predicate.

    Of gold arguments with the same extent only the last counts, as in the script.
    """
    wanted = {one.extent: one for one in join_continuations(gold)}
    right: list[Argument] = []
    excess: list[Argument] = []
    for one in join_continuations(predicted):
        if wanted.get(one.extent) == one:
            right.append(wanted.pop(one.extent))
        else:
            excess.append(one)
    both = (right, excess, list(wanted.values()))
    return [[one for one in some if one.label not in EXCLUDED] for some in both]


class RoleScores:
    """Precision, recall and F1 of arguments; of predicates and their senses.

    `f1` is that of CoNLL-2005: the predicates are given. `end_to_end_f1` is of predicates that the
    model finds itself: arguments of a wrong one are in excess, those of a missing one are missed
    (He et al. 2018). `sense_accuracy` is over the gold predicates. Intervals are over sentences.
    """

    # Right, predicted and gold: arguments given the predicates, arguments, predicates; and the
    # predicates with the right sense, those that have one, and those whose arguments are all right.
    WIDTH = 12

    def __init__(self) -> None:
        self.counts = SentenceCounts(self.WIDTH)
        self.correct: Counter[str] = Counter()  # by label, given the predicates
        self.predicted: Counter[str] = Counter()
        self.gold: Counter[str] = Counter()

    def add(self, predicted: Sequence[RolePrediction], gold: Sequence[Frames]) -> None:
        """Count the roles of some sentences."""
        for ours, theirs in zip(predicted, gold, strict=True):
            matches = self._match_given(ours.given, theirs)
            columns = zip(*(own for _, own in matches.values()), strict=True)
            right, claimed, true, perfect = map(sum, columns) if matches else (0, 0, 0, 0)
            found = self._count_found(ours.found, theirs, matches)
            words = {one.word for one in ours.found.predicates}
            wanted = {one.word for one in theirs.predicates}
            senses = {one.word: one.sense for one in ours.given.predicates}
            named = [one for one in theirs.predicates if one.sense]
            same = sum(senses.get(one.word) == one.sense for one in named)
            predicates = (len(words & wanted), len(words), len(wanted))
            self.counts.add((right, claimed, true, *found, *predicates, same, len(named), perfect))

    def _match_given(
        self, predicted: Frames, gold: Frames
    ) -> dict[int, tuple[Predicate, tuple[int, int, int, int]]]:
        """Return each gold predicate's prediction with its counts, and count roles by label.

        Counts are right, predicted and gold arguments, and whether all are right.
        """
        own = {one.word: one for one in predicted.predicates}
        out = {}
        for one in gold.predicates:
            prediction = own.get(one.word, Predicate(one.word, "", ()))
            right, excess, missed = match_arguments(prediction.roles, one.roles)
            self.correct.update(argument.label for argument in right)
            self.predicted.update(argument.label for argument in right + excess)
            self.gold.update(argument.label for argument in right + missed)
            both = len(right) + len(excess), len(right) + len(missed)
            out[one.word] = prediction, (len(right), *both, int(not excess and not missed))
        return out

    def _count_found(
        self,
        predicted: Frames,
        gold: Frames,
        matches: dict[int, tuple[Predicate, tuple[int, int, int, int]]],
    ) -> tuple[int, int, int]:
        """Return right, predicted and gold arguments of predicates that were found."""
        own = {one.word: one for one in predicted.predicates}
        right = claimed = true = 0
        for one in gold.predicates:
            given, counts = matches[one.word]
            prediction = own.pop(one.word, None)
            if prediction is given:
                right, claimed = right + counts[0], claimed + counts[1]
            elif prediction is not None:
                both, excess, _ = match_arguments(prediction.roles, one.roles)
                right, claimed = right + len(both), claimed + len(both) + len(excess)
            true += counts[2]
        claimed += sum(len(match_arguments(one.roles, ())[1]) for one in own.values())
        return right, claimed, true

    def merge(self, other: "RoleScores") -> None:
        self.counts.merge(other.counts)
        self.correct.update(other.correct)
        self.predicted.update(other.predicted)
        self.gold.update(other.gold)

    @property
    def n(self) -> int:
        return self.counts.n

    def per_class(self) -> dict[str, ClassScores]:
        """Precision, recall, F1 and support of each role given the predicates, by name."""
        return score_labels(self.correct, self.predicted, self.gold)

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        statistics: dict[str, Statistic] = {
            "f1": _f1(0),
            "precision": _ratio(0, 1),
            "recall": _ratio(0, 2),
            "end_to_end_f1": _f1(3),
            "predicate_f1": _f1(6),
            "sense_accuracy": _ratio(9, 10),
            "perfect_predicates": _ratio(11, 8),
        }
        return self.counts.compute(statistics, resamples, seed, level)


def _f1(first: int) -> Statistic:
    """Return F1 from the columns of right, predicted and gold counts."""
    return lambda sums: safe_divide(2 * sums[:, first], sums[:, first + 1] + sums[:, first + 2])


def _ratio(top: int, bottom: int) -> Statistic:
    return lambda sums: safe_divide(sums[:, top], sums[:, bottom])
