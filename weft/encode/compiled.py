"""Compiling the blocks of a model: one function serves all blocks, so it is made in seconds."""

from typing import Any

from torch import nn

from weft.attend.block import Block


def compile_blocks(model: nn.Module, **options: Any) -> int:
    """Compile every Transformer block where it stands; how many there are.

    Names and weights stay as they are. The compiler runs when a block first meets a shape.
    """
    found = _blocks(model)
    for block in found:
        block.compile(**options)
    return len(found)


def undo(model: nn.Module) -> int:
    """Let the blocks compute as they are written again; how many were compiled."""
    found = [block for block in _blocks(model) if block._compiled_call_impl is not None]
    for block in found:
        block._compiled_call_impl = None
    return len(found)


def failed(error: BaseException) -> bool:
    """Whether an error came from the compiler, not from what was compiled."""
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)


def _blocks(model: nn.Module) -> list[Block]:
    return [module for module in model.modules() if isinstance(module, Block)]
