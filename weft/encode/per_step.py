"""Encoders that treat each step on its own: none, bag and highway layers.

B rows   T steps   E input width   H hidden width
"""

from typing import Literal

from torch import nn

from weft.batch import Padded
from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.embed.highway import Highway
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import register


@register("encoder", "none")
class PassThrough(nn.Module, Encoder):
    """The embeddings unchanged, for embedders that have seen the context or for no context."""

    mixes_steps = False

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = input_size

    def forward(self, x: Padded) -> Padded:
        states = x.data  # (B, T, E)
        return x.with_data(states)


@register("encoder", "bag")
class Bag(nn.Module, Encoder):
    """The embeddings, optionally projected to `hidden`; the pool sums or averages them.

    This is the baseline that every other encoder must beat.
    """

    mixes_steps = False

    def __init__(
        self,
        input_size: int,
        hidden: int = 0,
        activation: Activation | Literal["none"] = "none",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("encoder 'bag'", dropout)
        if hidden < 0:
            raise UserError(f"encoder 'bag': 'hidden' should be 0 or more, got {hidden}.")
        self.output_size = hidden or input_size
        self.project = nn.Linear(input_size, hidden) if hidden else nn.Identity()
        self.activation = nn.Identity() if activation == "none" else ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        states = self.dropout(self.activation(self.project(x.data)))  # (B, T, H)
        return x.with_data(states)


@register("encoder", "highway")
class HighwayEncoder(nn.Module, Encoder):
    """Highway layers (Srivastava et al. 2015) that start close to the identity."""

    mixes_steps = False

    def __init__(
        self,
        input_size: int,
        layers: int = 2,
        activation: Activation = "relu",
        carry: float = 1.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("encoder 'highway'", dropout, layers=layers)
        self.output_size = input_size
        self.layers = Highway(input_size, layers, activation, carry)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        states = self.dropout(self.layers(x.data))  # (B, T, E)
        return x.with_data(states)
