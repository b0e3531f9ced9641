"""Tasks about two texts: answers of classify and regress, and a second text that must be there."""

import numpy as np
import pytest

from weft import registry
from weft.errors import UserError
from weft.tasks.classify import ClassSpace
from weft.tasks.regress import LabelScale
from weft.text.example import Example, SkipCounter

KINDS = ["pair-classify", "pair-score"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_text_must_be_there(kind):
    task = registry.build("task", {"kind": kind})
    whole = Example("a", "1", file="f.tsv", line=7, other="b")
    assert task.pairs
    assert task.prepare(whole, SkipCounter()) is whole
    with pytest.raises(
        UserError, match=r"f\.tsv:7: no second text beside 'a'.*--text A --text-pair B"
    ):
        task.prepare(Example("a", "1", file="f.tsv", line=7), SkipCounter())
    with pytest.raises(UserError, match=r"f\.tsv:7: the second text is empty\. Fill it in"):
        task.prepare(Example("a", "1", file="f.tsv", line=7, other=" "), SkipCounter())


def test_no_agreement_is_no_class():
    task = registry.build("task", {"kind": "pair-classify"})
    told = (
        r"f\.tsv:7: the label is '-', which stands for no agreement.*--on-bad-row skip.*by a word"
    )
    with pytest.raises(UserError, match=told):
        task.prepare(Example("a", "-", file="f.tsv", line=7, other="b"), SkipCounter())


def test_classes_are_those_of_classify():
    task = registry.build("task", {"kind": "pair-classify", "label_smoothing": 0.1})
    space = task.space([Example("a", "yes", other="b"), Example("a", "no", other="c")])
    assert space == ClassSpace(("no", "yes"))
    assert task.smoothing == 0.1
    assert task.answers(np.array([[0.0, 3.0]]), space)[0].value == "yes"
    assert set(task.build_metric(space).compute(resamples=0)) == {
        "accuracy",
        "macro_f1",
        "matthews",
    }


def test_scores_keep_their_scale():
    task = registry.build("task", {"kind": "pair-score"})
    examples = [Example("a", str(v), other="b") for v in (1.0, 5.0, 3.0)]
    space = task.space(examples)
    assert isinstance(space, LabelScale)
    targets = np.array([[task.target(e, space)] for e in examples])
    assert [a.value for a in task.answers(targets, space)] == pytest.approx([1.0, 5.0, 3.0])
    assert set(task.build_metric(space).compute(resamples=0)) == {"pearson", "spearman", "mse"}
