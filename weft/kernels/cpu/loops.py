"""Compile loops with Numba where it is installed; without it they run as Python, the same but slow.

An exported model decodes on machines without Numba.
"""

from typing import Any


def compile_loop(**options: Any) -> Any:
    """Return the decorator `numba.njit(**options)`, or one that changes nothing."""
    try:
        from numba import njit
    except ModuleNotFoundError:
        return lambda function: function
    return njit(**options)
