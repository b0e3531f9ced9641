"""The agreement of two systems on the tuples of a sentence."""

from collections.abc import Iterable, Sequence

from weft.text.annotation.word_tuples import CharSpan, WordTuple

LocatedTuples = tuple[Sequence[WordTuple], Sequence[CharSpan]]  # and where their words stand
Parts = tuple[set[int], set[int], set[int]]  # where words of predicate, subject and others begin


def keep_agreed(ours: LocatedTuples, others: LocatedTuples, least: float) -> list[WordTuple]:
    """Return our tuples that are at least so much like one of the others."""
    wanted = [_parts(one, others[1]) for one in others[0]]
    return [one for one in ours[0] if measure_agreement(_parts(one, ours[1]), wanted) >= least]


def agree_on_all(ours: LocatedTuples, others: LocatedTuples, least: float) -> bool:
    """Return whether two systems found equally many tuples, and all of ours are like theirs."""
    kept = keep_agreed(ours, others, least)
    return len(kept) == len(ours[0]) == len(others[0])


def measure_agreement(own: Parts, others: Iterable[Parts]) -> float:
    """Return the F1 of the words of a tuple against the most similar of some others.

    A word agrees if it is in the same part. Predicates without a common word are not compared.
    """
    return max((_f1(own, other) for other in others if own[0] & other[0]), default=0.0)


def _parts(one: WordTuple, places: Sequence[CharSpan]) -> Parts:
    first, *rest = ({places[word][0] for word in part.words} for part in one.arguments)
    return {places[word][0] for word in one.predicate}, first, set[int]().union(*rest)


def _f1(own: Parts, other: Parts) -> float:
    shared = sum(len(a & b) for a, b in zip(own, other, strict=True))
    return 2 * shared / (sum(map(len, own)) + sum(map(len, other)))
