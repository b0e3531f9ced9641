"""Thresholds against a search over every cut, and the messages of goals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.metrics.thresholds import Goal, choose_threshold, parse_goal

DECISIONS = st.lists(
    st.tuples(st.sampled_from([0.05, 0.2, 0.4, 0.5, 0.7, 0.9, 0.99]), st.booleans()), min_size=1,
    max_size=25,
).filter(lambda pairs: any(right for _, right in pairs))  # fmt: skip


def scores(probs, right, cut):
    predicted = probs >= cut
    hits, said, true = (predicted & right).sum(), predicted.sum(), right.sum()
    return {"precision": hits / max(said, 1), "recall": hits / true, "f1": 2 * hits / (said + true)}


@given(DECISIONS, st.sampled_from(["f1", "recall=0.5", "recall=1", "precision=0.5", "precision=1"]))
def test_no_cut_serves_better(pairs, text):
    probs, right = (np.array(column) for column in zip(*pairs, strict=True))
    goal = parse_goal(text, "test")
    found = choose_threshold(probs, right, goal)
    mine = scores(probs, right, found.value)
    assert mine["precision"] == pytest.approx(found.precision)
    assert mine["recall"] == pytest.approx(found.recall)
    every = [scores(probs, right, cut) for cut in np.unique(probs)]
    if goal.metric == "f1":
        assert mine["f1"] == pytest.approx(max(one["f1"] for one in every))
        return
    enough = [one for one in every if one[goal.metric] >= goal.least]
    assert found.reaches(goal) is bool(enough)
    if not enough:
        assert mine[goal.metric] == pytest.approx(max(one[goal.metric] for one in every))
        return
    other = "precision" if goal.metric == "recall" else "recall"
    assert mine[other] == pytest.approx(max(one[other] for one in enough))


@pytest.mark.parametrize("text", ["recall", "recall=0", "recall=1.2", "recall=x", "f2", "", "f1=1"])
def test_a_goal_that_is_none_is_named(text):
    with pytest.raises(UserError, match=r"no goal of a threshold\. Known: f1, recall=NUMBER"):
        parse_goal(text, "task.threshold_for")


def test_goals_are_written_as_they_are_read():
    for text in ("f1", "recall=0.9", "precision=0.55"):
        assert str(parse_goal(text, "test")) == text
    assert parse_goal(" recall = 0.9 ", "test") == Goal("recall", 0.9)
