"""Activations by name."""

import torch
import torch.nn.functional as F

from weft.embed.activations import ACTIVATIONS


def test_the_gelu_of_gpt_2_is_the_same_for_a_compiler():
    """Value and slope, where tanh is flat too."""
    made = ACTIVATIONS["gelu-tanh"]()
    x = torch.linspace(-12, 12, 4001, requires_grad=True)
    torch._dynamo.reset()
    for function in (made, torch.compile(made, backend="eager")):
        wanted = F.gelu(x, approximate="tanh")
        found = function(x)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
        slopes = [torch.autograd.grad(y.sum(), x)[0] for y in (found, wanted)]
        torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-5)
    half = torch.compile(made, backend="eager")(x.detach().bfloat16())
    assert half.dtype == torch.bfloat16
