"""EM and F1 of answers, against the definition of SQuAD's scripts written out slowly."""

import string
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.metrics.squad import SquadMetric, normalise_answer, score_answer

WORDS = st.sampled_from(
    ["a", "The", "an", "theory", "Loom", "loom,", "--", "U.S.", "12", "İ", "’s"]
)
TEXTS = st.lists(WORDS, max_size=4).map(" ".join)


def slowly(text):
    """Lower case; characters of string.punctuation dropped; articles as whole words blanked."""
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    out, word = [], ""
    for c in kept + " ":
        if c.isalnum() or c == "_":
            word += c
            continue
        out.append(" " if word in ("a", "an", "the") else word)
        out.append(c)
        word = ""
    return " ".join("".join(out).split())


def version_1(said, right):
    em, f1 = [], []
    for one in right:
        p, g = slowly(said).split(), slowly(one).split()
        em.append(float(slowly(said) == slowly(one)))
        same = sum((Counter(p) & Counter(g)).values())
        if not same:
            f1.append(0.0)
            continue
        precision, recall = same / len(p), same / len(g)
        f1.append(2 * precision * recall / (precision + recall))
    return max(em), max(f1)


def version_2(said, right):
    right = [one for one in right if slowly(one)] or [""]
    em, f1 = [], []
    for one in right:
        p, g = slowly(said).split(), slowly(one).split()
        em.append(float(p == g))
        f1.append(float(p == g) if not p or not g else version_1(said, [one])[1])
    return max(em), max(f1)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_both_versions_are_the_definition(said, right):
    assert normalise_answer(said) == slowly(said)
    assert score_answer(said, right) == pytest.approx(version_1(said, right))
    assert score_answer(said, right, no_answer=True) == pytest.approx(version_2(said, right))
    assert score_answer(said, [], no_answer=True) == version_2(said, [])


@pytest.mark.parametrize(
    ("said", "right", "em", "f1"),
    [
        ("The Loom!", ["a loom"], 1, 1),
        ("the theory", ["theory of looms"], 0, 0.5),
        ("1,000", ["1000"], 1, 1),
        ("an-other", ["another"], 1, 1),  # punctuation goes before articles are looked for
        ("red red", ["red"], 0, 2 / 3),  # a word counts as often as both have it
        ("Lyon in France", ["Paris", "Lyon, France"], 0, 0.8),
        ("", ["Lyon"], 0, 0),
        ("the", ["the"], 1, 0),  # version 1.1 finds no common word
    ],
)
def test_known_cases(said, right, em, f1):
    assert score_answer(said, right) == (em, pytest.approx(f1))


@pytest.mark.parametrize(
    ("said", "right", "both"),
    [("", [], (1, 1)), ("Lyon", [], (0, 0)), ("", ["Lyon"], (0, 0)), ("the", ["the"], (1, 1))],
)
def test_no_answer(said, right, both):
    assert score_answer(said, right, no_answer=True) == both


def test_figures_merge_and_have_intervals():
    first, second = SquadMetric(), SquadMetric()
    first.add(["Lyon", "Bern"], [["Lyon"], ["Paris", "Bern old"]])
    second.add(["x"], [["y"]])
    first.merge(second)
    figures = first.compute(resamples=200)
    assert (figures["em"].value, figures["em"].n) == (pytest.approx(1 / 3), 3)
    assert figures["f1"].value == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert figures["f1"].low < figures["f1"].value < figures["f1"].high


def test_figures_of_either_kind_of_question():
    measure = SquadMetric(no_answer=True)
    measure.add(["Lyon", "", "", "x"], [["Lyon"], ["Bern"], [], []])
    found = {name: figure.value for name, figure in measure.compute(resamples=0).items()}
    assert found == {"em": 0.5, "f1": 0.5, "has_answer_f1": 0.5, "no_answer_f1": 0.5}
    measure.add(["Lyon"], [["Lyon"]])
    figures = measure.compute(resamples=0)
    assert figures["has_answer_f1"].value == pytest.approx(2 / 3)
    counts = {"em": 5, "f1": 5, "has_answer_f1": 3, "no_answer_f1": 2}
    assert {name: figure.n for name, figure in figures.items()} == counts
    assert np.isfinite(SquadMetric(no_answer=True).compute()["no_answer_f1"].value)
