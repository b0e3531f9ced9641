"""torch.compile of a model's blocks: one function serves all blocks, so it compiles in seconds."""

from typing import Any

from torch import nn

MAX_COMPILED_SHAPES = 64  # per function, over all models of a process


class Compilable(nn.Module):
    """Marks modules that are worth compiling on their own."""


def compile_blocks(model: nn.Module, **options: Any) -> int:
    """Compile every compilable module in place; return how many there are.

    Names and weights stay as they are. The compiler runs when a block first meets a shape.
    """
    modules = _compilable_modules(model)
    if modules:
        raise_recompile_limit()
    for module in modules:
        module.compile(**options)
    return len(modules)


def raise_recompile_limit() -> None:
    """Let one function be compiled for more than torch's eight shapes, over all models."""
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, MAX_COMPILED_SHAPES)


def uncompile_blocks(model: nn.Module) -> int:
    """Undo compilation; return how many modules were compiled."""
    compiled = [
        module for module in _compilable_modules(model) if module._compiled_call_impl is not None
    ]
    for module in compiled:
        module._compiled_call_impl = None
    return len(compiled)


def is_compiler_error(error: BaseException) -> bool:
    """Return True if an error came from the compiler, not from the compiled code."""
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)


def _compilable_modules(model: nn.Module) -> list[Compilable]:
    return [module for module in model.modules() if isinstance(module, Compilable)]
