"""No encoder: the embedder has looked at the context already, or none is wanted.

B rows   T steps   E embedding width
"""

from torch import nn

from weft.batch import Padded
from weft.registry import register


@register("encoder", "none")
class Nothing(nn.Module):
    """The vectors as they are embedded."""

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = input_size

    def forward(self, x: Padded) -> Padded:
        states = x.data  # (B, T, E)
        return x.with_data(states)
