"""Compiling the blocks of a model: one function serves all blocks, so it is made in seconds."""

from typing import Any

from torch import nn

SHAPES = 64  # that one function is compiled for, in all models of a process together


class Quick(nn.Module):
    """What is worth compiling by itself, where anything is."""


def compile_blocks(model: nn.Module, **options: Any) -> int:
    """Compile every Transformer block where it stands, and what is around them; how many.

    Names and weights stay as they are. The compiler runs when a block first meets a shape.
    """
    found = _quick(model)
    if found:
        many_shapes()
    for module in found:
        module.compile(**options)
    return len(found)


def many_shapes() -> None:
    """Let one function be compiled for more than torch's eight shapes, over all models."""
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, SHAPES)


def undo(model: nn.Module) -> int:
    """Let them compute as they are written again; how many were compiled."""
    found = [module for module in _quick(model) if module._compiled_call_impl is not None]
    for module in found:
        module._compiled_call_impl = None
    return len(found)


def failed(error: BaseException) -> bool:
    """Whether an error came from the compiler, not from what was compiled."""
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)


def _quick(model: nn.Module) -> list[Quick]:
    return [module for module in model.modules() if isinstance(module, Quick)]
