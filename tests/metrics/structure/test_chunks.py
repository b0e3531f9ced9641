"""Spans against conlleval's definition and seqeval, tags against plain counting."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.metrics import Metric
from weft.metrics.structure.chunks import SpanF1
from weft.metrics.structure.tags import TagAccuracy
from weft.text.annotation import schemes

TYPES = ("PER", "LOC", "ORG")


def corrupted(seed: int, sentences: int = 47) -> tuple[list[list[str]], list[list[str]]]:
    """IOB tags, right ones and others, both with faults that conlleval must read its own way."""
    rng = random.Random(seed)
    every = ["O", *(f"{p}-{t}" for p in "BI" for t in TYPES)]
    gold, predicted = [], []
    for _ in range(sentences):
        tags = rng.choices(every, [6, 2, 1, 1, 3, 2, 1], k=rng.randint(1, 13))
        gold.append(tags)
        predicted.append([tag if rng.random() < 0.8 else rng.choice(every) for tag in tags])
    return predicted, gold


def parted(tag: str) -> tuple[str, str]:
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def begins(before: str, here: str) -> bool:
    """Tjong Kim Sang's startOfChunk, for IOB."""
    (last, kind), (prefix, own) = parted(before), parted(here)
    return prefix == "B" or (prefix == "I" and (last == "O" or kind != own))


def ends(before: str, here: str) -> bool:
    """Tjong Kim Sang's endOfChunk, for IOB."""
    (last, kind), (prefix, own) = parted(before), parted(here)
    return last != "O" and (prefix in ("B", "O") or kind != own)


def conlleval(predicted: list[list[str]], gold: list[list[str]]) -> dict[str, list[int]]:
    """Right, predicted and true chunks of each type, in one pass over the words as it does."""
    counts = {kind: [0, 0, 0] for kind in TYPES}
    for said, true in zip(predicted, gold, strict=True):
        inside = ""
        for i in range(len(true) + 1):
            (a, b), (c, d) = (
                (tags[i - 1] if i else "O", tags[i] if i < len(tags) else "O")
                for tags in (said, true)
            )
            if inside:
                ended = ends(a, b), ends(c, d)
                if all(ended) and parted(a)[1] == parted(c)[1]:
                    counts[inside][0] += 1
                if any(ended) or parted(b)[1] != parted(d)[1]:
                    inside = ""
            if begins(a, b) and begins(c, d) and parted(b)[1] == parted(d)[1]:
                inside = parted(b)[1]
            if begins(a, b):
                counts[parted(b)[1]][1] += 1
            if begins(c, d):
                counts[parted(d)[1]][2] += 1
    return counts


def measured(predicted: list[list[str]], gold: list[list[str]]) -> SpanF1:
    measure = SpanF1()
    pairs = zip(predicted, gold, strict=True)
    words = [(sum(map(str.__eq__, said, true)), len(true)) for said, true in pairs]
    each = (predicted, gold)
    measure.add(
        *([schemes.tags_to_spans(tags, "IOB2", "repair") for tags in rows] for rows in each), words
    )
    return measure


@pytest.mark.parametrize("seed", range(7))
def test_counts_are_those_of_conlleval(seed: int) -> None:
    predicted, gold = corrupted(seed)
    measure = measured(predicted, gold)
    counts = conlleval(predicted, gold)
    for kind, (right, said, true) in counts.items():
        counted = (measure.correct[kind], measure.predicted[kind], measure.gold[kind])
        assert counted == (right, said, true)
        one = measure.per_class()[kind]
        assert one.precision == pytest.approx(right / said)
        assert one.recall == pytest.approx(right / true)
        assert one.f1 == pytest.approx(2 * right / (said + true))
        assert one.support == true
    right, said, true = (sum(each) for each in zip(*counts.values(), strict=True))
    found = measure.compute(resamples=50)
    assert found["precision"].value == pytest.approx(right / said)
    assert found["recall"].value == pytest.approx(right / true)
    assert found["f1"].value == pytest.approx(2 * right / (said + true))
    words = [
        a == b for x, y in zip(predicted, gold, strict=True) for a, b in zip(x, y, strict=True)
    ]
    assert found["accuracy"].value == pytest.approx(np.mean(words))
    assert all(f.low < f.value < f.high and f.n == 47 for f in found.values())


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_seqeval(seed: int) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    predicted, gold = corrupted(seed)
    found = measured(predicted, gold).compute(resamples=0)
    for name in ("precision", "recall", "f1", "accuracy"):
        wanted = getattr(seqeval, f"{name}_score")(
            gold, predicted, **{} if name == "accuracy" else {"zero_division": 0}
        )
        assert found[name].value == pytest.approx(wanted), name
    report = seqeval.classification_report(gold, predicted, output_dict=True)
    for kind, one in measured(predicted, gold).per_class().items():
        wanted = [report[kind][key] for key in ("precision", "recall", "f1-score", "support")]
        assert [one.precision, one.recall, one.f1, one.support] == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["IOB2", "IOBES"])
