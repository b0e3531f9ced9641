"""An MLP over a window of neighbours (Collobert et al. 2011).

B rows   T steps   E input width   H hidden width
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from weft.batch import Padded
from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.protocols import Encoder
from weft.registry import register


@register("encoder", "mlp")
class MLP(nn.Module, Encoder):
    """h₁ = the `window` vectors around a step, concatenated; hᵢ₊₁ = φ(Wᵢ hᵢ + bᵢ), `layers` times.

    Past either end of the text a window sees zeros. An even window has its extra step ahead.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int = 128,
        layers: int = 2,
        window: int = 5,
        activation: Activation = "tanh",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("encoder 'mlp'", dropout, hidden=hidden, layers=layers, window=window)
        self.output_size = hidden
        self.window = window
        sizes = [window * input_size] + [hidden] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        T = x.data.shape[1]
        before = (self.window - 1) // 2
        clean = x.with_data(x.data).data  # a window that reaches past the end must see zeros
        around = F.pad(clean, (0, 0, before, self.window - 1 - before))
        shifted = [around[:, start : start + T] for start in range(self.window)]
        states = torch.cat(shifted, dim=2)  # (B, T, W*E)
        for layer in self.layers:
            states = self.dropout(self.activation(layer(states)))
        return x.with_data(states)
