"""What the options of all layers have in common: activations by name, sizes that make sense."""

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

from weft.errors import UserError

Activation = Literal["relu", "tanh", "sigmoid", "gelu"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),  # GPT-2's
}


def sensible(where: str, dropout: float = 0.0, **sizes: int) -> None:
    """A UserError unless every size is at least 1 and dropout is a share below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise UserError(f"{where}: '{name}' should be at least 1, got {size}.")
    if not 0 <= dropout < 1:
        raise UserError(f"{where}: 'dropout' should be from 0 to below 1, got {dropout}.")
