"""Vectors as they come (regions of a picture, frames of speech) -> the width a model works in.

B rows   T vectors   F numbers of a vector   E width
"""

from typing import Literal

from torch import nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.position import LearnedPositions, SinusoidalPositions
from weft.errors import UserError
from weft.protocols import Embedder
from weft.registry import register


@register("embedder", "vectors")
class FeatureEmbedder(nn.Module, Embedder):
    """A linear map of each vector of a matrix, optionally with its position added.

    `features` is how many numbers a vector has; 0 lets a run read it off its first matrix.
    With `norm` each vector is first brought to mean 0 and deviation 1. Regions of a picture have
    no order: `positions` is for what has one and an encoder that does not see it.
    """

    input_kind = "vectors"

    def __init__(
        self,
        features: int = 0,
        width: int = 128,
        dropout: float = 0.0,
        norm: bool = False,
        positions: Literal["none", "sinusoidal", "learned"] = "none",
        max_positions: int = 512,
    ):
        super().__init__()
        where = "embedder 'vectors'"
        if features < 1:
            raise UserError(f"{where}: 'features' should be 1 or more here, got {features}.")
        check_sizes(where, dropout, width=width, max_positions=max_positions)
        self.features, self.output_size = features, width
        self.max_positions = max_positions if positions == "learned" else None
        self.norm = nn.LayerNorm(features) if norm else nn.Identity()
        self.enter = nn.Linear(features, width)
        self.positions: nn.Module = nn.Identity()
        if positions != "none":
            self.positions = (
                SinusoidalPositions if positions == "sinusoidal" else LearnedPositions
            )(width, max_positions)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        vectors = self.enter(self.norm(x.data))  # (B, T, E)
        return x.with_data(self.dropout(self.positions(vectors)))
