"""Heads that score one vector: the contract over all of them, and their formulas."""

import copy

import pytest
import torch

from tests.fixtures.shapes import checked
from weft import registry
from weft.decode.heads.classify import LinearHead, MLPHead
from weft.errors import UserError

CASES = [
    {"kind": "linear", "dropout": 0.3},
    {"kind": "mlp", "hidden": 5, "dropout": 0.3},
    {"kind": "mlp", "hidden": 5, "layers": 3, "activation": "tanh"},
]


@pytest.fixture(params=CASES, ids=str)
def head(request):
    torch.manual_seed(1)
    return registry.build("head", request.param, input_size=7, outputs=3).eval()


def test_promised_shape_and_repeatable(head):
    x = torch.randn(2, 7)
    assert head(x).shape == (2, 3)
    assert torch.equal(head(x), head(x))


def test_rows_do_not_see_each_other(head):
    x = torch.randn(2, 7)
    torch.testing.assert_close(head(x)[1:], head(x[1:]), rtol=1e-5, atol=1e-5)


def test_every_parameter_learns(head):
    head.train()(torch.randn(11, 7)).square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad.any(), name


def test_weights_alone_carry_the_answer(head):
    x = torch.randn(2, 7)
    before, saved = head(x), copy.deepcopy(head.state_dict())
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(1)
    assert not torch.equal(head(x), before)
    head.load_state_dict(saved)
    assert torch.equal(head(x), before)


def test_gradients(head):
    x = torch.randn(2, 7, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(head.double(), (x,))


def test_shape_comments_are_true(head):
    assert checked("weft.decode", lambda: head(torch.randn(2, 7))) >= 1


def test_linear_is_one_matrix():
    head = LinearHead(7, 3)
    x = torch.randn(7)
    expected = [sum(w * v for w, v in zip(row, x, strict=True)) for row in head.score.weight]
    torch.testing.assert_close(head(x[None])[0], torch.stack(expected) + head.score.bias)


def test_mlp_is_its_formula():
    head = MLPHead(7, 3, hidden=5, layers=2, activation="sigmoid")
    h = x = torch.randn(7)
    for layer in head.layers:
        h = torch.sigmoid(layer.weight @ h + layer.bias)
    torch.testing.assert_close(head(x[None])[0], head.score.weight @ h + head.score.bias)


def test_options_that_make_no_sense():
    with pytest.raises(UserError, match="head 'mlp': 'layers' should be at least 1, got 0"):
        MLPHead(7, 3, layers=0)
    with pytest.raises(UserError, match=r"head 'linear': 'dropout' .* got 1"):
        LinearHead(7, 3, dropout=1.0)
