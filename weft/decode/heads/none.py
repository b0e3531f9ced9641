"""No head: return the pooled vector of a text.

B rows   H width of the vector
"""

from torch import Tensor, nn

from weft.protocols import Head
from weft.registry import register


@register("head", "none")
class PassThroughHead(nn.Module, Head):
    """Return the vector unchanged, for a model without a trained head."""

    task = "embed"

    def __init__(self, input_size: int, outputs: int = 0):
        super().__init__()
        self.output_size = input_size

    def forward(self, vector: Tensor) -> Tensor:
        output = vector  # (B, H)
        return output
