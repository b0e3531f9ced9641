"""Each step on its own: the baseline every other encoder must beat.

B rows   T steps   E input width   H hidden width
"""

from typing import Literal

from torch import nn

from weft.batch import Padded
from weft.embed.activations import ACTIVATIONS, Activation, sensible
from weft.errors import UserError
from weft.registry import register


@register("encoder", "bag")
class Bag(nn.Module):
    """The embeddings as they are, or projected to `hidden`; sum or average is the pool's choice."""

    def __init__(
        self,
        input_size: int,
        hidden: int = 0,
        activation: Activation | Literal["none"] = "none",
        dropout: float = 0.0,
    ):
        super().__init__()
        sensible("encoder 'bag'", dropout)
        if hidden < 0:
            raise UserError(f"encoder 'bag': 'hidden' should be 0 or more, got {hidden}.")
        self.output_size = hidden or input_size
        self.project = nn.Linear(input_size, hidden) if hidden else nn.Identity()
        self.activation = nn.Identity() if activation == "none" else ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        states = self.dropout(self.activation(self.project(x.data)))  # (B, T, H)
        return x.with_data(states)
