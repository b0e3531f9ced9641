"""Losses of labels with weights of classes and focal, against torch, sklearn and the equations."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from weft.batch import LabelledBatch, Padded
from weft.batch.loss_balance import LossBalance
from weft.decode.heads.crf import CRF
from weft.decode.heads.tag import TagOutput
from weft.decode.heads.tree_nodes import TreeNodeOutput
from weft.decode.label_losses import label_loss, label_set_loss
from weft.tasks.classify import Classify
from weft.tasks.pair import PairClassify
from weft.text.class_balance import balanced_weights, positive_weights

WEIGHTS = np.array([0.5, 3.0, 1.5])


@pytest.fixture
def logits():
    torch.manual_seed(3)
    return (2 * torch.randn(7, 3)).requires_grad_()


GOLD = torch.tensor([0, 1, 2, 2, 0, 0, 1])
SETS = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]])


def batch(target, balance):
    source = Padded(torch.zeros(len(target), 1, dtype=torch.long), torch.ones(len(target)).long())
    return LabelledBatch(source, np.arange(len(target)), target, len(target), balance=balance)


@pytest.mark.parametrize("task", [Classify(), PairClassify()])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weighted_loss_is_that_of_torch(task, smoothing, logits):
    task.smoothing = smoothing
    loss = task.loss(logits, batch(GOLD, LossBalance((WEIGHTS,))))
    weights = torch.tensor(WEIGHTS, dtype=torch.float32)
    reference = nn.CrossEntropyLoss(weights, label_smoothing=smoothing)
    assert loss.count == len(GOLD)
    mean = loss.total / weights[GOLD].sum()
    torch.testing.assert_close(mean, reference(logits, GOLD))


def test_over_the_training_part_total_over_count_is_the_mean_of_torch(logits):
    counts = np.bincount(GOLD)
    weights = balanced_weights(counts)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=GOLD.numpy())
    np.testing.assert_allclose(weights, expected)
    loss = Classify().loss(logits, batch(GOLD, LossBalance((weights,))))
    reference = nn.CrossEntropyLoss(torch.tensor(weights, dtype=torch.float32))
    torch.testing.assert_close(loss.total / loss.count, reference(logits, GOLD))


def test_weights_of_several_labels_are_pos_weight(logits):
    weights = positive_weights(SETS.sum(0).numpy(), len(SETS))
    np.testing.assert_allclose(weights, [4 / 3, 3 / 4, 4 / 3])
    task = Classify(multi_label=True)
    loss = task.loss(logits, batch(SETS.float(), LossBalance((weights,))))
    kind = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights).float(), reduction="sum")
    torch.testing.assert_close(loss.total, kind(logits, SETS.float()))
    assert loss.count == len(SETS)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_focal_loss_by_its_equation(gamma, logits):
    probs = logits.softmax(1)[torch.arange(7), GOLD]
    expected = (-((1 - probs) ** gamma) * probs.log()).sum()
    found = label_loss(logits, GOLD, balance=LossBalance(gamma=gamma))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, logits)[0] for x in (found, expected)))


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_loss_of_several_labels_is_torchvisions(gamma, logits):
    targets = SETS.float()
    # torchvision.ops.sigmoid_focal_loss, alpha = -1
    p = torch.sigmoid(logits)
    ce_loss = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    expected = (ce_loss * ((1 - p_t) ** gamma)).sum()
    found = label_set_loss(logits, targets, balance=LossBalance(gamma=gamma))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, logits)[0] for x in (found, expected)))


@pytest.mark.parametrize("gamma", [0.3, 2.0])
def test_focal_loss_of_a_sure_answer_has_a_finite_gradient(gamma):
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    for label in (0, 1):
        loss = label_loss(logits, torch.tensor([label]), balance=LossBalance(gamma=gamma))
        (grad,) = torch.autograd.grad(loss, logits)
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("every", [False, True])
def test_margins_are_weighted_by_the_gold_class(every, logits):
    kind = "margin-sum" if every else "margin"
    weighted = label_loss(logits, GOLD, kind, LossBalance((WEIGHTS,)))
    rows = [label_loss(logits[i : i + 1], GOLD[i : i + 1], kind) for i in range(7)]
    torch.testing.assert_close(
        weighted, sum(WEIGHTS[g] * r for g, r in zip(GOLD, rows, strict=True))
    )


def test_margins_of_several_labels_weigh_positives(logits):
    found = label_set_loss(logits, SETS, "margin", LossBalance((WEIGHTS,)))
    signs = 2 * SETS - 1
    hinges = (1 - signs * logits).clamp(min=0)
    expected = (hinges * torch.where(SETS > 0, torch.tensor(WEIGHTS).float(), 1.0)).sum()
    torch.testing.assert_close(found, expected)


def rows_of_tags():
    torch.manual_seed(5)
    lengths = torch.tensor([4, 1, 3])
    target = torch.randint(0, 3, (3, 4, 1))
    mask = torch.arange(4) < lengths[:, None]
    return Padded(torch.randn(3, 4, 3), lengths), target.masked_fill(~mask[:, :, None], -1), mask


@pytest.mark.parametrize("balance", [LossBalance((WEIGHTS,)), LossBalance(gamma=2.0)])
def test_words_and_nodes_are_balanced_as_texts_are(balance):
    states, target, mask = rows_of_tags()
    expected = label_loss(states.data[mask], target[mask][:, 0], balance=balance)
    found, words = TagOutput((states,), (None,)).loss(target, balance=balance)
    assert words == 8
    torch.testing.assert_close(found, expected)
    nodes, count = TreeNodeOutput(states).loss(target, balance)
    assert count == 8
    torch.testing.assert_close(nodes, expected)


def test_each_column_of_tags_has_its_weights():
    states, target, mask = rows_of_tags()
    other = 2 - target.clamp(min=0)
    both = torch.cat([target, other.masked_fill(target < 0, -1)], 2)
    balance = LossBalance((WEIGHTS, WEIGHTS[::-1].copy()))
    found, _ = TagOutput((states, states), (None, None)).loss(both, balance=balance)
    weights = torch.tensor(WEIGHTS).float()
    expected = sum(
        nn.functional.cross_entropy(states.data[mask], both[mask][:, k], w, reduction="sum")
        for k, w in enumerate((weights, weights.flip(0)))
    )
    torch.testing.assert_close(found, expected)


def sequences(crf, emissions, tags, cost):
    """Of each row: the score of the gold sequence, and of all, with the cost of what they miss."""
    out = []
    for row, length in enumerate(emissions.lengths.tolist()):
        gold, scores = tags[row, :length].tolist(), []
        for path in itertools.product(range(3), repeat=length):
            score = crf.start[path[0]] + crf.end[path[-1]]
            score = score + sum(emissions.data[row, t, y] for t, y in enumerate(path))
            score = score + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))
            right = score if list(path) == gold else 0 * score
            missed = sum(cost[g] for y, g in zip(path, gold, strict=True) if y != g)
            scores.append((score + missed, right))
        out.append((torch.stack([s for s, _ in scores]), sum(r for _, r in scores)))
    return out


@pytest.mark.parametrize("kind", ["cross-entropy", "margin"])
def test_weights_of_a_crf_by_enumeration(kind):
    emissions, target, _ = rows_of_tags()
    emissions.data.requires_grad_()
    crf, weights = CRF(3), torch.tensor(WEIGHTS).float()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_()
    found, _ = TagOutput((emissions,), (crf,)).loss(target, kind, LossBalance((WEIGHTS,)))
    cost = weights.log() if kind == "cross-entropy" else weights
    rows = sequences(crf, emissions, target[:, :, 0], cost)
    reduce = (lambda s: s.logsumexp(0)) if kind == "cross-entropy" else (lambda s: s.max())
    expected = sum(reduce(scores) - gold for scores, gold in rows)
    torch.testing.assert_close(found, expected)
    inputs = [emissions.data, *crf.parameters()]
    for mine, theirs in zip(
        *(torch.autograd.grad(x, inputs, allow_unused=True) for x in (found, expected)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_equal_weights_leave_a_crf_as_it_is():
    emissions, target, _ = rows_of_tags()
    crf = CRF(3)
    plain = TagOutput((emissions,), (crf,)).loss(target)[0]
    equal = TagOutput((emissions,), (crf,)).loss(target, balance=LossBalance((np.ones(3),)))[0]
    torch.testing.assert_close(plain, equal)
