"""Heads of a text's vector: logits of a label or labels, a number, or the vector itself.

B rows   H width of the vector   C logits
"""

from itertools import pairwise

from torch import Tensor, nn

from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register


@register("head", "linear")
class LinearHead(nn.Module, Head):
    """A linear layer."""

    def __init__(self, input_size: int, outputs: int, dropout: float = 0.0):
        super().__init__()
        check_sizes("head 'linear'", dropout)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(input_size, outputs)

    def forward(self, vector: Tensor) -> Tensor:
        logits: Tensor = self.score(self.dropout(vector))  # (B, C)
        return logits


@register("head", "logistic")
class LogisticHead(LinearHead):
    """A linear layer, fitted by logistic regression on frozen features.

    For a number `C` is 1 / the ridge penalty; 0 chooses the best of several values
    on dev.
    """

    fitted = True  # in closed form or by a solver, not by gradient descent
    losses = ("cross-entropy",)
    balances = ("weights", "sampling")

    def __init__(self, input_size: int, outputs: int, C: float = 0.0):
        super().__init__(input_size, outputs)
        if C < 0:
            raise UserError(
                f"head 'logistic': C is {C}; it must be above 0, or 0 to choose it on dev."
            )
        self.C = C


@register("head", "mlp")
class MLPHead(nn.Module, Head):
    """`layers` hidden layers before the logits, each with activation and dropout."""

    def __init__(
        self,
        input_size: int,
        outputs: int,
        hidden: int = 128,
        layers: int = 1,
        activation: Activation = "relu",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("head 'mlp'", dropout, hidden=hidden, layers=layers)
        sizes = [input_size] + [hidden] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(hidden, outputs)

    def forward(self, vector: Tensor) -> Tensor:
        for layer in self.layers:
            vector = self.activation(layer(self.dropout(vector)))  # (B, H)
        logits: Tensor = self.score(self.dropout(vector))  # (B, C)
        return logits


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
