"""Coreference metrics against definitions written out link by link and alignment by alignment."""

import random
from itertools import combinations, permutations

import pytest

from weft.metrics.structure.coreference import (
    CoreferenceScores,
    collect_chains,
    count_document,
)
from weft.text.annotation.frames import Coreference, Mention

NAMES = CoreferenceScores.NAMES


def chains(*letters):
    """Chains of one-word mentions: "ab" is a chain of the words 0 and 1."""
    return [tuple((ord(c) - 97, ord(c) - 96) for c in word) for word in letters]


def annotate(some):
    return Coreference(tuple(Mention(str(k), *m) for k, own in enumerate(some) for m in own))


def random_chains(seed):
    rng = random.Random(seed)
    spans = rng.sample([(i, j) for i in range(5) for j in range(i + 1, 6)], rng.randint(0, 9))
    entities = [rng.randrange(4) for _ in spans]
    return [tuple(s for s, k in zip(spans, entities, strict=True) if k == e)
            for e in sorted(set(entities))]  # fmt: skip


def slow_muc(some, others):
    """Links of a spanning tree of each chain, less those needed to join what others keep apart."""
    kept = total = 0
    for chain in some:
        parts = {next((o for o in others if m in o), (m,)) for m in chain}
        kept, total = kept + len(chain) - len(parts), total + len(chain) - 1
    return kept, total


def slow_b_cubed(some, others):
    mentions = [(m, chain) for chain in some for m in chain]
    kept = sum(
        len(set(chain) & set(next((o for o in others if m in o), ()))) / len(chain)
        for m, chain in mentions
    )
    return kept, len(mentions)


def slow_lea(some, others):
    links = lambda chain: set(combinations(sorted(chain), 2)) or {tuple(chain)}  # noqa: E731
    kept = sum(len(c) * sum(len(links(c) & links(o)) for o in others) / len(links(c)) for c in some)
    return kept, sum(map(len, some))


def slow_ceaf(some, others):
    small, large = sorted((some, others), key=len)
    phi = lambda a, b: 2 * len({*a} & {*b}) / (len(a) + len(b))  # noqa: E731
    return max(sum(map(phi, small, order)) for order in permutations(large, len(small)))


@pytest.mark.parametrize("seed", range(60))
def test_terms_are_those_of_the_definitions(seed):
    predicted, gold = random_chains(seed), random_chains(seed + 1000)
    _, muc, b_cubed, ceaf, lea = count_document(predicted, gold)
    assert muc == (*slow_muc(predicted, gold), *slow_muc(gold, predicted))
    assert b_cubed == pytest.approx(
        (*slow_b_cubed(predicted, gold), *slow_b_cubed(gold, predicted))
    )
    assert lea == pytest.approx((*slow_lea(predicted, gold), *slow_lea(gold, predicted)))
    best = slow_ceaf(predicted, gold)
    assert ceaf == pytest.approx((best, len(predicted), best, len(gold)))


def test_the_example_of_luo():
    # Luo (2005), figure 1: a chain of five, one of two, one of five; response (b).
    gold = chains("abcde", "fg", "hijkl")
    response = chains("abcde", "fghijkl")
    metric = CoreferenceScores()
    metric.add([annotate(response)], [annotate(gold)])
    found = metric.compute(resamples=0)
    assert found["muc_precision"].value == pytest.approx(0.9)
    assert found["muc_recall"].value == 1
    assert found["b_cubed_precision"].value == pytest.approx((5 + 25 / 7 + 4 / 7) / 12)
    assert found["ceaf_e_f1"].value == pytest.approx(2 * (1 + 10 / 12) / (2 + 3))
    f1 = [found[f"{name}_f1"].value for name in ("muc", "b_cubed", "ceaf_e")]
    assert found["conll"].value == pytest.approx(sum(f1) / 3)


def test_terms_are_summed_over_documents_before_dividing():
    one, two = random_chains(1), random_chains(2)
    gold = [random_chains(3), random_chains(4)]
    both = CoreferenceScores()
    both.add([annotate(one), annotate(two)], [*map(annotate, gold)])
    parts = [CoreferenceScores(), CoreferenceScores()]
    for part, ours, theirs in zip(parts, (one, two), gold, strict=True):
        part.add([annotate(ours)], [annotate(theirs)])
    parts[0].merge(parts[1])
    assert parts[0].n == both.n == 2
    assert parts[0].compute() == both.compute()
    terms = [count_document(a, b) for a, b in zip((one, two), gold, strict=True)]
    for k, name in enumerate(NAMES):
        top, bottom = (sum(own[k][i] for own in terms) for i in (0, 1))
        assert both.compute()[f"{name}_precision"].value == pytest.approx(top / max(bottom, 1))


def test_perfect_and_empty_answers():
    gold = chains("ab", "c", "def")
    metric = CoreferenceScores()
    metric.add([annotate(gold)], [annotate(gold)])
    assert all(one.value == 1 for one in metric.compute().values())
    empty = CoreferenceScores()
    empty.add([annotate([])], [annotate(gold)])
    assert all(one.value == 0 for one in empty.compute().values())


def test_a_span_of_two_entities_counts_once():
    mentions = (Mention("1", 0, 1), Mention("2", 0, 1), Mention("2", 3, 4), Mention("1", 3, 4))
    assert collect_chains(Coreference(mentions)) == [((0, 1),), ((3, 4),)]
