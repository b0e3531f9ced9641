"""Scores of semantic roles: the rules of srl-eval.pl, predicates and senses."""

import pytest

from weft.metrics.structure.roles import (
    Argument,
    RolePrediction,
    RoleScores,
    join_continuations,
    match_arguments,
)
from weft.text.annotation.frames import Frames, Predicate, read_frames
from weft.text.annotation.schemes import Span


def spans(*roles):
    return [Span(*role) for role in roles]


def score(predicted, gold, found=None):
    scores = RoleScores()
    given = read_frames(predicted)
    ours = given if found is None else read_frames(found)
    scores.add([RolePrediction(given, ours)], [read_frames(gold)])
    return {name: value.value for name, value in scores.compute(resamples=0).items()}


def test_continuations_join_the_argument_that_began_last():
    found = join_continuations(
        spans(("ARG1", 0, 2), ("V", 2, 3), ("ARG1", 3, 4), ("C-ARG1", 5, 7), ("C-ARG1", 8, 9))
    )
    assert found == [
        Argument("ARG1", ((0, 2),)),
        Argument("V", ((2, 3),)),
        Argument("ARG1", ((3, 4), (5, 7), (8, 9))),
    ]
    assert found[2].extent == (3, 9)


def test_a_continuation_without_its_argument_is_one():
    assert join_continuations(spans(("C-ARG2", 4, 6))) == [Argument("ARG2", ((4, 6),))]
    assert join_continuations(spans(("C-ARG2", 0, 1), ("C-ARG2", 3, 4))) == [
        Argument("ARG2", ((0, 1), (3, 4)))
    ]


def test_references_are_arguments_like_others_and_verbs_do_not_count():
    gold = spans(("R-ARG0", 0, 1), ("V", 1, 2), ("C-V", 3, 4))
    right, excess, missed = match_arguments(spans(("ARG0", 0, 1), ("V", 1, 2)), gold)
    assert (right, excess, missed) == (
        [], [Argument("ARG0", ((0, 1),))], [Argument("R-ARG0", ((0, 1),))],
    )  # fmt: skip


def test_all_parts_of_an_argument_must_be_right():
    gold = spans(("ARG1", 0, 2), ("C-ARG1", 4, 6))
    assert len(match_arguments(gold, gold)[0]) == 1
    whole = spans(("ARG1", 0, 6))  # the same extent in one part
    assert [len(some) for some in match_arguments(whole, gold)] == [0, 1, 1]
    shifted = spans(("ARG1", 0, 1), ("C-ARG1", 4, 6))
    assert [len(some) for some in match_arguments(shifted, gold)] == [0, 1, 1]
    other = spans(("ARG0", 0, 2), ("C-ARG0", 4, 6))
    assert [len(some) for some in match_arguments(other, gold)] == [0, 1, 1]


GOLD = [
    (1, "see.01", (("ARG0", 0, 1), ("V", 1, 2), ("ARG1", 2, 4))),
    (5, "run.02", (("V", 5, 6), ("ARG0", 6, 7))),
]


def test_given_predicates_are_the_official_scores():
    ours = [(1, "see.01", (("ARG0", 0, 1), ("V", 1, 2), ("ARG1", 2, 3))), (5, "run.01", ())]
    found = score(ours, GOLD)
    assert found["precision"] == pytest.approx(1 / 2)
    assert found["recall"] == pytest.approx(1 / 3)
    assert found["f1"] == pytest.approx(2 / 5)
    assert found["sense_accuracy"] == 0.5
    assert found["perfect_predicates"] == 0.0
    assert score(GOLD, GOLD)["perfect_predicates"] == 1.0


def test_arguments_of_wrong_predicates_are_in_excess_end_to_end():
    extra = (3, "tell.01", (("ARG0", 0, 2), ("V", 3, 4)))
    found = score(GOLD, GOLD, found=[GOLD[0], extra])
    assert found["f1"] == 1.0  # the script skips what is not asked
    assert found["end_to_end_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert found["predicate_f1"] == pytest.approx(2 * 1 / (2 + 2))


def test_a_missing_predicate_misses_its_arguments():
    found = score(GOLD[:1], GOLD)
    assert (found["precision"], found["recall"]) == (1.0, pytest.approx(2 / 3))
    assert found["sense_accuracy"] == 0.5


def test_merged_counts_are_those_of_all_sentences():
    parts = [RoleScores(), RoleScores()]
    both = RoleScores()
    other = Frames((Predicate(0, "go.01", (Span("V", 0, 1), Span("ARG1", 1, 3))),))
    for part, gold in zip(parts, (read_frames(GOLD), other), strict=True):
        prediction = RolePrediction(other, other)
        part.add([prediction], [gold])
        both.add([prediction], [gold])
    parts[0].merge(parts[1])
    assert parts[0].compute(50) == both.compute(50)
    assert parts[0].per_class() == both.per_class()
    assert parts[0].n == 2
    low_high = both.compute(200)["f1"]
    assert low_high.low <= low_high.value <= low_high.high
    assert set(both.per_class()) == {"ARG0", "ARG1"}


def test_sentences_without_predicates_score_nothing():
    assert score([], [])["f1"] == 0.0
    assert RoleScores().compute()["f1"].n == 0
