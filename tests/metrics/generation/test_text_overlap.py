"""BLEU and chrF are sacrebleu's to the last digit, for the corpus and for every resample."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UserError
from weft.metrics.generation.text_overlap import Bleu, Chrf
from weft.metrics.per_sentence import compare_paired

SAID = [
    "The cat sat on the mat .",
    "A man, aged 3.5, runs.",
    "no overlap whatsoever here",
    "der Hund bellt",
]
GOLD = [
    ["The cat is on the mat .", "There is a cat on the mat ."],
    ["A man aged 3.5 is running."],
    ["something else entirely", "nothing like it"],
    "Der Hund bellt laut.",
]

needs_sacrebleu = pytest.mark.skipif(find_spec("sacrebleu") is None, reason="needs sacrebleu")
words = st.lists(st.sampled_from(["a", "b", "c", "Dd", "e.", "3,5"]), max_size=9).map(" ".join)
pairs = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=5)


def score(metric, said, gold) -> float:
    """sacrebleu's corpus score, references as its streams."""
    streams = [
        [refs[i] if i < len(refs) else None for refs in gold] for i in range(max(map(len, gold)))
    ]
    return metric.corpus_score(said, streams).score


@needs_sacrebleu
@pytest.mark.parametrize(
    ("lowercase", "tokenize", "value", "signature"),
    [  # by sacrebleu 2.6.0
        (False, "13a", 23.936576804692443, "case:mixed|eff:no|tok:13a|smooth:exp"),
        (True, "13a", 27.901593935858266, "case:lc|eff:no|tok:13a|smooth:exp"),
        (True, "none", 29.239826879308694, "case:lc|eff:no|tok:none|smooth:exp"),
        (False, "char", 50.89565830099636, "case:mixed|eff:no|tok:char|smooth:exp"),
    ],
)
def test_bleu_and_signature(lowercase, tokenize, value, signature) -> None:
    measure = Bleu(lowercase, tokenize)
    measure.add(SAID, GOLD)
    assert measure.compute()["bleu"].value == pytest.approx(value, abs=1e-9)
    assert measure.signature.startswith(f"BLEU|nrefs:var|{signature}|version:2.")


@needs_sacrebleu
@pytest.mark.parametrize(
    ("lowercase", "order", "value", "signature"),
    [  # by sacrebleu 2.6.0
        (False, 0, 42.20029598768079, "chrF2|nrefs:var|case:mixed|eff:yes|nc:6|nw:0|space:no|"),
        (False, 2, 43.90571369534065, "chrF2++|nrefs:var|case:mixed|eff:yes|nc:6|nw:2|space:no|"),
        (True, 0, 43.756104600351556, "chrF2|nrefs:var|case:lc|eff:yes|nc:6|nw:0|space:no|"),
    ],
)
def test_chrf_and_signature(lowercase, order, value, signature) -> None:
    measure = Chrf(lowercase, order)
    measure.add(SAID, GOLD)
    assert measure.compute()["chrf"].value == pytest.approx(value, abs=1e-9)
    assert measure.signature.startswith(signature)


@needs_sacrebleu
@settings(max_examples=150, deadline=None)
@given(pairs)
def test_any_corpus_scores_as_sacrebleu_does(corpus) -> None:
    from sacrebleu.metrics import BLEU, CHRF

    said, gold = [one for one, _ in corpus], [refs for _, refs in corpus]
    for measure, metric, name in (
        (Bleu(), BLEU(), "bleu"),
        (Chrf(), CHRF(), "chrf"),
        (Chrf(words=2), CHRF(word_order=2), "chrf"),
    ):
        measure.add(said, gold)
        found = measure.compute(resamples=0)[name].value
        assert found == pytest.approx(score(metric, said, gold), abs=1e-9)


@needs_sacrebleu
def test_one_reference_each_is_said_and_merging_keeps_it() -> None:
    measure, more = Bleu(), Bleu()
    measure.add(["a b"], ["a b"])
    more.add(["c d", "e"], [["c d"], "e"])
    measure.merge(more)
    assert "nrefs:1|" in measure.signature
    more.add(["a"], [["a", "b"]])
    measure.merge(more)
    assert "nrefs:var|" in measure.signature
    assert measure.n == 6


@needs_sacrebleu
def test_interval_and_paired_test_recompute_the_corpus_score() -> None:
    from sacrebleu.metrics import BLEU

    rng = np.random.default_rng(0)
    vocabulary = np.array(["the", "cat", "sat", "on", "a", "mat", "dog"])
    gold = [" ".join(rng.choice(vocabulary, 11)) for _ in range(31)]

    def noisy(share: float) -> list[str]:
        return [
            " ".join(w if rng.random() > share else "and" for w in line.split()) for line in gold
        ]

    good, bad = noisy(0.1), noisy(0.3)
    measures = [Bleu(tokenize="none") for _ in range(2)]
    for measure, said in zip(measures, (good, bad), strict=True):
        measure.add(said, gold)
    metric, values, gaps = BLEU(tokenize="none", force=True), [], []
    for _ in range(300):
        pick = rng.integers(0, 31, 31)
        a, b = (score(metric, [s[i] for i in pick], [[gold[i]] for i in pick]) for s in (good, bad))
        values.append(a)
        gaps.append(a - b)
    figure = measures[0].compute(resamples=4000)["bleu"]
    found = compare_paired(*measures, "bleu")
    slack = 0.2 * (figure.high - figure.low)
    low, high = np.quantile(values, [0.025, 0.975])
    assert (figure.low, figure.high) == pytest.approx((low, high), abs=slack)
    low, high = np.quantile(gaps, [0.025, 0.975])
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high), abs=slack)
    assert found.p < 0.01


@needs_sacrebleu
def test_unknown_tokenization_is_named() -> None:
    with pytest.raises(UserError, match=r"BLEU tokenization '13b'\. Did you mean '13a'\?"):
        Bleu(tokenize="13b")


def test_missing_sacrebleu_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.metrics", raising=False)
    for kind in (Bleu, Chrf):
        with pytest.raises(UserError, match="need sacrebleu: pip install sacrebleu"):
            kind()
