"""Initial weights by name: Xavier, Kaiming, orthogonal, normal or uniform."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from weft.protocols import WeightMatrices
from weft.train.settings import Init

FORGET_BIAS = 1.0  # of an LSTM whose biases PyTorch has drawn

INITS: dict[Init, Callable[[Tensor, float], Tensor]] = {
    "xavier-uniform": lambda weight, scale: nn.init.xavier_uniform_(weight, gain=scale),
    "xavier-normal": lambda weight, scale: nn.init.xavier_normal_(weight, gain=scale),
    "kaiming-uniform": lambda weight, scale: nn.init.kaiming_uniform_(
        weight, nonlinearity="relu"
    ).mul_(scale),
    "kaiming-normal": lambda weight, scale: nn.init.kaiming_normal_(
        weight, nonlinearity="relu"
    ).mul_(scale),
    "orthogonal": lambda weight, scale: nn.init.orthogonal_(weight, gain=scale),
    "normal": lambda weight, scale: nn.init.normal_(weight, std=scale),
    "uniform": lambda weight, scale: nn.init.uniform_(weight, -scale, scale),
}


@torch.no_grad()
def initialise(model: nn.Module, init: Init, scale: float) -> None:
    """Draw every weight matrix of a model anew, and set biases to zero; "default" changes nothing.

    The gates of a recurrent layer are one matrix each. Biases that a setting chooses (forget gates,
    carry gates of highways) keep it. Tables of words and positions, initial states, transitions of
    a CRF and norms stay as they are. Call it before pre-trained weights are loaded.
    """
    if init == "default":
        return
    for module in model.modules():
        for weight in _weight_matrices(module):
            INITS[init](weight, scale)
        _reset_biases(module)
    for module in model.modules():
        if isinstance(module, WeightMatrices):
            module.finish_init()


def _weight_matrices(module: nn.Module) -> Iterable[Tensor]:
    """Return the weight matrices of one module, without those of its children."""
    if isinstance(module, WeightMatrices):
        return module.weight_matrices()
    if isinstance(module, nn.RNNBase):
        weights = [p for name, p in module.named_parameters() if name.startswith("weight")]
        return [gate for weight in weights for gate in weight.split(module.hidden_size)]
    if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) and not parametrize.is_parametrized(
        module
    ):
        return [module.weight]
    return []


def _reset_biases(module: nn.Module) -> None:
    """Set the biases that PyTorch has drawn to zero, those of an LSTM's forget gates to one."""
    if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) and not parametrize.is_parametrized(
        module
    ):
        if module.bias is not None:
            module.bias.zero_()
    elif isinstance(module, nn.RNNBase):
        biases = {name: p for name, p in module.named_parameters() if name.startswith("bias")}
        # Weft's recurrent layers have set theirs: there, the second of two biases is zero.
        if not any(p.any() for name, p in biases.items() if name.startswith("bias_hh")):
            return
        for name, bias in biases.items():
            bias.zero_()
            if isinstance(module, nn.LSTM) and name.startswith("bias_ih"):
                bias[module.hidden_size : 2 * module.hidden_size] = FORGET_BIAS
