"""No head: the vector that a text was pooled into is all there is.

B rows   H width of the vector
"""

from typing import Any

from torch import Tensor, nn

from weft.registry import register


@register("head", "none")
class PassThroughHead(nn.Module):
    """The vector as it is, for a model that was not taught to answer anything yet."""

    task = "embed"

    def __init__(self, input_size: int, outputs: Any = 0):
        super().__init__()
        self.output_size = input_size

    def forward(self, vector: Tensor) -> Tensor:
        scores = vector  # (B, H)
        return scores
