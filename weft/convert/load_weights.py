"""Weights put into a network of ours: every tensor in its place, or an error that names it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from weft.convert.tensors import join_names
from weft.errors import UserError

ORIGINAL = ".parametrizations.weight.original"  # a matrix whose change of low rank is learned
ADDED_PARAMETERS = ("mix.", ".parametrizations.weight.0.")  # not in checkpoints: scalar mix, LoRA


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], where: str, theirs: Mapping[str, str] = {}
) -> None:
    """Copy weights into a network; `theirs` are their names as `where` has them."""
    own = {
        name.replace(ORIGINAL, ".weight"): tensor
        for name, tensor in network.state_dict().items()
        if not any(mark in name for mark in ADDED_PARAMETERS)
    }
    if missing := own.keys() - weights.keys():
        raise UserError(f"{where}: {len(missing)} tensors are missing: {join_names(missing)}.")
    if extra := weights.keys() - own.keys():
        message = {theirs.get(name, name) for name in extra}
        raise UserError(
            f"{where}: {len(message)} tensors have no place here: {join_names(message)}."
        )
    for name, tensor in own.items():
        given = weights[name]
        if given.shape != tensor.shape:
            raise UserError(
                f"{where}: {theirs.get(name, name)} has the shape {tuple(given.shape)}, but its "
                f"settings ask for {tuple(tensor.shape)}. They are not of one checkpoint."
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])  # the state dict shares memory with the network
