"""Load weights into a network strictly: a missing or extra tensor is an error that names it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from weft.convert.tensors import join_names
from weft.errors import UserError

ORIGINAL = ".parametrizations.weight.original"  # of a matrix with LoRA
ADDED_PARAMETERS = ("mix.", ".parametrizations.weight.0.")  # not in checkpoints: scalar mix, LoRA


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], where: str, theirs: Mapping[str, str] = {}
) -> None:
    """Copy weights into a network; `theirs` are their names in the file `where`."""
    own = {
        name.replace(ORIGINAL, ".weight"): tensor
        for name, tensor in network.state_dict().items()
        if not any(mark in name for mark in ADDED_PARAMETERS)
    }
    if missing := own.keys() - weights.keys():
        raise UserError(f"{where}: {len(missing)} tensors are missing: {join_names(missing)}.")
    if extra := weights.keys() - own.keys():
        names = {theirs.get(name, name) for name in extra}
        raise UserError(
            f"{where}: {len(names)} tensors are not of this network: {join_names(names)}."
        )
    for name, tensor in own.items():
        if weights[name].shape != tensor.shape:
            raise UserError(
                f"{where}: {theirs.get(name, name)} has the shape {tuple(weights[name].shape)}, "
                f"but its settings need {tuple(tensor.shape)}. They are of different checkpoints."
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])  # the state dict shares memory with the network
