"""Activations by name, and checks of sizes and dropout shared by all layers."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from weft.errors import UserError

Activation = Literal["relu", "tanh", "sigmoid", "gelu"]
GELU_TANH_FACTOR = 2 * (2 / math.pi) ** 0.5


class TanhGELU(nn.GELU):
    """GPT-2's GELU: x·½(1 + tanh u), which equals x·sigmoid(2u).

    The compiler gets the second form, which is memory-bound in a fused kernel.
    """

    def __init__(self) -> None:
        super().__init__("tanh")

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return super().forward(x)
        wide = x.float()
        return (wide * torch.sigmoid(GELU_TANH_FACTOR * (wide + 0.044715 * wide**3))).to(x.dtype)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "gelu-tanh": TanhGELU,
}


def check_sizes(where: str, dropout: float = 0.0, **sizes: int) -> None:
    """Raise a UserError unless every size is at least 1 and dropout is in [0, 1)."""
    for name, size in sizes.items():
        if size < 1:
            raise UserError(f"{where}: '{name}' should be at least 1, got {size}.")
    if not 0 <= dropout < 1:
        raise UserError(f"{where}: 'dropout' should be from 0 to below 1, got {dropout}.")
