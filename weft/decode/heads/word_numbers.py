"""Regression at each word: one number from every state.

B rows   T words   H width of a state
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register


@dataclass(frozen=True)
class NumberOutput:
    """The standardised number of every word."""

    numbers: Padded  # (B, T)

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the summed squared error and the words; target (B, ·, 1) holds bit patterns.

        Patterns of NaN, such as the padding -1, are words without a number.
        """
        steps = self.numbers.data.shape[1]
        gold = target[:, :steps, 0].to(torch.int32).view(torch.float32)  # (B, T)
        error = self.numbers.data.float() - gold
        error = error.masked_fill(gold.isnan(), 0.0)
        return error.square().sum(), int(self.numbers.lengths.sum())

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row the numbers as bit patterns (T, 1), and as they are (T, 1)."""
        numbers = self.numbers.data.detach().float().cpu().numpy()  # (B, T)
        bits = np.ascontiguousarray(numbers).view(np.int32).astype(np.int64)
        return [
            (bits[row, :length, None], numbers[row, :length, None])
            for row, length in enumerate(self.numbers.lengths.tolist())
        ]


@register("head", "numbers")
class NumberHead(nn.Module, Head):
    """A linear layer that gives every word a number."""

    task = "regress-words"
    can_average = False

    def __init__(self, input_size: int, outputs: int, dropout: float = 0.0):
        super().__init__()
        check_sizes("head 'numbers'", dropout)
        if outputs != 1:
            raise UserError(
                "The head 'numbers' needs the task 'regress-words'. Set task.kind to it."
            )
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(input_size, outputs)

    def forward(self, states: Padded) -> NumberOutput:
        if not isinstance(states, Padded):
            raise UserError("The head 'numbers' needs a state per word. Set pool.kind to 'none'.")
        data = states.data  # (B, T, H)
        if not states.full:  # garbage in the padding would reach the gradient of the weights
            data = data.masked_fill(~states.mask[:, :, None], 0)
        numbers = self.score(self.dropout(data))[:, :, 0]  # (B, T)
        return NumberOutput(states.with_data(numbers))
