"""D1: one label (softmax), several (sigmoid) or a number (MSE) from a vector, linear or MLP."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from weft.decode.heads.classify import LinearHead, MLPHead
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.regress import LabelScale, Regress

B, H, C = 7, 5, 3
SPACE = ClassSpace(("a", "b", "c"))


@pytest.fixture
def vectors():
    return torch.randn(B, H, generator=torch.Generator().manual_seed(2))


def test_linear_and_mlp_heads_are_their_formulas(vectors):
    torch.manual_seed(3)
    linear, mlp = LinearHead(H, C).eval(), MLPHead(H, C, hidden=11, activation="tanh").eval()
    x = vectors.double().numpy()
    W, b = (p.detach().double().numpy() for p in (linear.score.weight, linear.score.bias))
    np.testing.assert_allclose(linear(vectors).detach().numpy(), x @ W.T + b, atol=1e-5)
    (W1, b1, W2, b2) = (p.detach().double().numpy() for p in mlp.parameters())
    right = np.tanh(x @ W1.T + b1) @ W2.T + b2
    np.testing.assert_allclose(mlp(vectors).detach().numpy(), right, atol=1e-5)


def test_one_label_is_a_softmax_with_cross_entropy(vectors):
    logits = vectors[:, :C]
    gold = torch.tensor([0, 2, 1, 1, 0, 2, 2])
    task = Classify()
    loss = task.loss(logits, SimpleNamespace(target=gold, balance=None, row_weights=None))
    answers = task.answers(logits.numpy(), SPACE)
    total = 0.0
    for row, g, answer in zip(logits.tolist(), gold.tolist(), answers, strict=True):
        probs = [math.exp(s) / sum(map(math.exp, row)) for s in row]
        total -= math.log(probs[g])
        np.testing.assert_allclose(answer.scores, probs, atol=1e-6)
        assert answer.value == SPACE.entries[probs.index(max(probs))]
    assert loss.total.item() == pytest.approx(total, abs=1e-5)
    assert loss.count == B


def test_several_labels_are_sigmoids_with_binary_cross_entropy(vectors):
    logits = vectors[:, :C]
    wanted = (vectors[:, 2:] > 0).float()
    task = Classify(multi_label=True)
    loss = task.loss(logits, SimpleNamespace(target=wanted, balance=None, row_weights=None))
    total = 0.0
    for row, own, answer in zip(
        logits.tolist(), wanted.tolist(), task.answers(logits.numpy(), SPACE), strict=True
    ):
        probs = [1 / (1 + math.exp(-s)) for s in row]
        total -= sum(math.log(p if y else 1 - p) for p, y in zip(probs, own, strict=True))
        np.testing.assert_allclose(answer.scores, probs, atol=1e-6)
        assert set(answer.value) == {
            e for e, p in zip(SPACE.entries, probs, strict=True) if p >= 0.5
        }
    assert loss.total.item() == pytest.approx(total, abs=1e-5)


def test_a_number_is_learned_by_squared_error(vectors):
    scores, target = vectors[:, :1], vectors[:, 1]
    task, scale = Regress(), LabelScale(mean=3.0, deviation=2.0)
    loss = task.loss(scores, SimpleNamespace(target=target, balance=None, row_weights=None))
    right = sum((s - y) ** 2 for s, y in zip(scores[:, 0].tolist(), target.tolist(), strict=True))
    assert loss.total.item() == pytest.approx(right, abs=1e-5)
    numbers = [answer.value for answer in task.answers(scores.numpy(), scale)]
    np.testing.assert_allclose(numbers, scores[:, 0].double().numpy() * 2 + 3, atol=1e-6)
