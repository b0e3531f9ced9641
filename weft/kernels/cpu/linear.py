"""Linear layers with their weights packed once for the CPU.

N rows   I width in   O width out
"""

from functools import cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WeightDtype = Literal["float32", "int8"]
Activation = Literal["none", "relu", "gelu", "gelu-tanh"]
# oneDNN's names of activations: the function and its algorithm.
ONEDNN_ACTIVATIONS: dict[str, tuple[str, str]] = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu-tanh": ("gelu", "tanh"),
}
INT8_LEVELS = 127  # on each side of zero
PROBE_WIDTH = 16  # of the layer that tests whether they work
MIN_SCALE = 1e-12  # a row of zeros has a scale too


@cache
def can_pack(weights: str = "float32") -> bool:
    """Return True if oneDNN's linear layers exist and work; torch guarantees neither."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight = torch.ones(1, PROBE_WIDTH), torch.ones(PROBE_WIDTH, PROBE_WIDTH)
    try:
        layer = LINEAR_BY_DTYPE[weights](weight, torch.ones(PROBE_WIDTH))
        outputs = (layer(x), layer.add_to(x, x) - x)
    except (AttributeError, ImportError, RuntimeError, TypeError, ValueError):
        return False
    expected = torch.full((1, PROBE_WIDTH), PROBE_WIDTH + 1.0)
    return all(torch.allclose(output, expected, rtol=0.02) for output in outputs)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x·Wᵀ + b as `F.linear` does; without gradients, in fp32 on a CPU, by oneDNN.

    On AMD's processors that takes less than half the time of MKL behind `F.linear`.
    """
    plain = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    if torch.is_grad_enabled() or not plain or not x.numel() or not can_pack():
        return F.linear(x, weight, bias)
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def project(layer: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a layer, by `linear` if it is a plain linear one."""
    y: Tensor = linear(x, layer.weight, layer.bias) if type(layer) is nn.Linear else layer(x)
    return y


class PackedLinear:
    """x·Wᵀ + b, then an activation, in fp32; weights are copied into the layout of oneDNN.

    With few rows this reads memory at full speed, which MKL behind `nn.Linear` does not on every
    CPU.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none"):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())
        self.bias = None if bias is None else bias.detach().clone()
        self.after, self.algorithm = ONEDNN_ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, self.after, [], self.algorithm
        )  # (N, O)
        return y

    def add_to(self, x: Tensor, other: Tensor) -> Tensor:
        """Return the product without an activation, added to `other` (N, O)."""
        linear_add = torch.ops.mkldnn._linear_pointwise.binary
        y: Tensor = linear_add(x, other, self.weight, self.bias, "add")  # (N, O)
        return y


class Int8Linear(PackedLinear):
    """The same with int8 weights, one scale per output, and dynamically quantised inputs.

    Each row is spread over 256 levels from its minimum to its maximum, so that rows do not affect
    each other: the vector-wise product of Dettmers et al. (2022), with an offset.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none"):
        weight = weight.detach()
        self.scale = weight.abs().amax(1).clamp(min=MIN_SCALE) / INT8_LEVELS  # (O,)
        whole = (weight / self.scale[:, None]).round().to(torch.int8)  # (O, I)
        # x = size·u + low for levels u, so x·w = size·u·w + low·Σw.
        self.sums = (whole.sum(1) * self.scale).numpy()  # (O,)
        self.weight = torch.ops.onednn.qlinear_prepack(whole, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        offset = torch.zeros(len(weight)) if bias is None else bias.detach().clone()
        self.added = offset.numpy()  # (O,)
        self.activation = list(ONEDNN_ACTIVATIONS).index(activation)

    def __call__(self, x: Tensor) -> Tensor:
        from weft.kernels.cpu.int8 import dequantise

        products, size, low = self._product(x)
        dequantise(products.numpy(), size, low, self.sums, self.added, self.activation)
        return products  # (N, O)

    def add_to(self, x: Tensor, other: Tensor) -> Tensor:
        from weft.kernels.cpu.int8 import dequantise_add

        products, size, low = self._product(x)
        dequantise_add(products.numpy(), size, low, self.sums, self.added, other.numpy())
        return products  # (N, O)

    def _product(self, x: Tensor) -> tuple[Tensor, np.ndarray, np.ndarray]:
        """Return integer products (N, O), and the step and offset of each row."""
        from weft.kernels.cpu.int8 import quantise_rows

        whole, ends = torch.empty(x.shape, dtype=torch.uint8), np.empty((2, len(x)), np.float32)
        quantise_rows(x.numpy(), whole.numpy(), *ends)
        products = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, 0, self.weight, self.scale, self.zero, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        return products, ends[0], ends[1]


class PackedNorm:
    """A layer norm with copied weights."""

    def __init__(self, norm: nn.LayerNorm):
        self.weight, self.bias = norm.weight.detach().clone(), norm.bias.detach().clone()
        self.eps = norm.eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


def activation_name(module: nn.Module) -> Activation:
    """Return the name of an activation module."""
    if isinstance(module, nn.GELU):
        return "gelu-tanh" if module.approximate == "tanh" else "gelu"
    assert isinstance(module, nn.ReLU)
    return "relu"


LINEAR_BY_DTYPE: dict[str, type[PackedLinear]] = {"float32": PackedLinear, "int8": Int8Linear}
