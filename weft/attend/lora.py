"""Learning a small change of a large matrix: LoRA (Hu et al. 2022).

I width of what goes in   O of what comes out   R rank
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

LORA_SCALE = 2.0  # α / r: how much of the change is added, as in the paper's code with α = 2 r


class LoRA(nn.Module):
    """W + s·B·A, of which only A and B are learned; B begins as zeros, so W is where it starts."""

    def __init__(self, weight: Tensor, rank: int):
        super().__init__()
        out, into = weight.shape
        self.down = nn.Parameter(weight.new_empty(rank, into))  # (R, I)
        self.up = nn.Parameter(weight.new_zeros(out, rank))  # (O, R)
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + LORA_SCALE * (self.up @ self.down)  # (O, I)


def add_lora(layer: nn.Linear, rank: int) -> None:
    """Freeze a layer and let it learn a change of that rank; it is read and called as before."""
    layer.weight.requires_grad_(False)
    if layer.bias is not None:
        layer.bias.requires_grad_(False)
    parametrize.register_parametrization(layer, "weight", LoRA(layer.weight, rank))


def merge_lora(model: nn.Module) -> int:
    """Write every change into its matrix, which then is plain again; how many there were."""
    found = [m for m in model.modules() if parametrize.is_parametrized(m, "weight")]
    with torch.no_grad():
        for layer in found:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    return len(found)
