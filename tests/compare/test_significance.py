"""Paired tests on the answers that trials left behind."""

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score

from weft.compare.significance import (
    _answer_label_counts,
    answer_score,
    macro_f1,
    p_values,
    paired_macro_f1,
)
from weft.compare.trial import SplitSpec, Trial, _same_answer_note
from weft.config import Config


def trial(tmp_path, name: str, right: list[bool], seed: int = 1, fold: int | None = None) -> Trial:
    folder = tmp_path / f"{name}-{seed}-{fold}"
    folder.mkdir()
    rows = [{"text": "x", "label": "a", "value": "a" if good else "b"} for good in right]
    (folder / "predictions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return Trial(name, seed, fold, Config({}), SplitSpec(""), folder, "")


def test_a_large_gap_is_no_chance_and_a_small_one_may_be(tmp_path):
    rng = np.random.default_rng(7)
    best = list(rng.random(307) < 0.9)
    near = [good != (i < 3) for i, good in enumerate(best)]
    far = list(rng.random(307) < 0.6)
    trials = {n: [trial(tmp_path, n, r)] for n, r in (("best", best), ("near", near), ("far", far))}
    found = p_values(trials, "best")
    assert found.keys() == {"near", "far"}
    assert found["near"] > 0.05
    assert found["far"] < 0.001


def test_seeds_are_averaged_and_folds_added_up(tmp_path):
    good, bad = [True] * 40, [False] * 40
    a = [trial(tmp_path, "a", good, s, f) for s in (1, 2) for f in (1, 2)]
    b = [trial(tmp_path, "b", good if s == 1 else bad, s, f) for s in (1, 2) for f in (1, 2)]
    c = [trial(tmp_path, "c", good, 1, f) for f in (1, 2)]
    found = p_values({"a": a, "b": b, "c": c}, "a")
    assert found["c"] == pytest.approx(1.0)
    assert found["b"] < 0.001  # half right on each of 80 texts


def test_answers_that_cannot_be_paired_are_left_out(tmp_path):
    trials = {
        "a": [trial(tmp_path, "a", [True] * 5)],
        "b": [trial(tmp_path, "b", [True] * 4)],
    }
    assert p_values(trials, "a") == {}


@pytest.mark.parametrize(
    ("value", "label", "expected"),
    [
        ("a", "a", 1.0),
        ("a", "b", 0.0),
        (["a", "b"], ["b", "c"], 1 / 3),
        ([], ["b"], 0.0),
        (2.5, 3.0, -0.25),
        (2.5, "3", -0.25),
    ],
)
def test_the_score_of_one_answer(value, label, expected):
    assert answer_score(value, label) == pytest.approx(expected)


def rows(given: list, right: list) -> list[dict]:
    return [{"value": v, "label": r} for v, r in zip(given, right, strict=True)]


def test_a_collapsed_training_is_noticed():
    half = ["a", "b"] * 50
    assert _same_answer_note(iter(rows(["a"] * 100, half))) == (
        "it predicted 'a' for 100% of the test texts"
    )
    assert _same_answer_note(iter(rows(half, half))) == ""
    assert (
        _same_answer_note(iter(rows(["a"] * 100, ["a"] * 97 + ["b"] * 3))) == ""
    )  # nearly all are 'a'
    assert _same_answer_note(iter(rows([0.50001, 0.50002] * 9, list(range(18))))) != ""


def tagged(said: str, gold: str) -> dict:
    sides = [{"kind": "tags", "words": list(tags), "tags": list(tags)} for tags in (said, gold)]
    return {"value": list(said), "label": {}, "structure": sides[0], "gold": sides[1]}


def test_tagger_with_one_tag_has_collapsed():
    assert _same_answer_note(iter([tagged("NNNN", "NVDN")] * 5)) == (
        "it predicted 'N' for 100% of the test words"
    )
    assert _same_answer_note(iter([tagged("NVNN", "NVDN")] * 5)) == ""
    spans = {"kind": "spans", "words": ["a"], "spans": [[0, 1, "X"]]}
    row = {"value": [], "label": {}, "gold": spans, "structure": {**spans, "spans": []}}
    assert _same_answer_note(iter([row] * 3)) == "it found none of the 3 spans"


def test_macro_f1_is_tested_as_itself(tmp_path):
    """Two systems of equal accuracy: one never finds the rare label."""
    gold = ["a"] * 90 + ["b"] * 10
    blind = ["a"] * 100
    fair = ["b"] * 10 + ["a"] * 80 + ["b"] * 10
    places = {"a": 0, "b": 1}

    def of(said):
        pairs = zip(said, gold, strict=True)
        return np.array([_answer_label_counts({"value": s, "label": g}, places) for s, g in pairs])

    first, second = of(blind), of(fair)
    expected = [f1_score(gold, said, average="macro") for said in (blind, fair)]
    assert macro_f1(first.sum(0)[None])[0] == pytest.approx(expected[0])
    assert macro_f1(second.sum(0)[None])[0] == pytest.approx(expected[1])
    assert paired_macro_f1(first, second) < 0.01
    assert paired_macro_f1(first, first) == 1.0
