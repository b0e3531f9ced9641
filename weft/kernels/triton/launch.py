"""Programmatic dependent launch: kernels start while the previous one still runs.

Only another such kernel lets them start early, after its own wait; all others end first. No kernel
writes weights, so weights may be read before the wait, and nothing else.
"""

from functools import cache

import torch
from torch import Tensor

MIN_PDL_CAPABILITY = (9, 0)  # devices that can: Hopper


def launch_options(x: Tensor) -> dict[str, bool]:
    """Return the launch options of such a kernel on the tensor's device."""
    return {"EARLY": True, "launch_pdl": True} if _supports_pdl(x.device) else {"EARLY": False}


@cache
def _supports_pdl(device: torch.device) -> bool:
    if device.type == "cpu" or torch.version.hip is not None:
        return False
    capability: tuple[int, int] = torch.get_device_module(device).get_device_capability(device)
    return capability >= MIN_PDL_CAPABILITY
