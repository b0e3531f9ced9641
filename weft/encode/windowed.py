"""A recurrent encoder that reads long rows in overlapping windows, all of them at once.

B rows   T steps   E input width   H output width   N windows of a row   W steps of a window
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.encode.rnn import Recurrent
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import register

MIN_WINDOW = 4


@register("encoder", "windowed-rnn")
class WindowedRecurrent(nn.Module, Encoder):
    """Recurrent layers over windows of `window` steps, each from its own initial state.

    Windows overlap by half. The state of a step comes from the window in which it has at least a
    quarter of the window on both sides, unless the row begins or ends there. A document of 2,000
    words then takes as many sequential steps as a window has, not 2,000. Rows that fit into one
    window are read as by the encoder `rnn`.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int = 128,
        layers: int = 1,
        cell: Literal["rnn", "lstm", "gru"] = "lstm",
        bidirectional: bool = True,
        dropout: float = 0.0,
        window: int = 128,
    ):
        super().__init__()
        if window < MIN_WINDOW or window % 4:
            raise UserError(
                f"encoder 'windowed-rnn': 'window' should be a multiple of 4 from {MIN_WINDOW} on, "
                f"got {window}."
            )
        self.window = window
        self.reader = Recurrent(input_size, hidden, layers, cell, bidirectional, dropout)
        self.output_size, self.directions = self.reader.output_size, self.reader.directions

    def forward(self, x: Padded) -> Padded:
        if x.data.shape[1] <= self.window:
            read: Padded = self.reader(x)
            return read
        states = self.reader(self._split(x)).data  # (B·N, W, H)
        return x.with_data(self._join(states, x))

    @property
    def _hop(self) -> int:
        """Steps from the start of a window to that of the next."""
        return self.window // 2

    def _split(self, x: Padded) -> Padded:
        """Return the windows of all rows, (B·N, W, E); those behind the end of a row are empty."""
        rows, steps = x.data.shape[:2]
        count = 1 + -(-(steps - self.window) // self._hop)
        missing = (count - 1) * self._hop + self.window - steps
        data = F.pad(x.data, (0, 0, 0, missing)).unfold(1, self.window, self._hop)  # (B, N, E, W)
        data = data.transpose(2, 3).reshape(rows * count, self.window, -1)
        starts = torch.arange(count) * self._hop
        lengths = (x.lengths[:, None] - starts).clamp(0, self.window)  # (B, N)
        # A window that another one contains is not read.
        needed = (starts == 0) | (x.lengths[:, None] > starts + self._hop)
        return Padded(data, (lengths * needed).flatten())

    def _join(self, states: Tensor, x: Padded) -> Tensor:
        """Return the state of each step (B, T, H) from one of its windows."""
        rows, steps = x.data.shape[:2]
        at, quarter = torch.arange(steps), self.window // 4
        last = (-(-(x.lengths - self.window) // self._hop)).clamp(min=0)[:, None]  # (B, 1)
        number = torch.minimum(((at - quarter) // self._hop).clamp(min=0), last)  # (B, T)
        place = (at - number * self._hop).clamp(max=self.window - 1)
        count = len(states) // rows
        index = (torch.arange(rows)[:, None] * count + number) * self.window + place
        flat = states.reshape(-1, states.shape[2])
        return flat.index_select(0, index.flatten().to(states.device)).view(rows, steps, -1)
