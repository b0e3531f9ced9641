"""Mistakes by label, what is taken for what, and the worst sentences first."""

import pytest

from weft.report.analysis.mistakes import LabelErrors
from weft.tasks.annotation import Annotation
from weft.text.example import Example


def tags(*labels):
    return Annotation("tags", tuple("abcdefg"[: len(labels)]), tags=labels)


def spans(*found):
    return Annotation("spans", ("a", "b"), ((0, 1), (2, 3)), "a b", spans=found)


def test_every_label_has_its_precision_and_recall_the_most_frequent_first():
    found = LabelErrors()
    found.add(Example("x"), tags("N", "N", "V", "N", "V"), tags("N", "V", "V", "N", "N"))
    by_label = found.by_label()
    assert list(by_label) == ["N", "V"]
    assert (by_label["N"].precision, by_label["N"].recall) == pytest.approx((2 / 3, 2 / 3))
    assert (by_label["V"].precision, by_label["V"].support) == (0.5, 2)
    assert found.most_confused(5) == [("N", "V", 1), ("V", "N", 1)]
    assert found.most_confused(1) == [("N", "V", 1)]
    assert found.units == ("words", "tags")


def test_worst_sentences_are_kept_in_order():
    found = LabelErrors(keep=2)
    for i, wrong in enumerate((1, 0, 3, 2)):
        gold = tags(*("N",) * 5)
        said = tags(*("V",) * wrong, *("N",) * (5 - wrong))
        found.add(Example("x", id=f"s{i}", file="f", line=i + 1), said, gold)
    assert [(bad.wrong, bad.where) for bad in found.worst] == [
        (3, "f:3: sentence 's2'"),
        (2, "f:4: sentence 's3'"),
    ]


def test_of_spans_one_too_many_is_a_mistake_as_well():
    found = LabelErrors(keep=3)
    found.add(Example("a b"), spans((0, 1, "X"), (2, 3, "Y")), spans((0, 1, "X")))
    found.add(Example("a b"), spans((0, 1, "X")), spans((0, 1, "X")))
    (bad,) = found.worst
    assert (bad.wrong, bad.total) == (1, 1)
    assert found.by_label()["Y"].precision == 0
    assert found.by_label()["X"].f1 == 1
