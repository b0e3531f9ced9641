"""D9: a recursive network parses by greedy merging, p = tanh(W [c₁; c₂] + b), s = u · p.

Trained by the structured margin of Socher et al. (2011), s(ŷ) + κ · wrong spans − s(y), where ŷ is
found by greedy search with κ at every wrong span.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from weft.batch import Padded
from weft.decode.heads.greedy_merge import GreedyMerger
from weft.decode.heads.span_constituency import UNSEEN_LABEL, gold_spans
from weft.errors import UserError

E, H, C = 7, 3, 4  # state, node, labels
LENGTHS = [5, 3, 1, 2]
GOLD = [
    [(1, 0, 5), (0, 0, 2), (2, 2, 5), (3, 3, 4)],  # (w w) (w (w) w): a chain over one word
    [(0, 0, 3)],  # three children
    [(2, 0, 1)],
    [(UNSEEN_LABEL, 0, 2)],
]


@pytest.fixture(params=range(22))
def merger(request):
    torch.manual_seed(request.param // 2)
    update = ("tree", "max-violation")[request.param % 2]
    out = GreedyMerger(E, C, H, margin=0.3, update=update).eval()
    for weight in out.parameters():
        torch.nn.init.normal_(weight)
    return out


@pytest.fixture
def states():
    torch.manual_seed(97)
    data = torch.randn(len(LENGTHS), max(LENGTHS), E)
    for row, length in enumerate(LENGTHS):
        data[row, length:] = torch.nan  # padding is never read
    return Padded(data, torch.tensor(LENGTHS))


def leaves_of(merger, states, row):
    return [
        (merger.project.weight @ x + merger.project.bias).tanh()
        for x in states.data[row, : LENGTHS[row]]
    ]


def node(merger, left, right):
    """Return p = tanh(W [c₁; c₂] + b)."""
    return (merger.weight @ torch.cat([left, right]) + merger.bias).tanh()


def crosses(start, end, gold):
    return any(start < a < end < b or a < start < b < end for _, a, b in gold)


def greedy(merger, leaves, gold=(), cost=0.0):
    """Merge by hand: all pairs scored again at every step. Return (start, end) -> (p, s)."""
    u = merger.score.weight[0]
    row = [(i, i + 1, leaf) for i, leaf in enumerate(leaves)]
    made = {}
    while len(row) > 1:
        best = None
        for k, ((a, _, left), (_, b, right)) in enumerate(pairwise(row)):
            p = node(merger, left, right)
            s = u @ p
            key = s.item() + (cost if crosses(a, b, gold) else 0.0)
            if best is None or key > best[0]:
                best = key, k, a, b, p, s
        _, k, a, b, p, s = best
        made[a, b] = p, s
        row[k : k + 2] = [(a, b, p)]
    return made


def total(made):
    return sum((s for _, s in made.values()), torch.zeros(()))


def largest_violation(predicted, right, gold, margin):
    """Return the largest lead of ŷ over y after the first merges of both, 1 to all."""
    leads, lead = [torch.zeros(())], torch.zeros(())
    for ((a, b), (_, ours)), (_, theirs) in zip(predicted.items(), right.values(), strict=True):
        lead = lead + ours + margin * crosses(a, b, gold) - theirs
        leads.append(lead)
    if len(leads) > 1 and predicted.keys() != right.keys():
        assert max(leads[1:]) >= -1e-6
    return max(leads[1:], default=leads[0])


def slide_loss(merger, states):
    """Return the structured margin and the cross-entropy of the labels, written out."""
    margin, labels = torch.zeros(()), torch.zeros(())
    for row, gold in enumerate(GOLD):
        leaves = leaves_of(merger, states, row)
        right = greedy(merger, leaves, gold, cost=-np.inf)
        predicted = greedy(merger, leaves, gold, cost=merger.margin)
        wrong = sum(crosses(a, b, gold) for a, b in predicted)
        assert wrong or predicted.keys() == right.keys()
        if merger.update == "tree":
            margin = margin + total(predicted) + merger.margin * wrong - total(right)
        else:
            margin = margin + largest_violation(predicted, right, gold, merger.margin)
        states_of = {(i, i + 1): leaf for i, leaf in enumerate(leaves)}
        states_of |= {span: p for span, (p, _) in right.items()}
        names = {(a, b): label for label, a, b in gold}
        for span, p in states_of.items():
            label = names.get(span, C)  # no label
            if label != UNSEEN_LABEL:
                labels = labels + F.cross_entropy(merger.label(p)[None], torch.tensor([label]))
    return margin, labels


def test_merging_takes_the_best_pair_until_one_node_is_left(merger, states):
    trees = merger.decode(merger(states))
    for row, tree in enumerate(trees):
        leaves = leaves_of(merger, states, row)
        made = greedy(merger, leaves)
        assert tree.score == pytest.approx(total(made).item(), abs=1e-5)
        states_of = {(i, i + 1): leaf for i, leaf in enumerate(leaves)}
        states_of |= {span: p for span, (p, _) in made.items()}
        expected = set()
        for (a, b), p in states_of.items():
            logits = merger.label(p)
            if (a, b) == (0, LENGTHS[row]) and b > 1:
                logits[-1] = -torch.inf  # a sentence has a label
            if (label := int(logits.argmax())) < C:
                expected.add((label, a, b))
        assert set(tree.spans) == expected
        assert list(tree.spans) == sorted(tree.spans, key=lambda span: (span[1], -span[2]))


def test_loss_is_the_structured_margin_and_the_softmax_of_labels(merger, states):
    margin, labels = slide_loss(merger, states)
    total_loss, rows = merger.loss(merger(states), gold_spans(GOLD))
    assert rows == len(GOLD)
    assert total_loss.item() == pytest.approx((margin + labels).item(), abs=1e-5)


def test_gradient_is_that_of_the_formula(merger, states):
    weights = dict(merger.named_parameters())
    margin, labels = slide_loss(merger, states)
    right = torch.autograd.grad(margin + labels, list(weights.values()), allow_unused=True)
    loss, _ = merger.loss(merger(states), gold_spans(GOLD))
    ours = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for name, a, b in zip(weights, ours, right, strict=True):
        a, b = (torch.zeros_like(weights[name]) if x is None else x for x in (a, b))
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5, msg=name)


@pytest.mark.parametrize("update", ["tree", "max-violation"])
def test_loss_is_active_as_long_as_merging_errs(states, update):
    seen = set()
    for seed in range(11):
        torch.manual_seed(seed)
        made = GreedyMerger(E, C, H, margin=0.3, update=update)
        for weight in made.parameters():
            torch.nn.init.normal_(weight)
        margin, _ = slide_loss(made, states)
        gradient = torch.autograd.grad(margin, made.score.weight, allow_unused=True)[0]
        leaves = leaves_of(made, states, 0)
        errs = any(crosses(a, b, GOLD[0]) for a, b in greedy(made, leaves, GOLD[0], made.margin))
        seen.add(errs)
        assert errs == bool(gradient.abs().sum() > 1e-6)  # the other rows cannot err
    assert seen == {True, False}


@pytest.mark.parametrize("update", ["tree", "max-violation"])
def test_training_leads_to_the_gold_tree(update):
    torch.manual_seed(5)
    merger, x = (
        GreedyMerger(E, C, 19, update=update),
        Padded(torch.randn(11, 6, E), torch.full((11,), 6)),
    )
    tree = ((0, 0, 6), (1, 0, 2), (2, 2, 5), (1, 3, 5))
    optimiser = torch.optim.Adam(merger.parameters(), 0.01)
    for _ in range(150):
        loss, _ = merger.loss(merger(x), gold_spans([tree] * 11))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert {found.spans for found in merger.decode(merger(x))} == {tree}


def test_gold_tree_never_crosses_a_constituent(merger, states):
    leaves = merger(states)
    gold = gold_spans(GOLD)
    cost = torch.full((len(GOLD),), -torch.inf)
    merges = merger.merge(leaves, (gold[:, :, 1], gold[:, :, 2]), cost)
    for row, spans in enumerate(GOLD):
        made = {
            (a, b)
            for a, b in zip(merges.start[row].tolist(), merges.end[row].tolist(), strict=True)
            if a >= 0
        }
        assert len(made) == LENGTHS[row] - 1
        assert not any(crosses(a, b, spans) for a, b in made)
        assert made >= {(a, b) for _, a, b in spans if b - a > 1}


@pytest.mark.parametrize("span", [(0, 5), (1, 4), (2, 3), (0, 2)])
def test_logits_of_a_span_are_those_of_the_node_that_must_hold_it(merger, states, span):
    row = Padded(states.data[:1], states.lengths[:1])
    logits = merger.span_logits(merger(row), *span)
    leaves = leaves_of(merger, states, 0)
    made = {(i, i + 1): leaf for i, leaf in enumerate(leaves)}
    made |= {s: p for s, (p, _) in greedy(merger, leaves, [(0, *span)], -np.inf).items()}
    right = merger.label(made[span])
    if span == (0, 5):
        right[-1] = -1e4
    torch.testing.assert_close(logits[0], right)


def test_half_precision_outside_is_full_precision_inside(merger, states):
    right, _ = merger.loss(merger(states), gold_spans(GOLD))
    with torch.autocast("cpu", torch.bfloat16):
        leaves = merger(states)
        found, _ = merger.loss(leaves, gold_spans(GOLD))
        trees = merger.decode(leaves)
    torch.testing.assert_close(found, right)
    assert trees == merger.decode(merger(states))


def test_states_that_are_no_numbers_are_an_error(merger, states):
    with torch.no_grad():
        merger.weight[0, 0] = torch.nan
    with pytest.raises(UserError, match=r"training has diverged"):
        merger.decode(merger(states))
