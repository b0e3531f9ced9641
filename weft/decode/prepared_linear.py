"""Linear layers with their weights laid out once for the processor, to be used many times.

N rows   I width in   O width out
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["none", "relu", "gelu", "gelu-tanh"]
# How oneDNN names what follows a product: the function, and how it is computed.
AFTER: dict[str, tuple[str, str]] = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu-tanh": ("gelu", "tanh"),
}
ACTIVATE: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
}
LEVELS, MIDDLE = 127, 128  # of whole numbers on each side of zero, and what stands for zero
SMALL = 16  # width of a layer to try them with
TINY = 1e-12  # rows of zeros have a scale as well


@cache
def packs() -> bool:
    """Whether oneDNN's linear layers are here and work; torch promises neither."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight = torch.ones(1, SMALL), torch.ones(SMALL, SMALL)
    try:
        layers = [kind(weight, torch.ones(SMALL)) for kind in LAYERS.values()]
        found = [made for layer in layers for made in (layer(x), layer.plus(x, x) - x)]
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False
    wanted = torch.full((1, SMALL), SMALL + 1.0)
    return all(torch.allclose(made, wanted, rtol=0.02) for made in found)


class Linear:
    """x·Wᵀ + b, then an activation, in fp32; weights are copied into the layout of oneDNN.

    With few rows this reads memory at full speed, which MKL behind `nn.Linear` does not on every
    processor.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none"):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())
        self.bias = None if bias is None else bias.detach().clone()
        self.after, self.algorithm = AFTER[activation]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, self.after, [], self.algorithm
        )  # (N, O)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """The same without an activation, added to `other` (N, O)."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")


class Int8(Linear):
    """The same with weights of 8 bits, a scale for each output, and rows rounded as they come.

    Each row has a scale of its own, so that rows do not see each other.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none"):
        weight = weight.detach()
        self.scale = weight.abs().amax(1).clamp(min=TINY) / LEVELS  # (O,)
        whole = (weight / self.scale[:, None]).round().to(torch.int8)  # (O, I)
        self.weight = torch.ops.onednn.qlinear_prepack(whole, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = None if bias is None else bias.detach().clone()
        self.activate = ACTIVATE[activation]

    def __call__(self, x: Tensor) -> Tensor:
        return self.activate(self._product(x, self.bias))

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        return self._product(x, other if self.bias is None else other + self.bias)

    def _product(self, x: Tensor, added: Tensor | None) -> Tensor:
        size = x.abs().amax(1, keepdim=True).clamp_(min=TINY) / LEVELS  # (N, 1)
        whole = (x / size + MIDDLE).round_().to(torch.uint8)  # (N, I)
        made = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, MIDDLE, self.weight, self.scale, self.zero, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        return made.mul_(size) if added is None else torch.addcmul(added, made, size)  # (N, O)


LAYERS: dict[str, type[Linear]] = {"float32": Linear, "int8": Int8}
