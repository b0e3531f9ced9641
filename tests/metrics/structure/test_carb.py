"""CaRB's scores of tuples, against a slow version of its rules written by counting."""

import random
from itertools import pairwise

import pytest

from weft.errors import UserError
from weft.metrics.structure.carb import (
    CarbScores,
    match_tuples,
    pair_by_sentence,
    sentence_key,
)
from weft.text.annotation.frames import Extraction, Extractions
from weft.text.formats.semantics.extractions import read_gold_tuples

WORDS = ["Ann", "said", "is", "be", "saw", "dogs", "at", "noon"]


def extractions(*tuples):
    return Extractions(tuple(Extraction(p, tuple(a), c) for p, a, c in tuples))


def slow_match(ours, gold):
    """Precision and recall of a tuple by CaRB's rules, one word at a time."""

    def parts(one):
        arguments = list(one.arguments)
        return arguments[:1] + ([" ".join(arguments[1:])] if len(arguments) > 1 else [])

    def straight(arguments):
        left, right = ours.predicate.split(), 0
        claimed, wanted = len(left), len(gold.predicate.split())
        for word in gold.predicate.split():
            if word in left:
                left.remove(word)
                right += 1
        forms = {"be", "is", "am", "are", "was", "were", "been", "being"}
        right += "be" in left and bool(forms & set(gold.predicate.split()))
        if not right:
            return [0, 0]
        for k, theirs in enumerate(parts(gold)):
            wanted += len(theirs.split())
            if k >= len(arguments):
                return [0, 0]
            left = arguments[k].split()
            claimed += len(left)
            for word in theirs.split():
                if word in left:
                    left.remove(word)
                    right += 1
        return [right / claimed, right / wanted]

    found = straight(parts(ours))
    if any(verb in gold.predicate for verb in ("said", "told", "added", "adds", "says")):
        found = max(found, straight(parts(ours)[::-1]))
    return found


def slow_point(predicted, gold, threshold):
    """Precision and recall of the tuples at or above a confidence."""
    right = claimed = found = wanted = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        kept = [one for one in ours.tuples if one.confidence >= threshold]
        wanted += len(theirs.tuples)
        if not theirs.tuples or not kept:
            continue
        table = [[slow_match(one, each) for one in kept] for each in theirs.tuples]
        found += sum(max(cell[1] for cell in row) for row in table)
        claimed += len(kept)
        rows, columns = set(range(len(table))), set(range(len(kept)))
        while rows and columns:
            best = max((table[i][j][0], -i, -j) for i in rows for j in columns)
            right += best[0]
            rows.remove(-best[1])
            columns.remove(-best[2])
    return (right / claimed if claimed else 1), found / wanted


def draw_tuples(rng, scored):
    def phrase():
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 3)))

    return extractions(*(
        (phrase(), [phrase() for _ in range(rng.randint(1, 3))],
         rng.choice([0.2, 0.5, 0.7, 0.9]) if scored else None)
        for _ in range(rng.randint(0, 4))
    ))  # fmt: skip


def test_the_curve_and_its_scores_equal_those_of_a_slow_version():
    rng = random.Random(7)
    for _ in range(12):
        predicted = [draw_tuples(rng, True) for _ in range(7)]
        gold = [draw_tuples(rng, False) for _ in range(7)]
        scores = CarbScores()
        scores.add(predicted, gold)
        levels = sorted({one.confidence for each in predicted for one in each.tuples})
        points = [slow_point(predicted, gold, level) for level in levels]
        curve = scores.curve()
        assert curve.confidence.tolist() == levels
        assert curve.precision.tolist() == pytest.approx([p for p, _ in points])
        assert curve.recall.tolist() == pytest.approx([r for _, r in points])
        f1s = [2 * p * r / (p + r) if p + r else 0 for p, r in points]
        ends = [*points, (1, 0)]
        area = sum((a[1] - b[1]) * (a[0] + b[0]) / 2 for a, b in pairwise(ends))
        found = {name: one.value for name, one in scores.compute(resamples=0).items()}
        assert found["f1"] == pytest.approx(max(f1s))
        assert found["last_f1"] == pytest.approx(f1s[0])
        assert found["auc"] == pytest.approx(area)


def test_parts_add_up_to_the_whole_and_intervals_hold_the_value():
    rng = random.Random(3)
    pairs = [(draw_tuples(rng, True), draw_tuples(rng, False)) for _ in range(23)]
    whole, first, second = CarbScores(), CarbScores(), CarbScores()
    whole.add(*zip(*pairs, strict=True))
    second.add(*zip(*pairs[:9], strict=True))
    first.add(*zip(*pairs[9:], strict=True))
    first.merge(second)
    assert first.compute(50) == whole.compute(50)
    for one in whole.compute(200).values():
        assert one.low <= one.value <= one.high
        assert one.n == whole.n


def test_arguments_of_said_may_be_swapped_and_context_is_left_out():
    ours = Extraction("said", ("it rains", "Ann"))
    assert match_tuples(ours, Extraction("said", ("Ann", "it rains"))) == (1, 1)
    assert (
        match_tuples(Extraction("saw", ("b", "a")), Extraction("saw", ("a", "b"))) == (1 / 3,) * 2
    )
    scores = CarbScores()
    scores.add(
        [extractions(("saw", ["a", "b"], 1.0))], [extractions(("saw", ["a", "b", "C: c"], None))]
    )
    assert scores.compute(0)["f1"].value == 1


def test_nothing_predicted_or_nothing_counted_is_zero():
    scores = CarbScores()
    assert {one.value for one in scores.compute().values()} == {0}
    scores.add([Extractions(())], [extractions(("saw", ["a", "b"], None))])
    assert {one.value for one in scores.compute(10).values()} == {0}
    assert scores.n == 1


def test_sentences_are_found_without_spaces_and_punctuation():
    assert sentence_key("Ann -LRB- 3 -RRB- , ran .") == sentence_key("Ann (3), ran")
    one = extractions(("saw", ["a", "b"], 0.5))
    ours, gold = pair_by_sentence([("A b .", one), ("x", one), ("A b .", one)], [("A b", one)])
    assert [len(each.tuples) for each in ours] == [2, 1]
    assert [len(each.tuples) for each in gold] == [1, 0]


def test_gold_tuples_without_a_predicate_count_and_short_lines_do_not(tmp_path):
    path = tmp_path / "gold.tsv"
    lines = ["Ann saw a big dog\tsaw\tAnn\ta big dog", "Ann saw a big dog\t\tAnn\tdog"]
    path.write_text("\n".join([*lines, lines[0]]) + "\n", encoding="utf-8")
    (example,) = read_gold_tuples(path)
    assert [one.predicate for one in example.label.tuples] == ["saw", "", "saw"]
    path.write_text("\n".join([*lines, *lines, *lines, "Ann saw a big dog\tsaw"]), encoding="utf-8")
    with pytest.raises(UserError, match=r"gold\.tsv:7: too few columns"):
        list(read_gold_tuples(path))
