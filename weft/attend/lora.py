"""LoRA: low-rank adaptation of linear layers (Hu et al. 2022).

I input width   O output width   R rank
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

LORA_SCALE = 2.0  # α / r, as in the paper's code with α = 2 r


class LoRA(nn.Module):
    """W + s·B·A with trainable A and B; B starts at zero, so training starts from W."""

    def __init__(self, weight: Tensor, rank: int):
        super().__init__()
        out, into = weight.shape
        self.down = nn.Parameter(weight.new_empty(rank, into))  # (R, I)
        self.up = nn.Parameter(weight.new_zeros(out, rank))  # (O, R)
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + LORA_SCALE * (self.up @ self.down)  # (O, I)


def add_lora(layer: nn.Linear, rank: int) -> None:
    """Freeze a layer and train a low-rank update of its weight; it is called as before."""
    layer.weight.requires_grad_(False)
    if layer.bias is not None:
        layer.bias.requires_grad_(False)
    parametrize.register_parametrization(layer, "weight", LoRA(layer.weight, rank))


def merge_lora(model: nn.Module) -> int:
    """Merge every low-rank update into its weight; return the number of merged layers."""
    layers = [m for m in model.modules() if parametrize.is_parametrized(m, "weight")]
    with torch.no_grad():
        for layer in layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    return len(layers)
