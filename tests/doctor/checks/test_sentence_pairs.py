"""Rows of two texts: what counts is the pair."""

import pytest

from weft.doctor.diagnose import examine
from weft.text.example import Example


def rows(*pairs):
    return [
        Example(text, label, file="f.tsv", line=i + 1, other=other)
        for i, (text, other, label) in enumerate(pairs)
    ]


def kinds(*splits):
    names = ("train", "test")
    sources = {n: (lambda rows=r: iter(rows)) for n, r in zip(names, splits, strict=False)}
    return {finding.kind: finding for finding in examine(sources, near=False).findings}


SAME = "a man is walking along the river"
OTHERS = ("a man walks beside some water", "nobody is near the river", "it rains on the river")


def test_one_text_in_several_pairs_is_no_copy():
    found = kinds(rows(*((SAME, other, str(i % 2)) for i, other in enumerate(OTHERS))))
    assert not {"duplicate", "conflict"} & set(found)


def test_a_pair_that_comes_again_is_one():
    found = kinds(rows((SAME, OTHERS[0], "x"), (SAME, OTHERS[1], "y"), (SAME, OTHERS[0], "y")))
    assert "repeats an earlier pair" in found["duplicate"].title
    assert found["conflict"].title == "1 pair has more than one label."
    assert found["conflict"].places[0].text == f"{SAME} ⟷ {OTHERS[0]}"


def test_pairs_leak_and_texts_do_not():
    train = rows((SAME, OTHERS[0], "x"), (SAME, OTHERS[1], "y"))
    assert "leak" not in kinds(train, rows((SAME, OTHERS[2], "x")))
    assert "leak" in kinds(train, rows((SAME, OTHERS[1], "y")))


def test_a_label_that_stands_for_no_agreement():
    pairs = [(f"{SAME} {i}", OTHERS[0], "-" if i in (3, 5) else "x") for i in range(7)]
    found = kinds(rows(*pairs))["no agreement"]
    assert found.level == "error"
    assert found.title == "2 pairs of train are labelled '-', which means no annotator agreement."
    assert [place.where for place in found.places] == ["f.tsv:4", "f.tsv:6"]
    assert "--on-bad-row skip" in found.fix
    alone = [Example(text, label, file="f.tsv", line=1) for text, _, label in pairs]
    assert "no agreement" not in kinds(alone)  # + and - may be classes of single texts


@pytest.mark.parametrize(
    ("other", "kind", "title"),
    [
        (f" {SAME.upper()}", "equal texts", "1 pair of train has the same text twice."),
        (" ", "no second text", "1 row of train has no second text."),
    ],
)
def test_second_texts_that_say_nothing(other, kind, title):
    good = [(f"{SAME} {i}", OTHERS[0], "x") for i in range(3)]
    assert kind not in kinds(rows(*good))
    assert kinds(rows(*good, (SAME, other, "y")))[kind].title == title
