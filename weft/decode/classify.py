"""One vector -> the scores of an answer: a label, several labels, or a number.

B rows   H width of the vector   C scores
"""

from itertools import pairwise

from torch import Tensor, nn

from weft.embed.options import ACTIVATIONS, Activation, sensible
from weft.registry import register


@register("head", "linear")
class Linear(nn.Module):
    """One matrix."""

    def __init__(self, input_size: int, outputs: int, dropout: float = 0.0):
        super().__init__()
        sensible("head 'linear'", dropout)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(input_size, outputs)

    def forward(self, vector: Tensor) -> Tensor:
        scores = self.score(self.dropout(vector))  # (B, C)
        return scores


@register("head", "mlp")
class MLP(nn.Module):
    """`layers` hidden layers before the scores, each with its activation and dropout."""

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
        sensible("head 'mlp'", dropout, hidden=hidden, layers=layers)
        sizes = [input_size] + [hidden] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(hidden, outputs)

    def forward(self, vector: Tensor) -> Tensor:
        for layer in self.layers:
            vector = self.activation(layer(self.dropout(vector)))  # (B, H)
        scores = self.score(self.dropout(vector))  # (B, C)
        return scores
