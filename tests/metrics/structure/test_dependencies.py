"""Scores of dependency trees against the shared task's definition, written out word by word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UserError
from weft.metrics.structure.dependencies import CONTENT_RELATIONS, AttachmentScores

RELATIONS = ("root", "nsubj", "nsubj:pass", "obj", "det", "det:predet", "punct", "case", "dep")


def reference(predicted, gold) -> dict[str, float]:
    """The scorer's precision and recall of keys over aligned words, as its text describes them."""
    content = (
        "nsubj obj iobj csubj ccomp xcomp obl vocative expl dislocated advcl advmod discourse nmod "
        "appos nummod acl amod conj fixed flat compound list parataxis orphan goeswith reparandum "
        "root dep"
    )

    def words(sentences):
        return [
            (s, head, relation.split(":")[0])
            for s, (heads, relations) in enumerate(sentences)
            for head, relation in zip(heads, relations, strict=True)
        ]

    system, true = words(predicted), words(gold)

    def f1(key, counted=lambda word: True):
        right = sum(key(a) == key(b) for a, b in zip(system, true, strict=True) if counted(b))
        said, there = sum(map(counted, system)), sum(map(counted, true))
        precision, recall = right / said if said else 0, right / there if there else 0
        return 2 * precision * recall / (precision + recall) if right else 0.0

    return {
        "uas": f1(lambda word: word[1]),
        "las": f1(lambda word: word[1:]),
        "label": f1(lambda word: word[2]),
        "clas": f1(lambda word: word[1:], lambda word: word[2] in content.split()),
    }


def sentences(rng, count):
    gold, predicted = [], []
    for _ in range(count):
        n = int(rng.integers(1, 8))
        heads = rng.integers(0, n + 1, n)
        relations = rng.choice(RELATIONS, n)
        keep = rng.random((2, n)) < 0.7
        said = np.where(keep[0], heads, rng.integers(0, n + 1, n))
        named = np.where(keep[1], relations, rng.choice(RELATIONS, n))
        gold.append((heads, relations.tolist()))
        predicted.append((said.tolist(), named.tolist()))
    return predicted, gold


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 11))
def test_figures_are_the_definition(seed, count):
    predicted, gold = sentences(np.random.default_rng(seed), count)
    measure = AttachmentScores()
    measure.add(predicted, gold)
    found = {name: figure.value for name, figure in measure.compute(resamples=0).items()}
    assert found == pytest.approx(reference(predicted, gold))


def test_attachment_scores_of_a_worked_example():
    measure = AttachmentScores()
    gold = ([2, 3, 0, 3], ["det", "nsubj:pass", "root", "punct"])
    said = ([2, 3, 0, 2], ["det", "nsubj", "root", "obj"])
    measure.add([said], [gold])
    found = {name: figure.value for name, figure in measure.compute().items()}
    # The subtype does not count; content words are 2 in gold and 3 in the answer, 2 of them right.
    assert found == {"uas": 0.75, "las": 0.75, "label": 0.75, "clas": pytest.approx(4 / 5)}
    assert measure.compute()["las"].n == 1


def test_intervals_are_of_sentences():
    """One long sentence and one short: resampling words would give a far narrower interval."""
    measure = AttachmentScores()
    for n, right in ((30, 30), (10, 0)):
        heads = list(range(n))
        said = [head if i < right else head + 1 for i, head in enumerate(heads)]
        measure.add([(said, ["dep"] * n)], [(heads, ["dep"] * n)])
    uas = measure.compute(resamples=500)["uas"]
    assert (uas.value, uas.low, uas.high, uas.n) == (0.75, 0.0, 1.0, 2)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(0, 7))
def test_merging_equals_counting_at_once(seed, cut):
    predicted, gold = sentences(np.random.default_rng(seed), 7)
    whole, first, second = AttachmentScores(), AttachmentScores(), AttachmentScores()
    whole.add(predicted, gold)
    first.add(predicted[cut:], gold[cut:])
    second.add(predicted[:cut], gold[:cut])
    first.merge(second)
    assert first.compute(resamples=13) == whole.compute(resamples=13)


def test_nothing_counted_gives_zeros():
    for figure in AttachmentScores().compute().values():
        assert figure.to_json() == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}


def test_sentences_of_other_words():
    with pytest.raises(UserError, match=r"of 2 words is scored against one of 1\. Parse the words"):
        AttachmentScores().add([([0], ["root"])], [([0, 1], ["root", "dep"])])


def test_there_are_29_relations_of_content_words():
    assert len(CONTENT_RELATIONS) == 29
