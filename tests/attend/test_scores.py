"""Attention scores against their formulas written with loops, and the masked softmax."""

import math

import pytest
import torch

from tests.fixtures.shapes import checked
from weft import registry
from weft.attend.scores import attend, masked_softmax
from weft.batch import Padded

FORMULAS = {
    "additive": lambda s, q, h: (
        s.weigh.weight[0] @ torch.tanh(s.query.weight @ q + s.memory.weight @ h + s.query.bias)
    ),
    "dot": lambda s, q, h: sum(a * b for a, b in zip(q, h, strict=True)),
    "scaled": lambda s, q, h: sum(a * b for a, b in zip(q, h, strict=True)) / math.sqrt(len(q)),
    "bilinear": lambda s, q, h: h @ s.weight @ q,
    "trilinear": lambda s, q, h: (
        torch.cat([s.query.weight[0], s.memory.weight[0], s.both]) @ torch.cat([q, h, q * h])
    ),
}
PROJECTED = ["dot", "scaled", "trilinear"]  # a memory of another width is projected


def build(name, query=5, memory=5):
    torch.manual_seed(0)
    return registry.build("score", {"kind": name}, query_size=query, memory_size=memory)


def test_every_score_has_its_formula_here():
    assert set(FORMULAS) == set(registry.parts("score"))


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("memory", [5, 7])
def test_scores_are_their_formulas(name, memory):
    score = build(name, 5, memory)
    q, h = torch.randn(2, 3, 5), torch.randn(2, 11, memory)
    got = score(q, h)
    assert got.shape == (2, 3, 11)
    for b in range(2):
        for i in range(3):
            for t in range(11):
                step = h[b, t]
                if memory != 5 and name in PROJECTED:
                    step = score.project.weight @ step
                expected = FORMULAS[name](score, q[b, i], step)
                torch.testing.assert_close(got[b, i, t], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
def test_attend_summarises_what_is_real(name):
    score = build(name)
    q, h = torch.randn(3, 2, 5), torch.randn(3, 7, 5)
    memory = Padded(h, torch.tensor([7, 3, 0]))
    summary, weights = attend(q, memory, score)
    for b, n in enumerate([7, 3]):
        exact = score(q[b : b + 1], h[b : b + 1, :n])[0].softmax(-1)
        torch.testing.assert_close(weights[b, :, :n], exact, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(summary[b], exact @ h[b, :n], rtol=1e-5, atol=1e-5)
        assert not weights[b, :, n:].any()
    assert not weights[2].any()
    assert not summary[2].any()


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients(name):
    score = build(name).double()
    q = torch.randn(2, 2, 5, dtype=torch.double, requires_grad=True)
    h = torch.randn(2, 3, 5, dtype=torch.double, requires_grad=True)
    parameters = list(score.parameters())

    def run(q, h, *_):
        return attend(q, Padded(h, torch.tensor([3, 0])), score)

    assert torch.autograd.gradcheck(run, (q, h, *parameters))


def test_a_row_without_steps_has_a_clean_gradient():
    scores = torch.randn(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    masked_softmax(scores, mask)[:, 0].sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[1].any()


def test_half_precision_scores_are_weighed_in_single():
    scores = torch.randn(3, 301).to(torch.bfloat16)
    weights = masked_softmax(scores, torch.ones(3, 301, dtype=torch.bool))
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))


def test_attention_under_autocast():
    score = build("additive")
    memory = Padded(torch.randn(2, 3, 5), torch.tensor([3, 1]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        summary, weights = attend(torch.randn(2, 1, 5), memory, score)
    assert weights.dtype == torch.float32
    assert summary.isfinite().all()


@pytest.mark.parametrize("name", ["additive", "bilinear"])
def test_shape_comments_are_true(name):
    score = build(name, 5, 7)
    memory = Padded(torch.randn(2, 11, 7), torch.tensor([11, 3]))
    assert checked("weft.attend", lambda: attend(torch.randn(2, 3, 5), memory, score)) >= 4


@pytest.mark.parametrize("name", FORMULAS)
def test_a_prepared_memory_gives_the_same_scores(name):
    score, query, memory = build(name), torch.randn(3, 2, 5), torch.randn(3, 7, 5)
    prepared = score.compare(query, score.prepare(memory))
    torch.testing.assert_close(prepared, score(query, memory), rtol=1e-5, atol=1e-5)


def test_coverage_is_one_more_term():
    torch.manual_seed(0)
    spec = {"kind": "additive", "coverage": True}
    score = registry.build("score", spec, query_size=5, memory_size=7)
    query, memory, had = torch.randn(3, 2, 5), torch.randn(3, 11, 7), torch.rand(3, 11)
    got = score.compare(query, score.prepare(memory), had)
    q, h = query[2, 1], memory[2, 10]
    inside = score.query.weight @ q + score.query.bias + score.memory.weight @ h
    inside = inside + score.cover.weight[:, 0] * had[2, 10]
    torch.testing.assert_close(got[2, 1, 10], score.weigh.weight[0] @ torch.tanh(inside))
