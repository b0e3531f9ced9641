"""Libraries that only the doctor needs, imported when their turn comes."""

import importlib
from typing import Any

from weft.errors import UserError


class Missing(UserError):
    """A library is not installed; the findings that need it can be left out, and it is said."""


def library(name: str, purpose: str) -> Any:
    """The module, or what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise Missing(
            f"{purpose} needs {package}, which is not installed: pip install {package}."
        ) from error