@pytest.mark.parametrize("seed", range(3))
def test_strict_figures_are_those_of_seqeval(name: str, seed: int) -> None:
    """Strict: only spans that are written as the scheme writes them count."""
    scheme = pytest.importorskip("seqeval.scheme")
    from seqeval.metrics.v1 import precision_recall_fscore_support

    rng = random.Random(seed)
    each = corrupted(seed + 11)
    if name == "IOBES":

        def other(tag: str) -> str:
            return tag.replace("B-", "S-") if rng.random() < 0.5 else tag.replace("I-", "E-")

        each = tuple([[other(tag) for tag in tags] for tags in rows] for rows in each)
    predicted, gold = each
    measure = SpanF1()
    ours = {"IOB2": "IOB2", "IOBES": "BIOES"}[name]
    measure.add(*([schemes.tags_to_spans(tags, ours, "discard") for tags in rows] for rows in each))
    found = measure.compute(resamples=0)
    wanted = precision_recall_fscore_support(
        gold, predicted, average="micro", scheme=getattr(scheme, name)
    )
    for key, value in zip(("precision", "recall", "f1"), wanted, strict=False):
        assert found[key].value == pytest.approx(value)
    assert found["f1"].value > 0
    assert "accuracy" not in found  # nobody said how many words were right


def test_no_spans_at_all() -> None:
    measure: Metric = SpanF1()
    assert measure.compute()["f1"].n == 0
    measure.add([[]], [[]])
    assert measure.compute()["f1"].value == 0
    measure.add([[("A", 0, 1), ("A", 0, 1)]], [[("A", 0, 1)]])  # twice the same is one
    assert measure.compute(resamples=0)["f1"].value == 1


def test_a_span_must_agree_in_all_three() -> None:
    measure = SpanF1()
    gold = [("A", 2, 5)]
    measure.add([[("A", 2, 5)], [("B", 2, 5)], [("A", 1, 5)], [("A", 2, 6)]], [gold] * 4)
    assert measure.compute(resamples=0)["precision"].value == pytest.approx(1 / 4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 47))
def test_merged_is_counted_at_once(seed: int, cut: int) -> None:
    predicted, gold = corrupted(seed)
    whole = measured(predicted, gold)
    part = measured(predicted[cut:], gold[cut:])
    part.merge(measured(predicted[:cut], gold[:cut]))
    assert part.compute(resamples=7) == whole.compute(resamples=7)
    assert part.per_class() == whole.per_class()


GOLD = [[["N", "V", "N"], ["x", "y", "x"]], [["V"], ["y"]], [["D", "N"], ["z", "x"]]]
SAID = [[["N", "N", "N"], ["x", "y", "z"]], [["V"], ["y"]], [["D", "N"], ["z", "z"]]]
NEW = [[False, True, True], [True], [False, False]]


def test_tag_accuracies_of_a_worked_example() -> None:
    measure = TagAccuracy(["upos", "xpos"])
    measure.add(SAID, GOLD, NEW)
    wanted = {
        "upos": 5 / 6,
        "upos_sentences": 2 / 3,
        "upos_unknown": 2 / 3,
        "xpos": 4 / 6,
        "xpos_sentences": 1 / 3,
        "xpos_unknown": 2 / 3,
        "all": 3 / 6,
        "all_sentences": 1 / 3,
        "all_unknown": 1 / 3,
    }
    found = measure.compute(resamples=100)
    assert {name: f.value for name, f in found.items()} == pytest.approx(wanted)
    assert all(f.low <= f.value <= f.high and f.n == 3 for f in found.values())
    assert found["upos"].low < found["upos"].high
    assert measure.confusion("upos") == {("N", "N"): 3, ("V", "N"): 1, ("V", "V"): 1, ("D", "D"): 1}
    assert measure.confusion("xpos")["x", "z"] == 2


def test_one_column_and_nothing_known_of_unknown_words() -> None:
    measure = TagAccuracy(["upos"])
    measure.add([[["N", "V"]], [[]]], [[["N", "N"]], [[]]])  # an empty sentence is none
    found = measure.compute()
    assert set(found) == {"upos", "upos_sentences"}
    assert (found["upos"].value, found["upos"].n) == (0.5, 1)
    assert TagAccuracy(["upos"]).compute()["upos"].n == 0


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_merged_tags_are_counted_at_once(cut: int) -> None:
    whole, part, other = (TagAccuracy(["upos", "xpos"]) for _ in range(3))
    whole.add(SAID, GOLD, NEW)
    part.add(SAID[cut:], GOLD[cut:], NEW[cut:])
    other.add(SAID[:cut], GOLD[:cut], NEW[:cut])
    part.merge(other)
    assert part.compute() == whole.compute()
    assert part.confusion("xpos") == whole.confusion("xpos")
