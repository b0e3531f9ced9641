"""Highway layers at each step (Srivastava et al. 2015).

B rows   T steps   E input width
"""

from torch import nn

from weft.batch import Padded
from weft.embed.activations import Activation, sensible
from weft.embed.highway import Highway
from weft.registry import register


@register("encoder", "highway")
class HighwayEncoder(nn.Module):
    """Gated layers that start out close to passing each step on unchanged."""

    def __init__(
        self,
        input_size: int,
        layers: int = 2,
        activation: Activation = "relu",
        carry: float = 1.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        sensible("encoder 'highway'", dropout, layers=layers)
        self.output_size = input_size
        self.layers = Highway(input_size, layers, activation, carry)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        states = self.dropout(self.layers(x.data))  # (B, T, E)
        return x.with_data(states)
