"""TF-IDF of two texts: what each family reads, and that the files hold it."""

import numpy as np
import pytest

from weft.classic.linear.pairs import OVERLAP_STEPS, PairTfIdf
from weft.errors import UserError
from weft.registry import build
from weft.tasks.pair import PairClassify
from weft.text.example import Example

PAIR = Example("The dog ran , fast", other="the dog slept")


def views(example=PAIR):
    model = PairTfIdf()
    return {name: model.view(name, [example])[0] for name in model.families}


def test_each_feature_family_reads_its_words():
    found = views()
    assert found["first"] == PAIR.text
    assert found["second"] == PAIR.other
    assert found["shared"] == "the dog"
    assert found["added"] == "slept"
    assert found["missing"] == "ran , fast"


def test_overlaps_are_staircases():
    steps = views()["overlap"].split()
    heights = {name: sum(s.rstrip("0123456789") == name for s in steps) - 1
               for name in ("words", "inside", "covered", "runs", "longer", "shorter")}  # fmt: skip
    assert heights == {
        "words": round(OVERLAP_STEPS * 2 / 6),
        "inside": round(OVERLAP_STEPS * 2 / 3),
        "covered": round(OVERLAP_STEPS * 2 / 5),
        "runs": round(OVERLAP_STEPS * 1 / 5),
        "longer": 0,
        "shorter": round(OVERLAP_STEPS * 2 / 5),
    }
    same = views(Example("a b", other="a b"))["overlap"].split()
    assert sum(s.startswith("words") for s in same) == OVERLAP_STEPS + 1
    assert views(Example("", other=""))["overlap"]


def test_overlap_decides_where_words_cannot(tmp_path):
    rng = np.random.default_rng(3)
    words = [f"w{i}" for i in range(97)]
    rows = []
    for i in range(83):
        own = rng.choice(words, 5, replace=False).tolist()
        other = own[::-1] if i % 2 else rng.choice(words, 5, replace=False).tolist()
        rows.append(Example(" ".join(own), "yes" if i % 2 else "no", other=" ".join(other)))
    task, model = PairClassify(), PairTfIdf(C=3.0)
    space = task.space(rows)
    targets = np.array([task.target(row, space) for row in rows])
    model.fit(rows[:61], targets[:61], task, space)
    scores = model.predict(rows[61:])
    assert (scores.argmax(1) == targets[61:]).mean() > 0.9
    model.save(tmp_path)
    again = PairTfIdf.load(tmp_path, {"kind": "tfidf-pair", "C": 3.0})
    np.testing.assert_array_equal(again.predict(rows[61:]), scores)


def test_words_are_needed():
    with pytest.raises(UserError, match="words"):
        build("classic", {"kind": "tfidf-pair", "words": []})
