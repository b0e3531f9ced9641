"""Linear layers that are laid out once give what plain products give."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft.kernels.cpu import linear
from weft.kernels.cpu.linear import Int8Linear, PackedLinear

ACTIVATE = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def numbers(*sizes):
    torch.manual_seed(5)
    return [torch.randn(*size) for size in sizes]


@pytest.mark.parametrize("activation", list(ACTIVATE))
def test_products_of_whole_numbers(activation):
    weight, bias, x, other = numbers((11, 67), (11,), (7, 67), (7, 11))
    x[2], x[3], x[4] = 0, 1.5, x[4].abs() + 3
    scale = weight.abs().amax(1, keepdim=True) / 127
    whole = (weight / scale).round() * scale
    low = x.amin(1, keepdim=True)
    size = ((x.amax(1, keepdim=True) - low) / 255).clamp(min=1e-12)
    rounded = ((x - low) / size).round() * size + low
    expected = rounded @ whole.T + bias
    layer = Int8Linear(weight, bias, activation)
    torch.testing.assert_close(layer(x), ACTIVATE[activation](expected), rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(layer.add_to(x, other), expected + other, rtol=1e-4, atol=2e-4)
    exact = x @ weight.T + bias
    assert (expected - exact).norm() < 0.02 * exact.norm()
    exact_layer = PackedLinear(weight, bias, activation)
    torch.testing.assert_close(exact_layer(x), ACTIVATE[activation](exact), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(layer(x[1:2]), layer(x)[1:2], rtol=0, atol=0)


def test_without_a_bias():
    weight, x, other = numbers((5, 13), (3, 13), (3, 5))
    for kind, near in ((PackedLinear, 1e-5), (Int8Linear, 0.1)):
        layer = kind(weight, None)
        torch.testing.assert_close(layer(x), x @ weight.T, rtol=near, atol=near)
        torch.testing.assert_close(
            layer.add_to(x, other), x @ weight.T + other, rtol=near, atol=near
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_input_gives_non_finite_output(bad):
    weight, x = numbers((5, 13), (3, 13))
    x[1, 4] = bad
    found = Int8Linear(weight, torch.zeros(5), "gelu")(x)
    assert found.isfinite().all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
def test_activations_are_those_of_torch_far_out_too(activation):
    """With weights of one entry the product is exact at the ends, so the activation shows."""
    values = torch.cat([torch.linspace(-12, 12, 997), torch.tensor([-1e4, -90.0, 90.0, 1e4])])
    x = torch.stack([values, torch.zeros_like(values)], 1)  # one of two levels is met exactly
    layer = Int8Linear(torch.tensor([[1.0, 0.0]]), torch.zeros(1), activation)
    torch.testing.assert_close(layer(x)[:, 0], ACTIVATE[activation](values), rtol=2e-6, atol=2e-6)


def test_layers_that_do_not_work_are_not_used(monkeypatch):
    """Another torch may have other operators: it reads as the modules themselves do."""

    class Changed(PackedLinear):
        def __call__(self, x):
            raise TypeError("an argument more")

    class Wrong(PackedLinear):
        def __call__(self, x):
            return 2 * super().__call__(x)

    try:
        for kind in (Changed, Wrong):
            for weights in ("float32", "int8"):
                monkeypatch.setitem(linear.LINEAR_BY_DTYPE, weights, kind)
                linear.can_pack.cache_clear()
                assert not linear.can_pack(weights)
        monkeypatch.undo()
    finally:
        linear.can_pack.cache_clear()
    assert linear.can_pack("float32")
    assert linear.can_pack("int8")


def test_linear_is_the_product_with_and_without_gradients(monkeypatch):
    weight, bias, x = numbers((11, 67), (11,), (3, 7, 67))
    expected = x @ weight.T + bias
    weight.requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(linear.linear(x, weight, bias), expected, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(linear.linear(x, weight), expected - bias, rtol=1e-5, atol=1e-4)
        layer = torch.nn.Linear(67, 11)
        torch.testing.assert_close(linear.project(layer, x), layer(x), rtol=1e-5, atol=1e-4)
        assert torch.equal(linear.project(torch.nn.Tanh(), x), x.tanh())
        assert linear.linear(x[:0], weight, bias).shape == (0, 7, 11)
        monkeypatch.setattr(linear, "can_pack", lambda: False)  # no oneDNN
        assert torch.equal(linear.linear(x, weight, bias), F.linear(x, weight, bias))
    linear.linear(x, weight, bias).sum().backward()
    torch.testing.assert_close(weight.grad[0], x.sum((0, 1)))
