"""BLEU, NIST, ROUGE-L and CIDEr of E2E against slow versions by the definition and other tools."""

import math
from collections import Counter
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.metrics.generation.coco import Cider, CocoRouge, e2e_metrics, tokenise_caption
from weft.metrics.generation.ngrams import tokenise_mteval
from weft.metrics.generation.nist import MtevalBleu, Nist

SAID = [
    "the eagle the eagle is a cheap pub near the river",
    "a pub called the mill serves french food",
    "clowns",
]
GOLD = [
    ["the eagle is a pub by the river", "cheap pub near the river the eagle"],
    ["the mill is a french pub"],
    ["clowns is a coffee shop", "coffee at clowns", "the clowns coffee shop"],
]

words = st.lists(st.sampled_from(["a", "b", "C", "c", "d."]), max_size=9).map(" ".join)
pairs = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=5)


def windows(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def allowed(tokens, references, n):
    """Each n-gram of the tokens that some reference still has a use for, one by one."""
    best = {
        gram: max(windows(ref, n).count(gram) for ref in references) for gram in windows(tokens, n)
    }
    found = []
    for gram in windows(tokens, n):
        if best[gram] > 0:
            best[gram] -= 1
            found.append(gram)
    return found


def slow_bleu(said, gold) -> float:
    """Papineni et al. 2002 with the smoothing of mteval-v13a."""
    own = sum(map(len, said))
    closest = sum(
        sorted((abs(len(ref) - len(one)), len(ref)) for ref in refs)[0][1]
        for one, refs in zip(said, gold, strict=True)
    )
    logs, halved = [], 1.0
    for n in range(1, 5):
        total = sum(len(windows(one, n)) for one in said)
        right = sum(len(allowed(one, refs, n)) for one, refs in zip(said, gold, strict=True))
        if not total or (n == 1 and not right):
            return 0.0
        if not right:
            halved /= 2
        logs.append(math.log((right or halved) / total))
    return 100 * math.exp(sum(logs) / 4 + min(0, 1 - closest / own))


def slow_nist(said, gold) -> float:
    """Doddington 2002, equation 3 and the length penalty below it."""
    references = [ref for refs in gold for ref in refs]

    def count(gram):
        return sum(windows(ref, len(gram)).count(gram) for ref in references)

    total = sum(map(len, references))
    score = 0.0
    for n in range(1, 6):
        told = sum(
            math.log2((count(gram[:-1]) if n > 1 else total) / count(gram))
            for one, refs in zip(said, gold, strict=True)
            for gram in allowed(one, refs, n)
        )
        score += told / max(1, sum(len(windows(one, n)) for one in said))
    mean = sum(sum(map(len, refs)) / len(refs) for refs in gold)
    share = min(1.0, sum(map(len, said)) / mean) if mean else 0.0
    beta = math.log(0.5) / math.log(1.5) ** 2
    return score * math.exp(beta * math.log(share) ** 2) if share else 0.0


@settings(max_examples=150, deadline=None)
@given(pairs)
def test_bleu_and_nist_by_the_definition(corpus) -> None:
    said, gold = [one for one, _ in corpus], [refs for _, refs in corpus]
    tokens = [tokenise_mteval(one) for one in said]
    others = [[tokenise_mteval(ref) for ref in refs] for refs in gold]
    for measure, name, wanted in (
        (MtevalBleu(), "bleu", slow_bleu(tokens, others)),
        (Nist(), "nist", slow_nist(tokens, others)),
    ):
        measure.add(said, gold)
        assert measure.compute(resamples=0)[name].value == pytest.approx(wanted, abs=1e-9)


@pytest.mark.skipif(find_spec("sacrebleu") is None, reason="needs sacrebleu")
@settings(max_examples=50, deadline=None)
@given(pairs)
def test_bleu_is_that_of_sacrebleu_without_case(corpus) -> None:
    from weft.metrics.generation.text_overlap import Bleu

    ours, theirs = MtevalBleu(), Bleu(lowercase=True)
    for measure in (ours, theirs):
        measure.add([one for one, _ in corpus], [refs for _, refs in corpus])
    assert ours.table().tolist() == theirs.table().tolist()


def test_nist_of_one_reference_is_that_of_nltk() -> None:
    measure = Nist()
    measure.add(SAID, [refs[0] for refs in GOLD])
    assert measure.compute(resamples=0)["nist"].value == pytest.approx(2.4653633983551284)  # 3.10.4


def test_two_thirds_of_the_length_cost_half_of_nist() -> None:
    whole, short = Nist(), Nist()
    whole.add(["a b c", "d e f"], ["a b c", "d e f"])
    short.add(["a b c", "d"], ["a b c", "d e f"])
    told = math.log2(6)  # each word is one of six; longer n-grams tell nothing more
    assert whole.compute()["nist"].value == pytest.approx(told)
    assert short.compute()["nist"].value == pytest.approx(told / 2)


def test_words_of_mteval() -> None:
    text = 'A "man", aged 3.5 (or 1,000?), pays £20-25 & isn\'t well-off.&quot;\nOK <skipped>'
    wanted = 'A " man " , aged 3.5 ( or 1,000 ? ) , pays £20 - 25 & isn\'t well-off . " OK'
    assert tokenise_mteval(text, lowercase=False) == wanted.split()
    assert tokenise_mteval("The END") == ["the", "end"]


def test_captions_are_scored_as_by_the_coco_scripts() -> None:
    for measure, name, value in (  # by pycocoevalcap 1.2
        (CocoRouge(), "rouge_l", 0.5523291358776775),
        (Cider(), "cider", 2.26557380954759),
    ):
        measure.add(SAID, GOLD)
        assert measure.compute(resamples=0)[name].value == pytest.approx(value, abs=1e-12)
    assert measure.table()[:, 0] == pytest.approx([3.55967357, 1.97207642, 1.26497144])


def test_words_of_captions() -> None:  # by Stanford's PTB tokenizer 3.4.1, but £ is its #
    text = "It's a 5-star, kid-friendly café (U.K.): £20-25; can't cost 1,000.5... Tom’s isn't."
    wanted = "it 's a 5-star kid-friendly café u.k. £ 20-25 ca n't cost 1,000.5 tom 's is n't"
    assert tokenise_caption(text) == wanted.split()


def test_nothing_said_and_nothing_shared() -> None:
    measure = e2e_metrics()
    measure.add(["", "x y"], [["a b", ""], "c"])
    assert all(figure.value == 0 for figure in measure.compute(resamples=11).values())
    assert e2e_metrics().compute()["nist"].n == 0


def test_e2e_is_all_of_them_and_merges() -> None:
    whole, parts = e2e_metrics(), e2e_metrics()
    whole.add(SAID, GOLD)
    for said, gold in zip(SAID, GOLD, strict=True):
        part = e2e_metrics()
        part.add([said], [gold])
        parts.merge(part)
    found = whole.compute(resamples=37)
    assert parts.compute(resamples=37) == found
    assert list(found) == ["bleu", "nist", "rouge_l", "cider"]
    for kind, name in ((MtevalBleu, "bleu"), (Nist, "nist"), (Cider, "cider")):
        alone = kind()
        alone.add(SAID, GOLD)
        assert alone.compute(resamples=0)[name].value == pytest.approx(found[name].value)
    counts = Counter(figure.n for figure in found.values())
    assert counts == {3: 4}
