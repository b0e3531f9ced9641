"""Highway layers (Srivastava et al. 2015): gates decide how much of the input passes."""

import torch
from torch import Tensor, nn

from weft.embed.activations import ACTIVATIONS, Activation
from weft.protocols import WeightMatrices


class Highway(nn.Module, WeightMatrices):
    """y = g ⊙ f(W x + b) + (1 − g) ⊙ x, with g = σ(W' x + b'), `layers` times.

    The gates' biases start at −`carry`, so that a new layer mostly lets its input through.
    """

    def __init__(
        self, size: int, layers: int = 2, activation: Activation = "relu", carry: float = 1.0
    ):
        super().__init__()
        self.changes = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.activation = ACTIVATIONS[activation]()
        self.carry = carry
        self.finish_init()

    def finish_init(self) -> None:
        """Set the biases of the gates."""
        for gate in self.gates:
            assert isinstance(gate, nn.Linear)
            nn.init.constant_(gate.bias, -self.carry)

    def forward(self, x: Tensor) -> Tensor:
        for change, gate in zip(self.changes, self.gates, strict=True):
            open_ = torch.sigmoid(gate(x))
            x = open_ * self.activation(change(x)) + (1 - open_) * x
        return x
