"""D8: arcs and labels of a dependency tree, and phrase-structure trees, each the best of all."""

from functools import cache
from itertools import product

import pytest
import torch

from weft.batch import Padded
from weft.decode.heads.biaffine import BiaffineScorer
from weft.decode.heads.span_constituency import NO_LABEL, SpanScorer

H, C = 6, 3


def is_tree(heads):
    """heads[i] is the head of word i + 1; 0 the root, which has one child."""
    if heads.count(0) != 1:
        return False
    for word in range(1, len(heads) + 1):
        seen = set()
        while word and word not in seen:
            seen.add(word)
            word = heads[word - 1]
        if word:
            return False
    return True


@pytest.mark.parametrize("seed", range(5))
def test_dependency_tree_has_the_highest_sum_of_biaffine_arcs(seed):
    torch.manual_seed(seed)
    scorer = BiaffineScorer(H, C, arc=5, label=4, dropout=0.0).eval()
    for weight in scorer.parameters():
        torch.nn.init.normal_(weight)
    n = 4
    with torch.no_grad():
        output = scorer(Padded(torch.randn(1, n, H), torch.tensor([n])))
        parse = scorer.decode(output, "tree", None)
    arcs = output.arcs[0].double().log_softmax(1)  # (T, T + 1) log P(head | word)
    trees = [heads for heads in product(range(n + 1), repeat=n) if is_tree(heads)]
    assert len(trees) == n ** (n - 1)  # Cayley, with a root
    best = max(trees, key=lambda heads: sum(arcs[i, h].item() for i, h in enumerate(heads)))
    assert tuple(parse.heads[0].tolist()) == best


@cache
def bracketings(start, end):
    if end - start == 1:
        return [((start, end),)]
    return [
        ((start, end), *left, *right)
        for split in range(start + 1, end)
        for left in bracketings(start, split)
        for right in bracketings(split, end)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_phrase_structure_has_the_highest_sum_of_labelled_spans(seed):
    """s(T) = Σ s(i, j, l); a span without a label scores 0, a sentence has one."""
    torch.manual_seed(seed)
    scorer = SpanScorer(H, C, hidden=7).eval()
    torch.nn.init.normal_(scorer.second.weight, std=2.0)
    n = 4
    with torch.no_grad():
        boundaries = scorer(Padded(torch.randn(1, n, H), torch.tensor([n])))
        spans = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
        zero = torch.zeros(len(spans), dtype=torch.long)
        start, end = (torch.tensor(x) for x in zip(*spans, strict=True))
        table = dict(zip(spans, scorer.scores(boundaries, zero, start, end).tolist(), strict=True))
        (tree,) = scorer.decode(boundaries)

    def best_label(span):
        choices = [*enumerate(table[span]), *([] if span == (0, n) else [(NO_LABEL, 0.0)])]
        return max(choices, key=lambda choice: choice[1])

    scored = {b: sum(best_label(span)[1] for span in b) for b in bracketings(0, n)}
    best = max(scored, key=scored.get)
    assert tree.score == pytest.approx(scored[best], abs=1e-5)
    expected = {(best_label(s)[0], *s) for s in best if best_label(s)[0] != NO_LABEL}
    assert set(tree.spans) == expected
