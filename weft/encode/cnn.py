"""Convolutions over time, with filters of several widths side by side.

B rows   T steps   R steps after the stride   E input width   H hidden width
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import register

Norm = Literal["none", "before", "after"]


class Convolution(nn.Module):
    """h_i = f(W [x around i] + b), all widths concatenated; + x_i and layer norm on request.

    The layer norm is before the non-linearity f, or after the sum with x_i.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int,
        widths: tuple[int, ...],
        stride: int,
        dilation: int,
        activation: str,
        residual: bool,
        norm: Norm,
    ):
        super().__init__()
        size = hidden * len(widths)
        self.stride = stride
        self.filters = nn.ModuleList(
            nn.Conv1d(input_size, hidden, width, stride=stride, dilation=dilation)
            for width in widths
        )
        # Half of each window's reach on either side; the odd step of an even width lies ahead.
        reaches = [(width - 1) * dilation for width in widths]
        self.margins = [(reach // 2, reach - reach // 2) for reach in reaches]
        self.activation = ACTIVATIONS[activation]()
        # Where the widths differ, the short cut needs a matrix of its own.
        self.shortcut: nn.Module | None = None
        if residual:
            same = input_size == size
            self.shortcut = nn.Identity() if same else nn.Linear(input_size, size, bias=False)
        self.pre_norm = nn.LayerNorm(size) if norm == "before" else nn.Identity()
        self.norm = nn.LayerNorm(size) if norm == "after" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        channels_first = x.transpose(1, 2)  # (B, E, T)
        features = [
            conv(F.pad(channels_first, margin))
            for conv, margin in zip(self.filters, self.margins, strict=True)
        ]
        sums = torch.cat(features, dim=1).transpose(1, 2)  # (B, R, H)
        states = self.activation(self.pre_norm(sums))  # (B, R, H)
        if self.shortcut is not None:
            states = states + self.shortcut(x[:, :: self.stride])  # (B, R, H)
        normed: Tensor = self.norm(states)
        return normed


@register("encoder", "cnn")
class CNN(nn.Module, Encoder):
    """`hidden` filters of each width, every `stride` steps, in `layers` layers.

    Window centres lie at steps 0, stride, 2·stride…, so a text of n steps leaves ⌈n/stride⌉ per
    layer, however it was padded; past either end a window sees zeros. `dilation` is one number,
    or one per layer. With `residual`, h_i = f(W[x around i] + b) + x_i. `norm` adds a layer norm
    (Ba et al. 2016): "before" the non-linearity f, or "after" all of it.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int = 100,
        widths: tuple[int, ...] = (3, 4, 5),
        layers: int = 1,
        stride: int = 1,
        dilation: int | tuple[int, ...] = 1,
        activation: Activation = "relu",
        residual: bool = False,
        norm: Norm = "none",
        dropout: float = 0.0,
    ):
        super().__init__()
        where = "encoder 'cnn'"
        check_sizes(where, dropout, hidden=hidden, layers=layers, stride=stride)
        if not widths or min(widths) < 1:
            raise UserError(f"{where}: 'widths' should be numbers from 1 on, got {list(widths)}.")
        steps = [dilation] * layers if isinstance(dilation, int) else list(dilation)
        if len(steps) != layers or min(steps) < 1:
            raise UserError(
                f"{where}: 'dilation' should be one number from 1 on, or one for each of the "
                f"{layers} layers, got {dilation}."
            )
        self.output_size = hidden * len(widths)
        self.stride = stride**layers  # input steps for one output step
        self.receptive_field = 1  # input steps that one output step can see
        for i, apart in enumerate(steps):
            self.receptive_field += (max(widths) - 1) * apart * stride**i
        sizes = [input_size] + [self.output_size] * (layers - 1)
        self.layers = nn.ModuleList(
            Convolution(size, hidden, tuple(widths), stride, apart, activation, residual, norm)
            for size, apart in zip(sizes, steps, strict=True)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        if not x.data.shape[1]:
            return x.with_data(x.data.new_zeros(len(x), 0, self.output_size))
        x = x.with_data(x.data)  # a window that reaches past the end must see zeros
        for layer in self.layers:
            assert isinstance(layer, Convolution)
            states = self.dropout(layer(x.data))
            if layer.stride > 1:
                x = Padded(states, (x.lengths + layer.stride - 1) // layer.stride)
            x = x.with_data(states)
        return x
