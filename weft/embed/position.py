"""Position embeddings, added to each step.

T steps   H hidden width
"""

import math

import torch
from torch import Tensor, nn

from weft.errors import UserError


def sinusoid_rates(width: int) -> Tensor:
    """Return the angle (H/2,) by which each pair of columns turns from step to step."""
    return torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))


def sinusoidal_table(steps: int, width: int) -> Tensor:
    """Sine and cosine of geometrically growing wavelengths, interleaved (Vaswani et al. 2017).

    Even columns 2i hold sin(t / 10000^(2i/width)), odd columns the cosine of the same angle.
    """
    angles = torch.arange(steps)[:, None] * sinusoid_rates(width)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    table = pairs.flatten(1)[:, :width]  # (T, H)
    return table


class SinusoidalPositions(nn.Module):
    """Adds fixed sinusoids; any length works. Rows up to `max_positions` are computed once."""

    table: Tensor

    def __init__(self, width: int, max_positions: int = 512):
        super().__init__()
        self.max_positions: int | None = None
        self.register_buffer("table", sinusoidal_table(max_positions, width), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        table = self.table
        if steps > len(table):
            table = sinusoidal_table(steps, table.shape[1]).to(x.device)
        return x + table[:steps].to(x.dtype)


class LearnedPositions(nn.Module):
    """Adds a trained row per position; raises on sequences longer than `max_positions`."""

    def __init__(self, width: int, max_positions: int = 512):
        super().__init__()
        self.max_positions: int | None = max_positions
        self.table = nn.Parameter(torch.empty(max_positions, width))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        if steps > len(self.table):
            raise UserError(
                f"A sequence of {steps} steps, but learned positions end at {len(self.table)}. "
                "Raise 'max_positions', use positions = \"sinusoidal\", or truncate."
            )
        return x + self.table[:steps]
