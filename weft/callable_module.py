"""Modules that can be called: `weft.train` is a folder and a function.

The folder and the function share a name, and importing one would hide the other.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Let a module be called as a function, and show its signature and docstring in help()."""

    class CallableModule(ModuleType):
        __call__ = staticmethod(function)
        __signature__ = inspect.signature(function)  # inspect would drop a parameter for `self`

    module = sys.modules[name]
    module.__class__ = CallableModule
    summary, _, rest = (inspect.getdoc(function) or "").partition("\n")
    # help() shows the first line beside the name of the module, and the rest as its description.
    module.__doc__ = f"{summary}\n\n{name}{_format_signature(function)}\n{rest}"


def _format_signature(function: Callable[..., Any]) -> str:
    """Return the signature with one parameter a line."""
    signature = inspect.signature(function)
    lines: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in lines:
            lines.append("*")
        lines.append(str(parameter))
    returned = inspect.formatannotation(signature.return_annotation)
    return "(\n    " + ",\n    ".join(lines) + f",\n) -> {returned}"
